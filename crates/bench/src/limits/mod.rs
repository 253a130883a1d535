//! The database's own limit: hand-written statements and nothing else.

pub mod inbox;
mod postgres;
mod sqlite;

pub use sqlite::open;

use abide::InstanceId;

use crate::Result;
use crate::args::Plan;
use crate::site::Site;

/// Number of rows that are claimed, and that are completed, in one transaction.
const BATCH: usize = 200;

/// Number of rows that one measurement of the drain goes through.
const DRAINED: usize = 20_000;

/// Rows a second that are claimed and completed in a queue that is a plain table: what that costs when nothing else is done.
/// The table is a fresh one each time: what earlier rounds left behind would slow down the later ones.
pub async fn drain(site: &Site, plan: &Plan) -> Result<f64> {
    let rows = plan.of(DRAINED);
    let (drained, took) = match site {
        Site::Postgres(_) => {
            let queue = postgres::Queue::create(&site.fresh().await?).await?;
            queue.drain(rows).await?
        }
        Site::Sqlite(files) => sqlite::Queue::create(&files.fresh())?.drain(rows)?,
    };
    if drained != rows {
        return Err(format!("{rows} rows were there to drain, and {drained} were").into());
    }
    Ok(drained as f64 / took.as_secs_f64())
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
