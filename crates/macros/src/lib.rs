//! The derive macros of `abide`. Use them through `abide`, which re-exports them beside their traits.

mod snake_case;
mod step;

use proc_macro::TokenStream;

/// Makes an enum of unit variants the steps of a workflow: implements `abide::Step`, and with it `Clone` and `Copy`.
///
/// The variants are the steps in the order written; an instance begins at the first. A step is stored under the
/// snake_case of its variant. Stored instances are found by that name, so a variant that is renamed keeps its old one
/// with `#[step(name = "...")]`.
///
/// `Clone` and `Copy` come with this derive, because every step needs them: do not derive them beside it, or the
/// compiler reports conflicting implementations. `Debug`, `PartialEq` and the rest may be derived as usual.
///
/// ```
/// # extern crate self as abide;
/// # pub trait Step: Copy + Send + Sync + 'static {
/// #     const ALL: &'static [Self];
/// #     fn name(self) -> &'static str;
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
