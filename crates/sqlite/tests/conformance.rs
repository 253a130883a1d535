//! The store passes the suite that every store must pass.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "common/audit.rs"]
mod audit;

use abide_kernel::conformance::{Setup, Subject};
use abide_sqlite::{Options, Sqlite};
use audit::Audit;

async fn make(setup: Setup) -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        clock: Some(setup.clock),
        limits: setup.limits,
        ..Options::default()
    };
    let path = dir.path().join("abide.db");
    let store = Sqlite::open(&path, options).unwrap();
    Subject::of(store).with(Audit { path, held: dir })
}

abide_kernel::conformance_tests!(make);
