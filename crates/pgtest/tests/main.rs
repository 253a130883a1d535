//! The tests of the servers that other tests start.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bouncer;
mod killed;
mod pool;
mod server;
