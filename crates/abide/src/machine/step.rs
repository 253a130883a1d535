//! The steps of a machine, as an enum.

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
