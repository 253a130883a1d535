//! The tests of the library, on each store. Programs that are killed have a binary of their own: `killed`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[macro_use]
mod common;

mod children;
mod diagnostics;
mod differential;
mod events;
mod examples;
mod graphs;
mod kit;
mod lifecycle;
mod machines;
mod operating;
mod outages;
mod outbox;
mod pgbouncer;
mod queues;
mod races;
mod runs;
mod signals;
mod starting;
mod updates;
mod warnings;
mod within;
mod within_step;
mod within_workflow_step;
mod workflows;
