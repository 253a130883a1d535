//! The tests of the store behind a server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod common;

mod conformance;
mod encrypted;
mod engine;
#[path = "../../postgres/tests/tls/mod.rs"]
mod tls;
mod trouble;
