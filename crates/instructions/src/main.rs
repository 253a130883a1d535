//! Counts the instructions and allocations of the kernel's hot operations on the memory store, and fails if one of them
//! has grown by more than a tenth since they were recorded: `make test-counts`.
//!
//! Valgrind counts, so neither time nor other processes matter. Only code of the program itself is counted: what the C
//! library does (it allocates, copies and compares memory) differs between machines. Allocations are counted instead.
//!
//! The program is built with the dev profile, which `make test` builds anyway. Its crates are not optimised then, so
//! the counts are several times those of a release. But they follow the source: no inlining across units, which
//! depends on what was compiled together, changes them.

mod callgrind;
mod operations;
mod record;

use std::process::ExitCode;

use record::{Compared, Record};

/// The argument that replaces the record.
const RENEW: &str = "--renew";

/// The argument that runs the operations; the program starts itself with it under valgrind.
const RUN: &str = "--run";

fn main() -> ExitCode {
    let arg = std::env::args().nth(1);
    let done = match arg.as_deref() {
        None => compare(),
        Some(RENEW) => renew(),
        Some(RUN) => operations::run(|_, _| {}),
        Some(other) => Err(format!(
            "unknown argument {other:?}: use none, or {RENEW} to replace the record"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("instructions: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Counts, and fails if a count has grown too much.
fn compare() -> Result<(), String> {
    if !callgrind::is_supported() {
        eprintln!("instructions: not counted: this needs Linux on x86_64 or aarch64");
        return Ok(());
    }
    let Compared { text, grown } = Record::read()?.compare(&record::target()?, &count()?);
    print!("{text}");
    match grown.as_slice() {
        [] => Ok(()),
        grown => Err(format!(
            "these have grown by more than {} %: {}; make them cheaper, or record the new counts with \
             `make instructions-renew` and say in the commit why they grew",
            record::MORE_PERCENT,
            grown.join(", ")
        )),
    }
}

/// Counts, and replaces the record of this compiler and this kind of machine.
fn renew() -> Result<(), String> {
    let mut record = Record::read()?;
    record.replace(record::target()?, count()?);
    record.write()
}

/// Counts each operation.
fn count() -> Result<Vec<record::Row>, String> {
    let mut labels = Vec::new();
    // Runs them here first, which is quick: for their labels, and because a failure is easier to read without valgrind.
    operations::run(|operation, entries| labels.push((operation, entries)))?;
    let counts = callgrind::count(operations::MEASURED, RUN, labels.len())?;
    let rows = labels.into_iter().zip(counts);
    Ok(rows
        .map(|((operation, entries), cost)| record::Row {
            operation: operation.to_owned(),
            entries,
            cost,
        })
        .collect())
}
