//! Workflows as code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod cancelling;
mod children;
mod conditions;
mod continuing;
mod limits;
mod processes;
mod sagas;
mod signals;
mod smoke;
mod timers;
mod updates;
