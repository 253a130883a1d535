//! The tests of the store, each on a file of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod common;

mod conformance;
mod disk;
mod events;
mod housekeeping;
mod inbox;
mod lookback;
mod opening;
mod remembering;
mod starting;
mod watching;
mod within;
mod workflows;
mod writing;
