//! IDLE: how many statements an engine sends that has nothing to do.

use std::time::Duration;

use abide::Abide;
use abide::client::new_start;
use abide::time::days;
use tokio_postgres::Client;

use super::engine;
use crate::Result;
use crate::machines::{One, Order};
use crate::site::{Databases, Site};
use crate::table::{Floor, Measured};

/// Time during which statements are counted: two leases' worth of heartbeats, and several polls.
const COUNTED: Duration = Duration::from_secs(20);
/// Time for the engine to come to rest.
const SETTLING: Duration = Duration::from_secs(2);
/// Statements a second that are allowed.
const ALLOWED: f64 = 5.0;
/// Number of instances that wait in the store meanwhile, scheduled for much later.
const SCHEDULED: u64 = 1_000;

/// Extension that counts statements in PostgreSQL.
const COUNTER: &str = "pg_stat_statements";

pub async fn run(site: &Site) -> Result<Measured> {
    match site {
        Site::Postgres(databases) => on_postgres(site, databases).await,
        Site::Sqlite(_) => Ok(Measured::Skipped(
            "SQLite runs inside the process, and nothing outside of it counts its statements"
                .to_owned(),
        )),
    }
}

async fn on_postgres(site: &Site, databases: &Databases) -> Result<Measured> {
    if !databases.preload(COUNTER).await? {
        return Ok(Measured::Skipped(format!(
            "the server has no {COUNTER}: install PostgreSQL's contrib package, or preload the library"
        )));
    }
    let url = site.fresh().await?;
    let counter = databases.admin().await?;
    let create = format!("create extension if not exists {COUNTER}");
    counter.batch_execute(&create).await?;

    let abide = Abide::open(&url).await?;
    let far = |order| new_start(One, Order::new(order)).delay(days(365));
    for started in abide.start_all((0..SCHEDULED).map(far)).await? {
        started?;
    }
    let engine = engine(&abide, One).await?;
    tokio::time::sleep(SETTLING).await;
    let before = statements(&counter, &url).await?;
    tokio::time::sleep(COUNTED).await;
    let counted = statements(&counter, &url).await? - before;
    engine.shutdown().await;
    abide.close().await;
    Ok(Measured::Figures {
        ours: counted / COUNTED.as_secs_f64(),
        limit: ALLOWED,
        unit: "statements/s",
        sync_ms: None,
        floor: Floor::AtMost(1.0),
    })
}

/// Number of statements that the database of a URL has run so far, BEGIN, COMMIT and the like among them.
async fn statements(counter: &Client, url: &str) -> Result<f64> {
    let config: tokio_postgres::Config = url.parse()?;
    let database = config.get_dbname().unwrap_or_default();
    let count = "select coalesce(sum(s.calls), 0)::float8 from pg_stat_statements s \
        join pg_database d on d.oid = s.dbid where d.datname = $1";
    Ok(counter.query_one(count, &[&database]).await?.try_get(0)?)
}
