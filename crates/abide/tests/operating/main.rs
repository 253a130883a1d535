//! What an operator does: cancel, look, and put right what was broken.

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
mod families;
mod looking;
mod mending;

use abide::Signal;

pub const GO: Signal<()> = Signal::new("go");
