//! IDLE: how many statements an engine sends that has nothing to do.

use std::time::Duration;

use abide::Abide;
use abide::client::new_start;
use abide::time::days;

use super::{engine, start_all};
use crate::Result;
use crate::args::Plan;
use crate::machines::{One, Order};
use crate::report::{Figure, Measured};
use crate::site::{COUNTER, Databases, Site};

/// Time during which statements are counted: two leases' worth of heartbeats, and several polls.
const COUNTED: Duration = Duration::from_secs(20);
/// Time for the engine to come to rest.
const SETTLING: Duration = Duration::from_secs(2);
/// Statements a second that are allowed.
const ALLOWED: f64 = 5.0;
/// Number of instances that wait in the store meanwhile, scheduled for much later.
const SCHEDULED: usize = 1_000;

pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    match site {
        Site::Postgres(databases) => on_postgres(site, databases, plan).await,
        Site::Sqlite(_) => Ok(Measured::Skipped(
            "SQLite runs inside the process, and nothing outside of it counts its statements"
                .to_owned(),
        )),
    }
}

async fn on_postgres(site: &Site, databases: &Databases, plan: &Plan) -> Result<Measured> {
    let url = site.fresh().await?;
    databases.count_statements(&url).await?;
    let Some(_) = databases.statements(&url).await? else {
        return Ok(Measured::Skipped(format!(
            "the server has no {COUNTER}: install PostgreSQL's contrib package, or preload the library"
        )));
    };

    let abide = Abide::open(&url).await?;
    let far = |order| new_start(One, Order::new(order)).delay(days(365));
    start_all(&abide, SCHEDULED, far).await?;
    let engine = engine(&abide, One).await?;
    tokio::time::sleep(plan.time(SETTLING)).await;
    let before = databases.statements(&url).await?.unwrap_or_default();
    tokio::time::sleep(plan.time(COUNTED)).await;
    let counted = databases.statements(&url).await?.unwrap_or_default() - before;
    engine.shutdown().await;
    abide.close().await;
    let rate = counted / plan.time(COUNTED).as_secs_f64();
    Ok(Figure::new(rate, ALLOWED, "statements/s").into())
}
