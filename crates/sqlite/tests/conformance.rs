//! The store passes the suite that every store must pass.

use crate::common::audit::Audit;
use abide_kernel::conformance::{Setup, Subject};
use abide_sqlite::{Options, Sqlite};

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
