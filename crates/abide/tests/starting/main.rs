//! Starting instances, finding them again, and waiting for what they come to.

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

mod batches;
mod keys;
mod opening;
mod reading;
mod results;
mod taken_keys;
mod timing;
