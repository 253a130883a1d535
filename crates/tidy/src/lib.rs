//! Tools for the checks in `tests/tidy`, which keep the house in order: which crates may depend on which,
//! that every rule has a test, that licences are allowed, that the docs' links lead somewhere.
//!
//! Run them with `cargo test -p abide-tidy`. Each failure says what to do about it.

#![allow(
    clippy::panic,
    reason = "all of this runs in tests, where a panic with a clear message is the report"
)]

pub mod cargo;
pub mod files;
pub mod licence;
pub mod listings;
pub mod markdown;
pub mod mutants;
pub mod paths;
pub mod promql;
pub mod rules;
pub mod source;
pub mod yaml;

/// Fails the test that calls it, with one line per problem and the advice under them; does nothing
/// when there are no problems.
///
/// # Panics
/// When `problems` is not empty: that is its purpose.
pub fn report(problems: &[String], advice: &str) {
    assert!(
        problems.is_empty(),
        "\n\n{} problem(s):\n  - {}\n\nWhat to do: {advice}\n",
        problems.len(),
        problems.join("\n  - "),
    );
}
