//! The functions of a machine that are not steps: what it does about errors and updates, and what it takes.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, FnArg, Ident, ImplItemFn, Pat, PatType, Result, ReturnType, Signature};

use super::{at, conditions, receiver};

/// The functions of `abide::Machine` that a machine may write, beside `step`.
const SIGNATURES: [(&str, &str); 5] = [
    (
        "on_error",
        "async fn on_error(&self, fault: &::abide::machine::Fault, ctx: &mut ::abide::Context<Self>) -> ::abide::Outcome<Self>",
    ),
    (
        "on_update",
        "async fn on_update(&self, call: &::abide::machine::Call<'_>, ctx: &mut ::abide::Context<Self>) -> ::abide::machine::Answer<Self>",
    ),
    ("messages", "fn messages() -> ::abide::machine::Messages"),
    ("retry", "fn retry(&self) -> ::abide::machine::Retry"),
    (
        "time_limit",
        "fn time_limit(&self, at: Self::Step) -> ::core::option::Option<::core::time::Duration>",
    ),
];

/// A function of the trait as the machine has it.
pub struct Hook<'b> {
    name: &'static str,
    function: &'b ImplItemFn,
    has_self: bool,
    /// As the trait has it.
    signature: Signature,
}

/// The signature of the trait's function that has the name of this one, if there is one.
pub fn signature(function: &ImplItemFn) -> Option<(&'static str, &'static str)> {
    let mut all = SIGNATURES.into_iter();
    all.find(|(name, _)| function.sig.ident == name)
}

impl<'b> Hook<'b> {
    pub fn read(
        (name, signature): (&'static str, &'static str),
        function: &'b ImplItemFn,
    ) -> Result<Self> {
        if let Some(attribute) = function.attrs.iter().find(|it| it.path().is_ident("step")) {
            let message = format!(
                "`{name}` is a function of `Machine` and not a step: remove this attribute"
            );
            return Err(Error::new_spanned(attribute, message));
        }
        let has_self = receiver(function, &format!("`{name}`"))?;
        let expected: Signature = syn::parse_str(signature)?;
        let sig = &function.sig;
        let fits = sig.asyncness.is_some() == expected.asyncness.is_some()
            && (expected.receiver().is_some() || !has_self)
            && parameters(sig).count() == parameters(&expected).count()
            && matches!(sig.output, ReturnType::Type(..));
        if !fits {
            return Err(Error::new(
                sig.ident.span(),
                format!(
                    "`{name}` is a function of `Machine` and not a step: write `{}`, or rename it",
                    written(signature)
                ),
            ));
        }
        Ok(Self {
            name,
            function,
            has_self,
            signature: expected,
        })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn span(&self) -> Span {
        self.function.sig.ident.span()
    }

    /// The trait's function, which calls this one. A type that does not match is reported at this one's signature.
    pub fn forward(&self) -> TokenStream {
        let Self {
            function,
            signature,
            ..
        } = self;
        let conditions = conditions(&function.attrs);
        let name = &function.sig.ident;
        let receiver = self.has_self.then(|| quote!(self,));
        let pairs = parameters(signature).zip(parameters(&function.sig));
        let arguments = pairs.filter_map(|(expected, own)| match &*expected.pat {
            Pat::Ident(pat) => Some(Ident::new(&pat.ident.to_string(), at(&own.ty))),
            _ => None,
        });
        let answer = at(&function.sig.output);
        let awaited = signature.asyncness.map(|_| quote_spanned!(answer=> .await));
        let call = quote_spanned!(answer=> Self::#name(#receiver #(#arguments),*) #awaited);
        quote! {
            #(#conditions)*
            #signature {
                #call
            }
        }
    }
}

fn parameters(signature: &Signature) -> impl Iterator<Item = &PatType> {
    signature.inputs.iter().filter_map(|input| match input {
        FnArg::Receiver(_) => None,
        FnArg::Typed(parameter) => Some(parameter),
    })
}

/// A signature as a user of `abide` writes it.
fn written(signature: &str) -> String {
    let paths = [
        "::abide::machine::",
        "::abide::",
        "::core::option::",
        "::core::time::",
    ];
    let short = paths
        .iter()
        .fold(signature.to_owned(), |text, path| text.replace(path, ""));
    short.replace("Self::Step", "At")
}
