//! The PostgreSQL store of the abide durable-execution engine.
//!
//! [`Postgres`] keeps instances in a PostgreSQL database (14 or newer), in a schema called `abide` that it creates and
//! migrates itself. What follows from what is decided elsewhere, in the kernel; here is how rows are found, locked and
//! written, each statement with its promise, the index it uses and what it locks.
//!
//! A transaction's statements are pipelined: a batch that loads, writes and commits takes two round trips. It works
//! behind pgbouncer in transaction mode: no connection keeps state, and statements are [prepared](Prepare) only where the
//! server itself was connected to; only [LISTEN](Listen) needs a way past it.
//!
//! With `sslmode=require` (or `verify-full`) in the URL a connection is encrypted, and the server's certificate and name
//! are checked; without it, it is not.
//!
//! Locks are taken in one order everywhere: keys by their number, types of events by theirs, partitions by the number of
//! their lock, then instances by id. What is met too late for that is never waited for: see `locks`. Who has locked an
//! instance has its inbox.

mod begin;
mod cells;
mod claim;
mod clock;
mod commands;
mod connect;
mod contracts;
mod documents;
mod error;
mod events;
mod find;
mod insert;
mod keys;
mod lineage;
mod load;
mod locks;
mod lookback;
mod migrate;
mod notify;
mod options;
mod param;
mod partition;
mod pool;
mod read;
mod requests;
#[doc(hidden)]
pub mod statements;
mod step;
mod store;
mod sweep;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod txn;
mod verbs;
mod waiters;
mod within;
mod workers;
mod write;
mod writer;

pub use migrate::{Migration, migrations, plan, schema_version};
pub use options::{Listen, Options, Prepare};
pub use step::StepTransaction;
pub use store::Postgres;
pub use timeouts::Timeouts;
pub use within::run_within;

pub use tokio_postgres;
