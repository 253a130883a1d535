//! `#[derive(Step)]` as the compiler sees it, against a trait of the shape that `abide` has.

extern crate self as abide;

use abide_macros::Step;

/// The shape of `abide::Step`.
pub trait Step: Sized + Send + Sync + 'static {
    /// Every step.
    const ALL: &'static [Self];
    /// The stored name.
    fn name(&self) -> &'static str;
    /// The step of a stored name.
    fn parse(name: &str) -> Option<Self>;
}

#[derive(Step, Clone, Copy, Debug, PartialEq)]
enum At {
    Start,
    AskAgain,
    #[step(name = "post")]
    Ship,
}

#[test]
fn the_first_variant_is_where_an_instance_begins() {
    assert_eq!(At::ALL, [At::Start, At::AskAgain, At::Ship]);
}

#[test]
fn names_are_the_snake_case_or_what_was_given() {
    let names: Vec<_> = At::ALL.iter().map(|step| step.name()).collect();
    assert_eq!(names, ["start", "ask_again", "post"]);
}

#[test]
fn a_step_is_found_by_its_name_and_no_other() {
    for step in At::ALL {
        assert_eq!(At::parse(step.name()), Some(*step));
    }
    assert_eq!(At::parse("ship"), None);
    assert_eq!(At::parse(""), None);
}

#[test]
fn a_step_needs_nothing_but_its_own_derive() {
    #[derive(Step)]
    enum Alone {
        Start,
    }
    assert!(matches!(Alone::parse("start"), Some(Alone::Start)));
}
