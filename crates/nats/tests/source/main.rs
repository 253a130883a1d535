//! Messages of a real nats-server become events: none lost and none twice, whatever breaks on the way.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod lab;
mod server;
#[path = "../../../abide/tests/common/wait.rs"]
#[allow(dead_code)]
mod wait;

mod bodies;
mod breaking;
mod reading;
