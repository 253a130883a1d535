//! The ways to break abide on purpose still apply: a change of a line that one of them names, changes the list too.

use std::collections::BTreeSet;

use abide_tidy::files::read;
use abide_tidy::mutants::{LIST, parse};
use abide_tidy::report;

/// A list that gets shorter is noticed.
const LEAST: usize = 170;

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

#[test]
fn a_mutant_that_would_not_compile_is_refused() {
    for text in ["- if a {\n+ if b {", "- let a = b;\n+ let a = c;"] {
        let problem = parse(&format!("# it breaks\nfile a.rs\n{text}\n")).unwrap_err();
        assert!(problem.contains("open bracket"), "{problem}");
    }
    let list = "# it breaks\nfile a.rs\n- if a { f(); }\n+ b[0];\n";
    assert_eq!(parse(list).unwrap().len(), 1);
}
