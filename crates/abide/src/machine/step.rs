//! The steps of a machine, as an enum.

/// The steps of a machine: derive it on an enum whose variants have no fields.
///
/// A variant is stored under its name in snake case, or under the one given: `#[step(name = "ship-it")]`. The first
/// variant is where an instance begins.
///
/// ```
/// #[derive(abide::Step)]
/// enum At { Start, AskAgain }
///
/// use abide::Step;
/// assert_eq!(At::AskAgain.name(), "ask_again");
/// assert!(matches!(At::parse("start"), Some(At::Start)));
/// ```
pub trait Step: Copy + Send + Sync + 'static {
    /// Every step, in the order written; the first is where an instance begins.
    const ALL: &'static [Self];

    /// The name it is stored under.
    fn name(self) -> &'static str;

    /// The step stored under that name.
    fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|step| step.name() == name)
    }
}
