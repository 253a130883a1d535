//! The tests of the kernel that need no database. The simulation has a binary of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod committer;
mod conformance;
mod packs;
