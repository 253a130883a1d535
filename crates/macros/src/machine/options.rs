//! The options in the parentheses of `#[machine(...)]`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, Result, Token, Type, parenthesized, parse_quote};

use super::at;

/// The options, with what stands for those that are not given.
pub struct Options {
    pub steps: Ident,
    pub state: Type,
    pub output: Type,
    name: Option<Expr>,
    version: Option<Expr>,
    queue: Option<Expr>,
    history: Option<Expr>,
    max_deaths: Option<Expr>,
    signals: Vec<Expr>,
    updates: Vec<Expr>,
}

pub fn read(options: TokenStream) -> Result<Options> {
    let (mut steps, mut state, mut output) = (None, None, None);
    let (mut name, mut version, mut queue, mut history) = (None, None, None, None);
    let (mut max_deaths, mut signals, mut updates) = (None, None, None);
    let parser = syn::meta::parser(|option| {
        let key = option.path.get_ident().map(ToString::to_string);
        match key.as_deref() {
            Some("steps") => one(&mut steps, &option),
            Some("state") => one(&mut state, &option),
            Some("output") => one(&mut output, &option),
            Some("name") => one(&mut name, &option),
            Some("version") => one(&mut version, &option),
            Some("queue") => one(&mut queue, &option),
            Some("history") => one(&mut history, &option),
            Some("max_deaths") => one(&mut max_deaths, &option),
            Some("signals") => list(&mut signals, &option),
            Some("updates") => list(&mut updates, &option),
            _ => Err(option.error(
                "unknown option of a machine: there are `steps`, `state`, `output`, `name`, `version`, `queue`, \
                 `history`, `max_deaths`, `signals(...)` and `updates(...)`",
            )),
        }
    });
    parser.parse2(options)?;
    let steps = steps.ok_or_else(|| {
        Error::new(
            Span::call_site(),
            "the enum of the steps has no name: write `#[machine(steps = At)]`, and `At::Ship` is the step of \
             `async fn ship`",
        )
    })?;
    Ok(Options {
        steps,
        state: state.unwrap_or_else(|| parse_quote!(())),
        output: output.unwrap_or_else(|| parse_quote!(())),
        name,
        version,
        queue,
        history,
        max_deaths,
        signals: signals.unwrap_or_default(),
        updates: updates.unwrap_or_default(),
    })
}

/// `key = value`.
fn one<T: Parse>(into: &mut Option<T>, option: &ParseNestedMeta<'_>) -> Result<()> {
    once(into, option)?;
    *into = Some(option.value()?.parse()?);
    Ok(())
}

/// `key(A, B)`.
fn list(into: &mut Option<Vec<Expr>>, option: &ParseNestedMeta<'_>) -> Result<()> {
    once(into, option)?;
    if !option.input.peek(syn::token::Paren) {
        return Err(option.error(
            "a list is expected: write its constants in parentheses, such as `signals(PAID)`",
        ));
    }
    let content;
    parenthesized!(content in option.input);
    let all: Punctuated<Expr, Token![,]> = content.parse_terminated(Expr::parse, Token![,])?;
    *into = Some(all.into_iter().collect());
    Ok(())
}

fn once<T>(into: &Option<T>, option: &ParseNestedMeta<'_>) -> Result<()> {
    match into {
        None => Ok(()),
        Some(_) => Err(option.error("this option is given twice: remove one")),
    }
}

impl Options {
    /// `true` if they declare signals or updates.
    pub fn has_messages(&self) -> bool {
        !self.signals.is_empty() || !self.updates.is_empty()
    }

    /// The constants of the trait.
    pub fn constants(&self, default_name: &str) -> TokenStream {
        let name = match &self.name {
            Some(name) => quote!(#name),
            None => quote!(#default_name),
        };
        let version = self.version.iter();
        let queue = self.queue.iter();
        let history = self.history.iter();
        let max_deaths = self.max_deaths.iter();
        quote! {
            const NAME: &'static str = #name;
            #(const VERSION: u32 = #version;)*
            #(const QUEUE: &'static str = #queue;)*
            #(const HISTORY: bool = #history;)*
            #(const MAX_DEATHS: u32 = #max_deaths;)*
        }
    }

    /// The function that declares signals and updates, when they are.
    pub fn messages(&self) -> Option<TokenStream> {
        if !self.has_messages() {
            return None;
        }
        let signals = self.signals.iter();
        let signals = signals.map(|signal| quote_spanned!(at(signal)=> .signal(#signal)));
        let updates = self.updates.iter();
        let updates = updates.map(|update| quote_spanned!(at(update)=> .update(#update)));
        Some(quote! {
            fn messages() -> ::abide::machine::Messages {
                ::abide::machine::Messages::new() #(#signals)* #(#updates)*
            }
        })
    }
}
