//! Events: published once, and in the inbox of everyone who waits for just that.

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

mod coding;
mod first;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod inside;
mod unattended;
mod waiting;
mod waits;
