//! The tests of the real binary: its command line, its routes, its workers, and how it starts, serves and ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod common;

mod cli;
mod http;
mod server;
mod workers;
