//! The database's own limit: hand-written statements and nothing else.

pub mod inbox;
mod postgres;
mod sqlite;

use abide::InstanceId;

use crate::Result;
use crate::site::Site;

/// Number of rows that are claimed, and that are completed, in one transaction.
const BATCH: usize = 200;

/// Number of rows that one measurement of the drain goes through.
const DRAINED: usize = 20_000;

/// A queue that is a plain table: what claiming and completing cost when nothing else is done.
pub enum Queue {
    Postgres(postgres::Queue),
    Sqlite(sqlite::Queue),
}

impl Queue {
    /// An empty one, beside the stores of abide.
    pub async fn create(site: &Site) -> Result<Self> {
        match site {
            Site::Postgres(_) => Ok(Self::Postgres(
                postgres::Queue::create(&site.fresh().await?).await?,
            )),
            Site::Sqlite(files) => Ok(Self::Sqlite(sqlite::Queue::create(&files.fresh())?)),
        }
    }

    /// Fills it, and answers how many rows a second are claimed and completed until it is empty.
    pub async fn drain(&mut self) -> Result<f64> {
        let (drained, took) = match self {
            Self::Postgres(queue) => queue.drain().await?,
            Self::Sqlite(queue) => queue.drain()?,
        };
        if drained != DRAINED {
            return Err(format!("{DRAINED} rows were there to drain, and {drained} were").into());
        }
        Ok(drained as f64 / took.as_secs_f64())
    }
}

/// Rows inserted by hand into the table of abide's own store.
pub enum Inserts {
    Postgres(postgres::Inserts),
    Sqlite(sqlite::Inserts),
}

impl Inserts {
    /// Rows like that of an instance which abide has started, but for their state.
    pub async fn like(url: &str, model: InstanceId) -> Result<Self> {
        match url.strip_prefix("sqlite:") {
            Some(path) => Ok(Self::Sqlite(sqlite::Inserts::like(path.as_ref(), model)?)),
            None => Ok(Self::Postgres(postgres::Inserts::like(url, model).await?)),
        }
    }

    /// Inserts instances with these states in one transaction.
    pub async fn insert(&mut self, states: &[String]) -> Result<()> {
        match self {
            Self::Postgres(inserts) => inserts.insert(states).await,
            Self::Sqlite(inserts) => inserts.insert(states),
        }
    }
}
