//! Machines and jobs: what a step may answer, what happens when it fails, and what is remembered of it.

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

mod attribute;
mod checks;
mod context;
mod deploys;
mod errors;
mod jobs;
mod outcomes;
mod own_policies;
mod retries;
mod storing;
mod time_limits;
