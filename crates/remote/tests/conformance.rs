//! A store behind a server passes the suite that every store must pass.

use std::sync::Arc;

use crate::common::{CALLER, Server};
use abide_kernel::conformance::{Setup, Subject};
use abide_kernel::memory::Memory;
use abide_remote::{Options, Remote};

async fn make(setup: Setup) -> Subject {
    let store = Memory::new(setup.clock.clone(), setup.limits);
    let server = Server::of(Arc::new(store)).await;
    let options = Options {
        clock: Some(setup.clock),
        ..Options::default()
    };
    let remote = Remote::connect(&server.url(), options).await.unwrap();
    Subject::of(remote).known_as(CALLER).with(server)
}

abide_kernel::conformance_tests!(make);
