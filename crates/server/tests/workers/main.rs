//! Workers over HTTP, against the real binary, over SQLite and over PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what cannot be set up must fail the test"
)]

#[path = "../common/mod.rs"]
mod common;

mod claims;
mod clocks;
mod deploys;
mod graphs;
mod idle;
mod kit;
mod large;
mod leases;
mod machines;
mod outcomes;
mod polling;
mod servers;
mod taken_keys;
