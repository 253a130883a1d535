//! Worker processes that are killed with `kill -9` while they work, again and again.
//!
//! Not a test of the usual harness: this program runs the tests, and, if an environment variable is set, it is one of the
//! workers that they start and kill.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(
        dead_code,
        unused_imports,
        reason = "what is in memory dies with its process"
    )
)]

#[cfg(all(feature = "sqlite", feature = "postgres"))]
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../outbox/caller.rs"]
mod caller;
#[path = "../common/mod.rs"]
mod common;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod outbox;
mod processes;
mod relay;
mod storm;

use std::process::ExitCode;
use std::time::Duration;

use processes::Program;

/// The maximum time of a test.
const PATIENCE: Duration = Duration::from_secs(300);

const PROGRAMS: &[Program] = &[
    relay::PROGRAM,
    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    outbox::PROGRAM,
    storm::PROGRAM,
];

fn main() -> ExitCode {
    processes::main(PROGRAMS, PATIENCE)
}
