//! Graphs: tasks and waits as data.

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

mod attempts;
mod building;
mod ends;
mod keeping;
mod old_runs;
mod recorded;
mod running;
mod steps;
