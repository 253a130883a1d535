//! Random small workflows are run without faults and with crashes, and come to the same, with the same history.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../common/mod.rs"]
mod common;

mod kit;
mod plan;
mod program;
mod rng;
mod snapshot;
mod stores;
