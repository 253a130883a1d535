//! The macros of `abide`. Use them through `abide`, which re-exports them beside their traits.

mod camel_case;
mod machine;
mod message;
mod mistakes;
mod snake_case;
mod step;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as TokenStream2;

/// Makes an enum of unit variants the steps of a machine: implements `abide::Step`.
///
/// The variants are the steps in the order written; an instance begins at the first. A step is stored under the
/// snake_case of its variant. Stored instances are found by that name, so a variant that is renamed keeps its old one
/// with `#[step(name = "...")]`.
///
/// `Clone`, `Copy`, `Debug` and the rest may be derived beside it as usual; a step needs none of them.
///
/// ```
/// # extern crate self as abide;
/// # pub trait Step: Sized + Send + Sync + 'static {
/// #     const ALL: &'static [Self];
/// #     fn name(&self) -> &'static str;
/// #     fn parse(name: &str) -> Option<Self>;
/// # }
/// # use abide_macros::Step;
/// # fn main() {
/// #[derive(Step)]
/// enum At {
///     Start,
///     AskAgain,
///     #[step(name = "post")]
///     Ship,
/// }
///
/// assert_eq!(At::AskAgain.name(), "ask_again");
/// let names: Vec<_> = At::ALL.iter().map(|step| step.name()).collect();
/// assert_eq!(names, ["start", "ask_again", "post"]);
/// # }
/// ```
///
/// # Errors
///
/// It does not compile for a struct or a union, for an enum that is empty or generic, for a variant with fields, and
/// for steps whose names are empty or not distinct.
#[proc_macro_derive(Step, attributes(step))]
pub fn derive_step(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    step::expand(&input)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

/// Makes an `impl` block of async functions a machine: implements `abide::Machine`, with an enum of the steps.
///
/// `abide::machine` has the guide and examples.
///
/// # Errors
///
/// It does not compile for a block that implements a trait or has no step, for a function that is neither a step nor one
/// of `abide::Machine`, for a step that is not async, is generic or takes more than its context, for steps whose names are
/// empty or not distinct, and for options that are unknown or given twice.
#[proc_macro_attribute]
pub fn machine(options: TokenStream, item: TokenStream) -> TokenStream {
    machine::expand(options.into(), item.into())
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

/// Makes a struct or an enum a message: implements `Serialize` and `Deserialize` of serde and `JsonSchema` of schemars, so that
/// neither crate need be among the dependencies.
///
/// `abide::Message` has the guide and examples.
///
/// # Errors
///
/// It does not compile for a union, for a type that is generic or borrows, and where a field's type is not a message itself.
#[proc_macro_derive(Message, attributes(serde, schemars))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    message::expand(&input)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

/// Runs an `async fn main` on tokio's runtime: `#[tokio::main]`, whose options it takes, for programs that do not have
/// tokio among their dependencies.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    let (options, item): (TokenStream2, TokenStream2) = (options.into(), item.into());
    quote::quote! {
        #[::abide::__private::tokio::main(crate = "::abide::__private::tokio", #options)]
        #item
    }
    .into()
}
