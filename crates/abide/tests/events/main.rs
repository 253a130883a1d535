//! Events: published once, and delivered to the inbox of every instance that waits for them.

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
