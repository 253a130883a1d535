//! Starts, signals, events and cancellations in your own [sqlx] transaction, on PostgreSQL and on SQLite.
//!
//! Each request is a row of abide's outbox. It commits with your rows, or not at all; an engine or a server that has the
//! database open carries it out after it has committed, exactly once, and in the order in which you inserted it. A refused
//! request is recorded, and `abide outbox` lists it.
//!
//! ```no_run
//! # async fn place(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = pool.begin().await?;
//! sqlx::query("insert into orders (id) values (42)").execute(&mut *transaction).await?;
//! abide_sqlx::start("checkout", &100)?.key("order:42")?.insert(&mut *transaction).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! It works with sqlx 0.8.6 and 0.9, and must use the same release as your program. Cargo picks 0.9 for it; if your program has
//! 0.8, run `cargo update sqlx@0.9 --precise 0.8.6` once.

mod database;
mod request;

pub use abide_core::model::{
    CancelRequest, Children, InstanceId, Key, Name, OutboxRequest, Policy, Publish, Refusal, Scope,
    SignalRequest, SignalWithStartRequest, StartRequest, Target, Timestamp,
};
pub use database::Outbox;
pub use request::{
    Cancel, Event, IntoTarget, Signal, Start, cancel, publish, signal, start, start_graph,
};

/// The reason why a request could not be made or inserted. After a failed insert the transaction can only be rolled back.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name, a key or the request is invalid.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A value cannot be written as JSON.
    #[error("the value cannot be written as JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The database refused the row, or cannot be reached.
    #[error("the request could not be inserted: {0}")]
    Database(#[from] sqlx::Error),
}

abide_core::debug_is_display!(Error);

/// Inserts a request unchanged: one that was parsed, or built by other means.
///
/// Errors: [`Database`](Error::Database) when the row is not inserted.
pub async fn insert<'e, E>(request: &OutboxRequest, executor: E) -> Result<(), Error>
where
    E: sqlx::Executor<'e>,
    E::Database: Outbox,
{
    let request = serde_json::to_string(request)?;
    Ok(E::Database::insert(executor, request).await?)
}
