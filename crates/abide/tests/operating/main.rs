//! The operations of an operator: cancel, describe, and repair.

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

mod cancelling;
mod describing;
mod families;
mod mending;

use abide::Signal;

pub const GO: Signal<()> = Signal::new("go");
