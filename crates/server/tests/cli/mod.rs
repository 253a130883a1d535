//! The command line: the real binary, on a file, on PostgreSQL and on a server.

mod lab;

#[cfg(feature = "demo")]
mod demo;
mod helping;
mod listing;
mod looking;
mod maintaining;
mod outbox;
mod resuming;
mod sending;
mod showing;
mod starting;
mod watching;
mod wording;
