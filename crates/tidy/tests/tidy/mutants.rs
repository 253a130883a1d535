//! The ways to break abide on purpose still apply: a change of a line that one of them names, changes the list too.

use std::collections::BTreeSet;

use abide_tidy::files::read;
use abide_tidy::mutants::{LIST, parse};
use abide_tidy::report;

/// A list that gets shorter is noticed.
const LEAST: usize = 100;

#[test]
fn every_mutant_still_applies() {
    let mutants = parse(&read(LIST)).unwrap();
    assert!(mutants.len() >= LEAST, "there are {} left", mutants.len());
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for mutant in &mutants {
        problems.extend(mutant.position_in(&read(&mutant.file)).err());
        if !seen.insert(&mutant.breaks) {
            problems.push(format!("it is there twice: {}", mutant.breaks));
        }
    }
    report(
        &problems,
        "change crates/tidy/mutants.txt so that each entry names a line that is there and breaks what it says; \
         `cargo run -p abide-tidy --bin mutants` shows whether the tests notice",
    );
}
