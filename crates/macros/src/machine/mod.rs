//! The expansion of `#[machine]`: the functions stay as they are, and the enum of the steps and the implementation of
//! `abide::Machine` that calls them are added.

mod hook;
mod options;
mod step;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Error, ImplItem, ImplItemFn, Item, ItemImpl, Result, Type};

use crate::mistakes::Mistakes;
use crate::snake_case::snake_case;
use hook::Hook;
use options::Options;
use step::Step;

const SHAPE: &str = "a machine is an `impl` block: write `#[machine(steps = At)] impl Checkout { ... }` with one async \
                     function for each step";

/// The block and the items that are added to it, or every mistake in it at once.
pub fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let Item::Impl(block) = syn::parse2(item)? else {
        return Err(Error::new(Span::call_site(), SHAPE));
    };
    let mut mistakes = Mistakes::default();
    let options = mistakes.take(options::read(options));
    let name = mistakes.take(default_name(&block));
    let (steps, hooks) = functions(&block, &mut mistakes);
    if let Some(options) = &options
        && let Some(hook) = hooks.iter().find(|hook| hook.name() == "messages")
        && options.has_messages()
    {
        mistakes.add(Error::new(
            hook.span(),
            "the messages are declared twice: keep this function, or `signals(...)` and `updates(...)`",
        ));
    }
    mistakes.none_or_err()?;
    let (Some(options), Some(name)) = (options, name) else {
        // Each mistake is on the list.
        return Ok(TokenStream::new());
    };
    let own = without_step_attributes(&block);
    let steps_enum = steps_enum(&options, &block, &steps);
    let machine = machine(&options, &name, &block, &steps, &hooks);
    Ok(quote! {
        #steps_enum

        #[allow(clippy::unused_async, clippy::unused_self, clippy::needless_pass_by_ref_mut)]
        #own

        #machine
    })
}

/// The name that instances are stored under unless the options say otherwise: the kebab-case of the type's.
fn default_name(block: &ItemImpl) -> Result<String> {
    if let Some((_, of, _)) = &block.trait_ {
        let message = "a machine's block implements no trait: write `impl Checkout`; `Machine` is implemented for you";
        return Err(Error::new_spanned(of, message));
    }
    let named = match &*block.self_ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    };
    match named {
        Some(last) => Ok(snake_case(&last.ident.to_string()).replace('_', "-")),
        None => Err(Error::new_spanned(&block.self_ty, SHAPE)),
    }
}

/// The steps and the other functions of the trait, in the order written.
fn functions<'b>(block: &'b ItemImpl, mistakes: &mut Mistakes) -> (Vec<Step<'b>>, Vec<Hook<'b>>) {
    let (mut steps, mut hooks) = (Vec::new(), Vec::new());
    let mut has_steps = false;
    for item in &block.items {
        let ImplItem::Fn(function) = item else {
            mistakes.add(Error::new_spanned(
                item,
                "a machine's block holds its steps: move this into another `impl` block",
            ));
            continue;
        };
        if let Some(signature) = hook::signature(function) {
            hooks.extend(mistakes.take(Hook::read(signature, function)));
        } else {
            has_steps = true;
            steps.extend(mistakes.take(Step::read(function)));
        }
    }
    if !has_steps {
        mistakes.add(Error::new_spanned(
            &block.self_ty,
            "an instance must begin somewhere: add at least one step, such as `async fn start(ctx: &mut Context<Self>) -> \
             Outcome<Self>`; the first is where it begins",
        ));
    }
    twice(&steps, mistakes);
    (steps, hooks)
}

/// Finds steps that have a name or a variant in common.
fn twice(steps: &[Step<'_>], mistakes: &mut Mistakes) {
    let mut names = HashSet::new();
    let mut variants = HashMap::new();
    for step in steps.iter().filter(|step| !step.is_conditional()) {
        let function = &step.function.sig.ident;
        if !names.insert(step.name.value()) {
            mistakes.add(Error::new(
                step.name.span(),
                format!(
                    "two steps are named \"{}\": give this one a name of its own",
                    step.name.value()
                ),
            ));
        } else if let Some(other) = variants.insert(&step.variant, function) {
            mistakes.add(Error::new(
                function.span(),
                format!(
                    "`{other}` and `{function}` are both the step `{}`: rename one of them",
                    step.variant
                ),
            ));
        }
    }
}

/// The block without `#[step(...)]`, which is for this macro: the compiler does not know it.
fn without_step_attributes(block: &ItemImpl) -> ItemImpl {
    let mut block = block.clone();
    for item in &mut block.items {
        if let ImplItem::Fn(function) = item {
            function.attrs.retain(|it| !it.path().is_ident("step"));
        }
    }
    block
}

fn steps_enum(options: &Options, block: &ItemImpl, steps: &[Step<'_>]) -> TokenStream {
    let conditions = conditions(&block.attrs);
    let name = &options.steps;
    let about = format!(
        "The steps of `{}`.",
        block.self_ty.to_token_stream().to_string().replace(' ', "")
    );
    let variants = steps.iter().map(Step::variant);
    quote! {
        #(#conditions)*
        #[doc = #about]
        #[derive(
            ::abide::Step,
            ::core::clone::Clone,
            ::core::marker::Copy,
            ::core::fmt::Debug,
            ::core::cmp::PartialEq,
            ::core::cmp::Eq
        )]
        #[allow(unreachable_pub)]
        pub enum #name {
            #(#variants,)*
        }
    }
}

fn machine(
    options: &Options,
    default_name: &str,
    block: &ItemImpl,
    steps: &[Step<'_>],
    hooks: &[Hook<'_>],
) -> TokenStream {
    let conditions = conditions(&block.attrs);
    let machine = &block.self_ty;
    let (generics, _, bounds) = block.generics.split_for_impl();
    let constants = options.constants(default_name);
    let (at, state, output) = (&options.steps, &options.state, &options.output);
    let arms = steps.iter().map(|step| step.arm(at));
    let hooks = hooks.iter().map(Hook::forward);
    let messages = options.messages();
    quote! {
        #(#conditions)*
        impl #generics ::abide::Machine for #machine #bounds {
            #constants
            type Step = #at;
            type State = #state;
            type Output = #output;

            async fn step(&self, at: #at, ctx: &mut ::abide::Context<Self>) -> ::abide::Outcome<Self> {
                match at {
                    #(#arms)*
                }
            }

            #messages
            #(#hooks)*
        }
    }
}

/// The `#[cfg(...)]` among attributes: what is left out with an item goes with it.
fn conditions(attributes: &[Attribute]) -> Vec<&Attribute> {
    let all = attributes.iter();
    all.filter(|it| it.path().is_ident("cfg")).collect()
}

/// A span where the user wrote something, in which names mean what they mean to this macro.
fn at(source: &impl Spanned) -> Span {
    Span::call_site().located_at(source.span())
}

/// `true` if a function takes `&self`, `false` if it takes no `self`. Any other `self` is an error.
fn receiver(function: &ImplItemFn, what: &str) -> Result<bool> {
    let Some(receiver) = function.sig.receiver() else {
        return Ok(false);
    };
    let is_borrowed = receiver.reference.is_some() && receiver.mutability.is_none();
    match is_borrowed && receiver.colon_token.is_none() {
        true => Ok(true),
        false => Err(Error::new_spanned(
            receiver,
            format!(
                "a machine is shared by all of its instances: {what} takes `&self`, or no `self` at all"
            ),
        )),
    }
}
