//! The command line: the real binary, on a file, on PostgreSQL and on a server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what cannot be set up must fail the test"
)]

#[path = "../common/mod.rs"]
mod common;
mod lab;

#[cfg(feature = "demo")]
mod demo;
mod helping;
mod listing;
mod looking;
mod maintaining;
mod outbox;
mod resuming;
mod sending;
mod showing;
mod starting;
mod watching;
mod wording;
