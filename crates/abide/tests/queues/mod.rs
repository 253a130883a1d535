//! Queues: which worker runs which instance, when, and beside which others.

mod concurrency;
mod order;
mod partitions;
mod run_ahead;
mod sharing;
mod versions;
