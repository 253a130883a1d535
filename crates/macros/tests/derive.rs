//! `#[derive(Step)]` as the compiler sees it, against a trait of the shape that `abide` has.

extern crate self as abide;

use abide_macros::Step;

/// The shape of `abide::Step`.
pub trait Step: Copy + Send + Sync + 'static {
    /// Every step.
    const ALL: &'static [Self];
    /// The stored name.
    fn name(self) -> &'static str;
}

#[derive(Step, Debug, PartialEq)]
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
fn a_step_is_copied_without_deriving_it() {
    let first = At::Start;
    let second = first;
    assert_eq!(first, second.clone());
}
