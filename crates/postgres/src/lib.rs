//! The PostgreSQL store of the abide durable-execution engine.
//!
//! [`Postgres`] keeps instances in a PostgreSQL database (14 or newer), in a schema called `abide` that it creates and
//! migrates itself. The kernel makes all decisions. This crate finds, locks and writes rows; each statement documents
//! what it guarantees, which index it uses and what it locks.
//!
//! The statements of a transaction are pipelined: a batch that loads, writes and commits takes two round trips. The
//! store works behind pgbouncer in transaction mode: no connection keeps state, and statements are [prepared](Prepare)
//! only on a direct connection to the server. Only [LISTEN](Listen) needs a connection that bypasses pgbouncer.
//!
//! `sslmode` in the URL determines encryption, with the same meaning as in libpq: by default a connection is encrypted
//! if the server supports it.
//!
//! Locks are taken in one order everywhere: keys by their lock number, event types by theirs, partitions by theirs,
//! then instances by id. A transaction never waits for a lock that it needs too late for this order: see `locks`. The
//! lock of an instance also covers its inbox.

mod around;
mod arrays;
mod begin;
mod cells;
mod census;
mod claim;
mod clock;
mod commands;
mod connect;
mod contracts;
mod counted;
mod documents;
mod error;
mod events;
mod find;
mod insert;
mod instances;
mod keys;
mod lineage;
mod load;
mod locks;
mod lookback;
mod migrate;
mod notify;
mod options;
mod outbox;
mod param;
mod partition;
mod pool;
mod prepared;
mod query;
mod read;
mod requests;
mod ssl;
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
