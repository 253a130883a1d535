//! The store passes the suite that every store must pass.

use crate::common::database;
use abide_kernel::conformance::{Setup, Subject};
use abide_postgres::{Options, Postgres};

async fn make(setup: Setup) -> Subject {
    let options = Options {
        clock: Some(setup.clock),
        limits: setup.limits,
        prepare: abide_postgres::Prepare::Always,
        ..Options::default()
    };
    Subject::new(Postgres::connect(&database(), options).await.unwrap())
}

abide_kernel::conformance_tests!(make);
