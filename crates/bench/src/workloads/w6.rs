//! W6: growth, as rows that have ended or are due later, and as row versions that an old snapshot holds.

use std::time::{Duration, Instant};

use abide::client::new_start;
use abide::time::days;
use abide::{Abide, InstanceId};
use tokio_postgres::Client;

use super::load::{Target, open_loop, percentile_ms};
use super::{engine, start_all, w1};
use crate::Result;
use crate::args::Plan;
use crate::cost::Meter;
use crate::machines::{One, Order};
use crate::report::{Figure, Measured};
use crate::rounds::middle;
use crate::site::{Site, connect};

/// One scheduled row for so many finished ones.
const SCHEDULED: usize = 10;

/// W1 beside many rows, against W1 alone.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let grown = site.fresh().await?;
    let (finished, scheduled) = fill(&grown, plan.of(plan.grown)).await?;
    let (meter, alone) = (Meter::new(site), Meter::new(site));
    let limit = async || w1::rate(&alone, &alone.fresh().await?, plan).await;
    let ours = async || w1::rate(&meter, &grown, plan).await;
    let round = middle(plan, limit, ours).await?;
    let figure = round.figure("instances/s").cost(&meter);
    let figure = figure.detail("finished", finished as f64, "rows");
    Ok(figure.detail("scheduled", scheduled as f64, "rows").into())
}

/// Fills a store with so many finished instances and fewer scheduled ones, and answers how many those are.
///
/// abide makes one of each kind; the others are copies of it and of its history, made by SQL.
async fn fill(url: &str, finished: usize) -> Result<(usize, usize)> {
    let scheduled = finished / SCHEDULED;
    let abide = Abide::open(url).await?;
    let engine = engine(&abide, One).await?;
    let one = abide.start(One, Order::new(0)).await?;
    one.result().await?;
    engine.shutdown().await;
    let later = abide.start(One, Order::new(0)).delay(days(365)).await?;
    let ids = [(one.id(), finished), (later.id(), scheduled)];
    abide.close().await;
    let mut rows = Rows::open(url).await?;
    for (model, copies) in ids {
        rows.copy(model, copies).await?;
    }
    Ok((finished + 1, scheduled + 1))
}

/// A connection to the tables of abide.
enum Rows {
    Postgres(Client),
    Sqlite(rusqlite::Connection),
}

impl Rows {
    async fn open(url: &str) -> Result<Self> {
        Ok(match url.strip_prefix("sqlite:") {
            Some(path) => Self::Sqlite(crate::limits::open(path.as_ref())?),
            None => Self::Postgres(connect(url).await?),
        })
    }

    /// Adds copies of a row and of its history. They end, or are due, one after the other.
    async fn copy(&mut self, model: InstanceId, copies: usize) -> Result<()> {
        /// Number of rows of one transaction.
        const BATCH: usize = 100_000;
        let (instances, history, from, columns) = match self {
            Self::Postgres(_) => (
                "abide.instances",
                "abide.history",
                "generate_series(1, {N}) as n(i)",
                "select attname::text from pg_attribute where attrelid = 'abide.instances'::regclass \
                    and attnum > 0 and not attisdropped and attgenerated = '' and attname <> 'id'",
            ),
            Self::Sqlite(_) => (
                "abide_instances",
                "abide_history",
                "(with recursive n(i) as (select 1 union all select i + 1 from n where i < {N}) select i from n) as n",
                "select name from pragma_table_info('abide_instances') where name <> 'id'",
            ),
        };
        let columns = self.texts(columns).await?;
        let millisecond = match self {
            Self::Postgres(_) => "interval '1 ms'",
            Self::Sqlite(_) => "1000",
        };
        let values = columns.iter().map(|name| match name.as_str() {
            "finished_at" | "due_at" | "wake_at" => format!("{name} - n.i * {millisecond}"),
            _ => name.clone(),
        });
        let (values, columns) = (values.collect::<Vec<_>>().join(", "), columns.join(", "));
        for first in (0..copies).step_by(BATCH) {
            let from = from.replace("{N}", &BATCH.min(copies - first).to_string());
            let last = self
                .texts(&format!("select cast(max(id) as text) from {instances}"))
                .await?;
            let (last, model) = (last.first().ok_or("there are no rows")?, model.0);
            self.run(&format!(
                "insert into {instances} ({columns}) select {values} from {instances}, {from} where id = {model}; \
                insert into {history} (instance_id, seq, at, events) select i.id, h.seq, h.at, h.events \
                from {instances} i, {history} h where i.id > {last} and h.instance_id = {model}"
            ))
            .await?;
        }
        // What filling has left to do is not what is measured.
        match self {
            Self::Postgres(client) => {
                client.batch_execute("vacuum analyze").await?;
                client.batch_execute("checkpoint").await?;
            }
            Self::Sqlite(conn) => {
                conn.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?
            }
        }
        Ok(())
    }

    async fn run(&mut self, statements: &str) -> Result<()> {
        match self {
            Self::Postgres(client) => client.batch_execute(statements).await?,
            Self::Sqlite(conn) => {
                let transaction = conn.transaction()?;
                transaction.execute_batch(statements)?;
                transaction.commit()?;
            }
        }
        Ok(())
    }

    /// The first column of what a query finds.
    async fn texts(&self, query: &str) -> Result<Vec<String>> {
        match self {
            Self::Postgres(client) => {
                let rows = client.query(query, &[]).await?;
                Ok(rows
                    .iter()
                    .map(|row| row.try_get(0))
                    .collect::<std::result::Result<_, _>>()?)
            }
            Self::Sqlite(conn) => {
                let mut query = conn.prepare(query)?;
                Ok(query
                    .query_map([], |row| row.get(0))?
                    .collect::<rusqlite::Result<_>>()?)
            }
        }
    }

    /// Takes a snapshot, and holds it until this is dropped.
    async fn hold(&self) -> Result<()> {
        match self {
            Self::Postgres(client) => {
                let hold =
                    "begin isolation level repeatable read; select count(*) from abide.machines";
                client.batch_execute(hold).await?;
            }
            Self::Sqlite(conn) => {
                conn.execute_batch("begin; select count(*) from abide_machines")?;
            }
        }
        Ok(())
    }
}

/// Instances that are started in the background, in a second and at a time.
const LOAD: f64 = 2_000.0;
const BATCH: usize = 100;
/// Calls of each kind that are timed in a second.
const PROBES: f64 = 50.0;
/// Parts that the time is divided into.
const PARTS: u32 = 8;

/// How long claims and signals take while another session holds a snapshot, against before.
pub async fn held(site: &Site, plan: &Plan) -> Result<Measured> {
    let url = site.fresh().await?;
    let target = Target::open(&url).await?;
    let abide = target.abide.clone();
    let load = tokio::spawn(async move {
        let mut next = tokio::time::interval(Duration::from_secs_f64(BATCH as f64 / LOAD));
        loop {
            next.tick().await;
            start_all(&abide, BATCH, |order| new_start(One, Order::new(order))).await?;
        }
        #[expect(unreachable_code, reason = "it says what the errors are")]
        Result::Ok(())
    });
    let part = plan.time(plan.held) / PARTS;
    probe(&target, part).await?;
    let before = probe(&target, part).await?;
    let holder = Rows::open(&url).await?;
    holder.hold().await?;
    let begun = Instant::now();
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        parts.push(probe(&target, part).await?);
    }
    let held = begun.elapsed();
    if load.is_finished() {
        load.await??;
        return Err("the load has ended".into());
    }
    load.abort();
    drop(holder);
    target.close().await;
    let last = parts.last().ok_or("nothing was measured")?;
    let figure = |part, of: fn(&[f64; 2]) -> f64| {
        let mut figure = Figure {
            part,
            ..Figure::new(of(last), of(&before), "ms")
        };
        for (number, median) in (1..).zip(&parts) {
            let after = held.as_secs_f64() * f64::from(number) / f64::from(PARTS);
            figure = figure.detail(format!("after {after:.1} s"), of(median), "ms");
        }
        figure
    };
    Ok(Measured::Figures(vec![
        figure("claim", |medians| medians[0]),
        figure("deliver", |medians| medians[1]),
    ]))
}

/// The medians of a while: from a start to its committed step, and from a signal to the running step.
async fn probe(target: &Target, time: Duration) -> Result<[f64; 2]> {
    let calls = (PROBES * time.as_secs_f64()).ceil() as usize;
    let starts = open_loop(PROBES, calls, target.start());
    let signals = open_loop(PROBES, calls, target.signal());
    let (starts, signals) = tokio::try_join!(starts, signals)?;
    Ok([&starts, &signals].map(|took| percentile_ms(took, 50.0)))
}
