//! One function that is a step.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{
    Attribute, Error, FnArg, GenericParam, Ident, ImplItemFn, LitStr, Result, ReturnType, Type,
};

use super::{at, conditions, receiver};
use crate::camel_case::camel_case;
use crate::step::given_name;

const WRITTEN: &str = "async fn ship(&self, ctx: &mut Context<Self>) -> Outcome<Self>";

/// A step: its function, its variant, and the name it is stored under.
pub struct Step<'b> {
    pub function: &'b ImplItemFn,
    pub variant: Ident,
    pub name: LitStr,
    has_self: bool,
    /// The type of the context, where it takes one.
    context: Option<&'b Type>,
    /// The type of what it returns.
    answer: &'b Type,
}

impl<'b> Step<'b> {
    pub fn read(function: &'b ImplItemFn) -> Result<Self> {
        let sig = &function.sig;
        if sig.asyncness.is_none() {
            return Err(Error::new(
                sig.ident.span(),
                format!(
                    "`{0}` is not async, and a step is: write `async fn {0}`, or move it into another `impl` block if it is not \
                     a step",
                    sig.ident
                ),
            ));
        }
        let is_generic = |one: &&GenericParam| !matches!(one, GenericParam::Lifetime(_));
        if let Some(parameter) = sig.generics.params.iter().find(is_generic) {
            return Err(Error::new_spanned(
                parameter,
                "a step cannot be generic: the engine calls it by its name alone; keep what varies in the state",
            ));
        }
        let has_self = receiver(function, "a step")?;
        let mut parameters = sig.inputs.iter().filter_map(typed);
        let context = parameters.next();
        if let Some(more) = parameters.next() {
            return Err(Error::new_spanned(
                more,
                format!(
                    "a step is given its context and nothing else: write `{WRITTEN}`, and keep what it needs in the state"
                ),
            ));
        }
        let ReturnType::Type(_, answer) = &sig.output else {
            return Err(Error::new(
                sig.ident.span(),
                format!(
                    "a step answers what comes next: write `-> Outcome<Self>`, as in `{WRITTEN}`"
                ),
            ));
        };
        Ok(Self {
            function,
            variant: variant(&sig.ident)?,
            name: name(&function.attrs, &sig.ident)?,
            has_self,
            context,
            answer,
        })
    }

    /// `true` if it may be left out; then another may have its name.
    pub fn is_conditional(&self) -> bool {
        !conditions(&self.function.attrs).is_empty()
    }

    /// The variant, documented as the function is.
    pub fn variant(&self) -> TokenStream {
        let Self { variant, name, .. } = self;
        let attributes = self.function.attrs.iter();
        let doc: Vec<&Attribute> = attributes.filter(|it| it.path().is_ident("doc")).collect();
        let named = match doc.is_empty() {
            true => Some(format!("The step `{}`.", name.value())),
            false => None,
        };
        let named = named.iter();
        let conditions = conditions(&self.function.attrs);
        quote! {
            #(#conditions)*
            #(#doc)*
            #(#[doc = #named])*
            #[step(name = #name)]
            #variant
        }
    }

    /// The arm that calls the function. A type that does not match is reported at the function's signature.
    pub fn arm(&self, steps: &Ident) -> TokenStream {
        let Self {
            function, variant, ..
        } = self;
        let conditions = conditions(&function.attrs);
        let receiver = self.has_self.then(|| quote!(self,));
        let context = self.context.map(|it| quote_spanned!(at(it)=> ctx));
        // A step that has no use for it.
        let unused = self.context.is_none().then(|| quote!(let _ = ctx;));
        let name = &function.sig.ident;
        let call = quote_spanned!(at(self.answer)=> Self::#name(#receiver #context).await);
        quote! {
            #(#conditions)*
            #steps::#variant => { #unused #call }
        }
    }
}

fn typed(parameter: &FnArg) -> Option<&Type> {
    match parameter {
        FnArg::Receiver(_) => None,
        FnArg::Typed(parameter) => Some(&parameter.ty),
    }
}

fn variant(function: &Ident) -> Result<Ident> {
    let camel = camel_case(&function.unraw().to_string());
    let variant = syn::parse_str::<Ident>(&camel).map_err(|_| {
        Error::new(
            function.span(),
            format!("the step of `{function}` would be `{camel}`, which is not a name in Rust: rename the function"),
        )
    })?;
    Ok(Ident::new(&variant.to_string(), function.span()))
}

/// The name it is stored under: the function's, or the one given.
fn name(attributes: &[Attribute], function: &Ident) -> Result<LitStr> {
    let own = function.unraw().to_string();
    let name = given_name(attributes)?.unwrap_or_else(|| LitStr::new(&own, function.span()));
    if name.value().is_empty() {
        return Err(Error::new(
            name.span(),
            format!(
                "a step's name cannot be empty: write one, or remove the attribute to store \"{own}\""
            ),
        ));
    }
    Ok(name)
}
