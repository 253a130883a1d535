//! The steps of a machine, as an enum.

use abide_core::model::{Name, Refusal};

/// The steps of a machine. Derive it on an enum whose variants have no fields.
///
/// A variant is stored under its name in snake case, or under the name given with `#[step(name = "ship-it")]`. An
/// instance begins with the first variant.
///
/// ```
/// #[derive(abide::Step)]
/// enum At { Start, AskAgain }
///
/// use abide::Step;
/// assert_eq!(At::AskAgain.name(), "ask_again");
/// assert!(matches!(At::parse("start"), Some(At::Start)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an enum of steps",
    label = "the steps of a machine are an enum that derives `Step`",
    note = "add `#[derive(abide::Step)]` to the enum, with one variant for each step"
)]
pub trait Step: Sized + Send + Sync + 'static {
    /// All steps, in the order in which they are written. An instance begins with the first one.
    const ALL: &'static [Self];

    /// Returns the name that the step is stored under.
    fn name(&self) -> &'static str;

    /// Returns the step that is stored under a name, or `None` if there is none.
    fn parse(name: &str) -> Option<Self>;
}

/// The name of a step: a [`Step`], or plain text.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step",
    label = "expected a step of the machine, or its name",
    note = "the steps of a machine are an enum that derives `Step`"
)]
pub trait StepName {
    /// Returns the name, if it is valid.
    fn step_name(&self) -> Result<Name, Refusal>;
}

#[diagnostic::do_not_recommend]
impl<S: Step> StepName for S {
    fn step_name(&self) -> Result<Name, Refusal> {
        Name::new(self.name())
    }
}

/// Makes types of text names of steps.
macro_rules! by_name {
    ($($text:ty),*) => {
        $(
            impl StepName for $text {
                fn step_name(&self) -> Result<Name, Refusal> {
                    Name::new(self)
                }
            }
        )*
    };
}

by_name!(&str, &String, String, Name);
