//! Workflows as code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod smoke;
