//! The store passes the suite that every store must pass.

use abide_kernel::conformance::{Setup, Subject};
use abide_postgres::{Options, Postgres};

async fn make(setup: Setup) -> Subject {
    let url = abide_pgtest::server().emptied_database(&abide_postgres::plan(0));
    let options = Options {
        clock: Some(setup.clock),
        limits: setup.limits,
        prepare: abide_postgres::Prepare::Always,
        ..Options::default()
    };
    Subject::new(Postgres::connect(&url, options).await.unwrap())
}

abide_kernel::conformance_tests!(make);
