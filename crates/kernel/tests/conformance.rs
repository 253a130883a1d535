//! The memory store passes the suite that every store must pass, and the suite's list names all of its tests.

use std::collections::BTreeSet;

use abide_kernel::conformance::{Setup, Subject};
use abide_kernel::memory::Memory;

async fn make(setup: Setup) -> Subject {
    Subject::new(Memory::new(setup.clock, setup.limits))
}

abide_kernel::conformance_tests!(make);

macro_rules! names {
    (() $($group:ident { $($test:ident,)* })*) => {
        const LISTED: &[&str] = &[$($(concat!(stringify!($group), "::", stringify!($test)),)*)*];
    };
}

abide_kernel::for_each_conformance_test!(names,);

#[test]
fn the_list_names_every_test_of_the_suite() {
    let listed: BTreeSet<String> = LISTED.iter().map(|test| (*test).to_owned()).collect();
    let mut written = BTreeSet::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance");
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let group = file.file_stem().unwrap().to_str().unwrap();
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let rest = line.strip_prefix("pub async fn ");
            let test = rest.and_then(|rest| rest.strip_suffix("(lab: Lab) {"));
            written.extend(test.map(|test| format!("{group}::{test}")));
        }
    }
    let missing: Vec<_> = written.symmetric_difference(&listed).collect();
    assert!(
        missing.is_empty(),
        "written or listed, but not both: {missing:#?}"
    );
}
