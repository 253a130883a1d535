//! Queues: which worker runs which instance, when, and beside which others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod concurrency;
mod order;
mod partitions;
mod run_ahead;
mod sharing;
mod versions;
