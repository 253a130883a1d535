//! The store passes the suite that every store must pass.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use abide_kernel::conformance::{Setup, Subject};
use abide_sqlite::{Options, Sqlite};

async fn make(setup: Setup) -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        clock: Some(setup.clock),
        limits: setup.limits,
        ..Options::default()
    };
    let store = Sqlite::open(dir.path().join("abide.db"), options).unwrap();
    Subject::of(store).with(dir)
}

abide_kernel::conformance_tests!(make);
