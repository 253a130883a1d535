//! The tests of the store, each on a database of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod common;

mod conformance;
mod contended;
mod encrypted;
mod events;
mod failover;
mod hanging;
mod housekeeping;
mod inbox;
mod interleavings;
mod lookback;
mod losses;
mod matrix;
mod migrations;
mod notices;
mod plans;
mod round_trips;
mod stepping;
mod store;
mod taken_keys;
#[cfg(feature = "tls")]
mod tls;
mod within;
