//! OUTBOX: a million requests that wait at once, against the first of them.

use std::time::{Duration, Instant};

use abide::{Abide, Machine as _};

use super::set;
use crate::args::Plan;
use crate::machines::{One, Order};
use crate::report::{Figure, Measured};
use crate::site::{Site, connect};
use crate::{Result, computer};

const REQUESTS: usize = 1_000_000;
/// Number of the first requests.
const FIRST: usize = 100_000;
/// Interval at which the requests that were taken are counted.
const INTERVAL: Duration = Duration::from_millis(50);
/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// Measured once: it takes longer than the rounds of most others.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let url = site.fresh().await?;
    let abide = Abide::open(&url).await?;
    let caller = Caller::connect(&url).await?;
    let (requests, first) = (plan.of(REQUESTS), plan.of(FIRST));
    caller.insert(requests).await?;
    let sync_ms = computer::sync_ms()?;
    let begun = Instant::now();
    // Without code, what is started stays as it is, and nothing but the outbox is measured.
    let engine = set(abide.engine()).without_code().start().await?;
    caller.until_taken(first, begun).await?;
    let early = first as f64 / begun.elapsed().as_secs_f64();
    caller.until_taken(requests, begun).await?;
    let all = requests as f64 / begun.elapsed().as_secs_f64();
    engine.shutdown().await;
    abide.close().await;
    let figure = Figure {
        sync_ms: Some(sync_ms),
        ..Figure::new(all, early, "requests/s")
    };
    Ok(figure.into())
}

/// A connection of an application that knows nothing of abide but a table.
enum Caller {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
}

impl Caller {
    async fn connect(url: &str) -> Result<Self> {
        Ok(match url.strip_prefix("sqlite:") {
            Some(path) => {
                let connection = rusqlite::Connection::open(path)?;
                connection.busy_timeout(PATIENCE)?;
                Self::Sqlite(connection)
            }
            None => Self::Postgres(connect(url).await?),
        })
    }

    /// Inserts so many requests, in one transaction.
    async fn insert(&self, requests: usize) -> Result<()> {
        let (machine, state) = (One::NAME, Order::json(0));
        let request = format!(r#"{{"start":{{"machine":"{machine}","state":{state}}}}}"#);
        match self {
            Self::Sqlite(caller) => caller.execute_batch(&format!(
                "insert into abide_outbox (request) with recursive n(i) as \
                 (select 1 union all select i + 1 from n where i < {requests}) select '{request}' from n"
            ))?,
            Self::Postgres(caller) => {
                let insert = format!(
                    "insert into abide.outbox (request) select '{request}' from generate_series(1, {requests})"
                );
                caller.batch_execute(&insert).await?;
            }
        }
        Ok(())
    }

    /// Waits until that many were taken: the first that is left tells, for they are numbered from 1 and taken in order.
    async fn until_taken(&self, requests: usize, begun: Instant) -> Result<()> {
        loop {
            let left = match self {
                Self::Sqlite(caller) => {
                    let first = "select min(id) from abide_outbox";
                    caller.query_row(first, [], |row| row.get::<_, Option<i64>>(0))?
                }
                Self::Postgres(caller) => {
                    let first = "select min(id) from abide.outbox";
                    caller.query_one(first, &[]).await?.try_get(0)?
                }
            };
            if left.is_none_or(|left| left > requests as i64) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the engine hangs: request {left:?} is the first left").into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
