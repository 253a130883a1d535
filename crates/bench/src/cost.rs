//! What a step costs: CPU time, statements, bytes of the log, updates that change no index.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use tokio_postgres::Client;

use crate::Result;
use crate::report::rounded;
use crate::site::{Databases, Site, connect};

/// Cost of a step. What cannot be read here is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// CPU seconds of this process in 10,000 steps. SQLite runs inside it.
    pub engine_cpu_s: Option<f64>,
    /// CPU seconds of all processes of the private PostgreSQL in 10,000 steps.
    pub database_cpu_s: Option<f64>,
    /// Statements, BEGIN and COMMIT among them.
    pub statements: Option<f64>,
    /// Bytes written to the write-ahead log.
    pub log_bytes: Option<f64>,
    /// Part of the updates that changed no index (HOT).
    pub hot_ratio: Option<f64>,
}

impl Cost {
    /// With no more digits than were measured.
    pub fn rounded(self) -> Self {
        Self {
            engine_cpu_s: self.engine_cpu_s.map(rounded),
            database_cpu_s: self.database_cpu_s.map(rounded),
            statements: self.statements.map(rounded),
            log_bytes: self.log_bytes.map(f64::round),
            hot_ratio: self.hot_ratio.map(rounded),
        }
    }
}

/// Adds up what the steps of several rounds cost.
///
/// Most is read before and after a round, which costs nothing meanwhile. Statements, and the log of SQLite, are counted
/// while they happen, so only in the first round, the one to warm up; everything else is of the other rounds.
pub struct Meter<'a> {
    site: &'a Site,
    first: Cell<Option<Sum>>,
    others: Cell<Option<Sum>>,
}

impl<'a> Meter<'a> {
    pub const fn new(site: &'a Site) -> Self {
        Self {
            site,
            first: Cell::new(None),
            others: Cell::new(None),
        }
    }

    /// The connection string of an empty store for a round.
    pub async fn fresh(&self) -> Result<String> {
        let url = self.site.fresh().await?;
        if let (Site::Postgres(databases), None) = (self.site, self.first.get()) {
            databases.count_statements(&url).await?;
        }
        Ok(url)
    }

    /// Waits until a store that was closed is left alone, so that what was done in it so far is not measured.
    pub async fn left_alone(&self, url: &str) -> Result<()> {
        match self.site {
            Site::Postgres(databases) => databases.left_alone(url).await,
            Site::Sqlite(_) => Ok(()),
        }
    }

    /// Begins to measure what is done in an open store.
    pub async fn begin(&self, url: &str) -> Result<Span<'_>> {
        let (postgres, log) = match self.site {
            Site::Postgres(databases) => (Some((databases, databases.admin().await?)), None),
            Site::Sqlite(_) => (None, self.first.get().is_none().then(|| Log::watch(url))),
        };
        let mut span = Span {
            meter: self,
            url: url.to_owned(),
            postgres,
            log: log.transpose()?,
            before: Counters::default(),
        };
        let mut before = Counters {
            updates: span.updates().await?,
            log: span.log.as_ref().map(|_| 0.0),
            ..Counters::default()
        };
        before.read(&span).await?;
        // Last, so that reading the others does not count.
        (before.engine, before.database) = span.cpu();
        span.before = before;
        Ok(span)
    }

    /// The cost of a step, over all rounds.
    pub fn cost(&self) -> Cost {
        let first = self.first.get().unwrap_or_default();
        let others = self.others.get().unwrap_or(first);
        let each = |sum: Sum, counted: Option<f64>| counted.map(|counted| counted / sum.steps);
        let cpu = |seconds| each(others, seconds).map(|seconds| seconds * 10_000.0);
        let updates = others.of.updates.filter(|(all, _)| *all > 0.0);
        Cost {
            engine_cpu_s: cpu(others.of.engine),
            database_cpu_s: cpu(others.of.database),
            // None: the server can count, but does not.
            statements: each(first, first.of.statements).filter(|count| *count > 0.0),
            log_bytes: each(others, others.of.log).or(each(first, first.of.log)),
            hot_ratio: updates.map(|(all, hot)| hot / all),
        }
    }
}

/// What was counted in rounds of so many steps.
#[derive(Clone, Copy, Default)]
struct Sum {
    steps: f64,
    of: Counters,
}

/// What is read before and after.
#[derive(Clone, Copy, Default)]
struct Counters {
    /// CPU seconds.
    engine: Option<f64>,
    database: Option<f64>,
    statements: Option<f64>,
    /// Bytes.
    log: Option<f64>,
    /// All, and those that were HOT.
    updates: Option<(f64, f64)>,
}

impl Counters {
    /// Reads what PostgreSQL counts at once.
    async fn read(&mut self, span: &Span<'_>) -> Result<()> {
        const WRITTEN: &str = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8";
        if let Some((databases, admin)) = &span.postgres {
            self.log = Some(admin.query_one(WRITTEN, &[]).await?.try_get(0)?);
            self.statements = databases.statements(&span.url).await?;
        }
        Ok(())
    }

    /// Each of these with its like.
    fn with(self, other: Self, both: impl Fn(f64, f64) -> f64) -> Self {
        let one = |a: Option<f64>, b: Option<f64>| Some(both(a?, b?));
        Self {
            engine: one(self.engine, other.engine),
            database: one(self.database, other.database),
            statements: one(self.statements, other.statements),
            log: one(self.log, other.log),
            updates: self
                .updates
                .zip(other.updates)
                .map(|(a, b)| (both(a.0, b.0), both(a.1, b.1))),
        }
    }
}

/// A round that is being measured.
pub struct Span<'a> {
    meter: &'a Meter<'a>,
    url: String,
    postgres: Option<(&'a Databases, Client)>,
    log: Option<Log>,
    before: Counters,
}

impl<'a> Span<'a> {
    /// Ends the round, in which so many steps were done. What connections report only when they close is still missing.
    pub async fn end(mut self, steps: u64) -> Result<Ended<'a>> {
        let (engine, database) = self.cpu();
        let mut after = Counters {
            engine,
            database,
            log: self.log.take().map(Log::bytes),
            ..Counters::default()
        };
        after.read(&self).await?;
        Ok(Ended {
            span: self,
            steps: steps as f64,
            after,
        })
    }

    fn cpu(&self) -> (Option<f64>, Option<f64>) {
        let server = self.postgres.as_ref().and_then(|(it, _)| it.pid());
        (cpu_s(std::process::id()), server.and_then(server_cpu_s))
    }

    /// Updates of abide's rows: all, and those that changed no index. Of connections that are still open, some are missing.
    async fn updates(&self) -> Result<Option<(f64, f64)>> {
        const UPDATES: &str = "select coalesce(sum(n_tup_upd), 0)::float8, \
            coalesce(sum(n_tup_hot_upd), 0)::float8 from pg_stat_user_tables where schemaname = 'abide'";
        if self.postgres.is_none() {
            return Ok(None);
        }
        let client = connect(&self.url).await?;
        let row = client.query_one(UPDATES, &[]).await?;
        Ok(Some((row.try_get(0)?, row.try_get(1)?)))
    }
}

/// A round that was measured, but for what its connections have not reported.
pub struct Ended<'a> {
    span: Span<'a>,
    steps: f64,
    after: Counters,
}

impl Ended<'_> {
    /// Adds the round to the others, once the store was closed.
    pub async fn closed(mut self) -> Result<()> {
        let Span { meter, before, .. } = self.span;
        if let Some((databases, _)) = &self.span.postgres {
            databases.left_alone(&self.span.url).await?;
            self.after.updates = self.span.updates().await?;
        }
        let round = Sum {
            steps: self.steps,
            of: self.after.with(before, |after, before| after - before),
        };
        match (meter.first.get(), meter.others.get()) {
            (None, _) => meter.first.set(Some(round)),
            (_, None) => meter.others.set(Some(round)),
            (_, Some(sum)) => meter.others.set(Some(Sum {
                steps: sum.steps + round.steps,
                of: sum.of.with(round.of, |sum, round| sum + round),
            })),
        }
        Ok(())
    }
}

/// CPU time of the threads of a process, in seconds; `None` where the system does not tell.
fn cpu_s(process: u32) -> Option<f64> {
    let mut nanos = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        // A thread may have ended meanwhile.
        if let Ok(text) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) {
            nanos += text.split_whitespace().next()?.parse::<f64>().ok()?;
        }
    }
    (nanos > 0.0).then_some(nanos / 1e9)
}

/// CPU time of a PostgreSQL: of its first process, of its children, and of those that have ended.
fn server_cpu_s(process: u32) -> Option<f64> {
    /// A second has so many ticks, on any Linux.
    const TICKS: f64 = 100.0;
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).ok();
    let children = read(&format!("task/{process}/children"))?;
    let children = children
        .split_whitespace()
        .filter_map(|child| cpu_s(child.parse().ok()?));
    // The name of the process, in parentheses, may have spaces; cutime and cstime are the 14th and 15th field after it.
    let stat = read("stat")?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let ended = fields.split_whitespace().skip(13).take(2);
    let ended: f64 = ended.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Some(cpu_s(process)? + children.sum::<f64>() + ended / TICKS)
}

/// Watches how SQLite's log grows. It starts over now and then, so its index, in which the number of its pages is, is looked at
/// so often that little is missed.
struct Log {
    done: Arc<AtomicBool>,
    watch: JoinHandle<f64>,
}

impl Log {
    fn watch(url: &str) -> Result<Self> {
        let path = url.strip_prefix("sqlite:").unwrap_or(url);
        let index = std::fs::File::open(format!("{path}-shm"))?;
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let watch = std::thread::spawn(move || {
            // Without an index there is no log, and nothing to add.
            let length = || log_length(&index).unwrap_or_default();
            let (mut bytes, mut last) = (0, length());
            while !is_done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                let now = length();
                bytes += now.checked_sub(last).unwrap_or(now);
                last = now;
            }
            bytes as f64
        });
        Ok(Self { done, watch })
    }

    /// Bytes that it has grown by since.
    fn bytes(self) -> f64 {
        self.done.store(true, Ordering::Relaxed);
        self.watch.join().unwrap_or_default()
    }
}

/// Bytes of the log that are in use, from the header of its index: the size of a page and the number of pages, each of which has
/// a header of its own (<https://sqlite.org/walformat.html>).
fn log_length(index: &std::fs::File) -> io::Result<u64> {
    const PAGE_HEADER: u64 = 24;
    let (mut page, mut pages) = ([0; 2], [0; 4]);
    index.read_exact_at(&mut page, 14)?;
    index.read_exact_at(&mut pages, 16)?;
    // 65,536 does not fit, and is written as 1.
    let page = match u16::from_ne_bytes(page) {
        1 => 65_536,
        page => u64::from(page),
    };
    Ok(u64::from(u32::from_ne_bytes(pages)) * (page + PAGE_HEADER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_time_of_a_process() {
        let before = cpu_s(std::process::id()).unwrap();
        // Ends only if it does.
        while cpu_s(std::process::id()).unwrap() < before + 0.01 {
            std::hint::black_box((0..100_000_u64).sum::<u64>());
        }
        assert_eq!(cpu_s(u32::MAX), None);
    }

    #[test]
    fn a_log_that_starts_over_is_counted_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.db");
        let db = crate::limits::open(&path).unwrap();
        db.execute_batch("create table t (x blob)").unwrap();
        let log = Log::watch(&format!("sqlite:{}", path.display())).unwrap();
        let page: u32 = db
            .query_row("pragma page_size", [], |row| row.get(0))
            .unwrap();
        for _ in 0..3 {
            db.execute_batch("insert into t values (zeroblob(1000000))")
                .unwrap();
            // Until the watch has surely seen it.
            std::thread::sleep(Duration::from_millis(100));
            db.query_row("pragma wal_checkpoint(restart)", [], |_| Ok(()))
                .unwrap();
        }
        let pages = log.bytes() / f64::from(page + 24);
        let least = 3.0 * 1_000_000.0 / f64::from(page);
        assert!(
            (least..least + 20.0).contains(&pages),
            "{pages} pages, not {least}"
        );
    }
}
