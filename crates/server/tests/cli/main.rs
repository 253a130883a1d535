//! The command line: the real binary, on a file, on PostgreSQL and on a server.

#[path = "../common/mod.rs"]
mod common;
mod lab;

mod helping;
mod listing;
mod looking;
mod maintaining;
mod sending;
mod showing;
mod starting;
mod watching;
