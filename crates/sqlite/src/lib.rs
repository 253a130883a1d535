//! The SQLite store of abide: one file, one thread that writes, and as many instances as the disk holds.
//!
//! ```
//! use abide_core::model::{Json, Name, Start};
//! use abide_kernel::{Op, Store};
//! use abide_sqlite::{Options, Sqlite};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("app.db");
//! # runtime.block_on(async {
//! let store = Sqlite::open(&path, Options::default())?;
//! let start = Op::Start(vec![Start::of(Name::new("checkout")?, Json::null())]);
//! store.run([start].into()).await?;                  // on the disk
//! store.close().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - Writing: [`Sqlite`] sends operations to a thread that owns the only writing connection. The thread folds all
//!   waiting operations into one transaction, so that many callers share one sync of the disk, and answers when that is
//!   durable.
//! - Reading: a few threads with connections of their own. They see committed data and do not block the writer.
//! - Waking: commits of this process notify waiting tasks directly. Commits of others (another process, or your own
//!   connection, see [`run_within`]) are noticed by checking the log file fifty times a second.
//!
//! The tables are named `abide_…` and may be in one file with your own tables. Any number of processes may open one
//! file.

mod cache;
mod cells;
mod columns;
mod error;
mod exclusive;
mod log;
mod open;
mod options;
mod poison;
mod read;
mod schema;
mod session;
mod sql;
mod step;
mod store;
mod watch;
mod within;
mod writer;

#[cfg(test)]
mod million_tests;
#[cfg(test)]
mod plans_tests;
#[cfg(test)]
mod writer_tests;

pub use options::{Options, Synchronous};
pub use rusqlite;
pub use schema::{Migration, migrations, plan, schema_version};
pub use step::StepTransaction;
pub use store::Sqlite;
pub use within::run_within;
