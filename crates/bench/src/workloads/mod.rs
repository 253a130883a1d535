//! The workloads, each measured against its limit.

pub mod cache;
mod disk;
mod due;
pub mod http;
mod idle;
mod load;
pub mod memory;
mod outbox;
mod replay;
mod start;
mod w1;
mod w2;
mod w2f;
pub mod w3a;
mod w3b;
mod w4;
mod w5;
mod w6;
mod w7;
pub mod w8;

use std::time::{Duration, Instant};

use abide::client::StartBuilder;
use abide::engine::{Engine, EngineBuilder};
use abide::machine::Definition;
use abide::{Abide, Machine};

use crate::Result;
use crate::args::Plan;
use crate::cost::Meter;
use crate::report::{Floor, Measured};
use crate::site::{Site, Store};

/// Number of steps that the engine runs at once.
pub const CONCURRENCY: usize = 2_000;
/// Maximum number of outcomes, and of claims, that the engine puts into one transaction.
pub const BATCH: usize = 500;

/// Interval at which the counters of an engine are read while it works.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    W1,
    W2,
    W2Flow,
    Start,
    W3a,
    W3aBetween,
    W3b,
    W3bMany,
    W3bDone,
    Http,
    W4Size,
    W4Batch,
    W5,
    W6,
    Held,
    W7,
    W8,
    Disk,
    Cache,
    Memory,
    Outbox,
    Idle,
    Due,
    Replay,
    ReplayStored,
}

impl Workload {
    /// All of them, in the order in which they are measured.
    pub const ALL: &'static [Self] = &[
        Self::W1,
        Self::W2,
        Self::W2Flow,
        Self::Start,
        Self::W3a,
        Self::W3aBetween,
        Self::W3b,
        Self::W3bMany,
        Self::W3bDone,
        Self::Http,
        Self::W4Size,
        Self::W4Batch,
        Self::W5,
        Self::W6,
        Self::Held,
        Self::W7,
        Self::W8,
        Self::Disk,
        Self::Cache,
        Self::Memory,
        Self::Outbox,
        Self::Due,
        Self::Replay,
        Self::ReplayStored,
        Self::Idle,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::W1 => "W1",
            Self::W2 => "W2",
            Self::W2Flow => "W2F",
            Self::Start => "START",
            Self::W3a => "W3a",
            Self::W3aBetween => "W3a-2",
            Self::W3b => "W3b",
            Self::W3bMany => "W3b-1k",
            Self::W3bDone => "W3b-done",
            Self::Http => "HTTP",
            Self::W4Size => "W4-size",
            Self::W4Batch => "W4-batch",
            Self::W5 => "W5",
            Self::W6 => "W6",
            Self::Held => "W6-held",
            Self::W7 => "W7",
            Self::W8 => "W8",
            Self::Disk => "DISK",
            Self::Cache => "CACHE",
            Self::Memory => "MEM",
            Self::Outbox => "OUTBOX",
            Self::Due => "DUE",
            Self::Idle => "IDLE",
            Self::Replay => "REPLAY",
            Self::ReplayStored => "REPLAY-db",
        }
    }

    /// Description of the measurement and of its limit.
    pub const fn about(self) -> &'static str {
        match self {
            Self::W1 => "10,000 instances of one step, against rows claimed and completed by hand",
            Self::W2 => {
                "steps of 1,000 instances of ten, against rows claimed and completed by hand"
            }
            Self::W2Flow => "steps of 1,000 workflows of ten, against the same steps as a machine",
            Self::Start => "instances started 1,000 at a time, against rows inserted by hand",
            Self::W3a => {
                "median from a signal to the running step, against a commit of two rows and a task that is notified"
            }
            Self::W3aBetween => {
                "the same between two processes, against a commit of two rows and LISTEN/NOTIFY"
            }
            Self::W3b => {
                "20,000 parked instances signalled by 64 callers, against rows inserted and updated by hand, 200 at a time"
            }
            Self::W3bMany => "the same by 1,000 callers",
            Self::W3bDone => {
                "20,000 parked instances signalled by 64 callers until all are done, against how fast signals are accepted"
            }
            Self::Http => {
                "20,000 parked instances signalled over 64 connections to a server, against 64 callers of the library"
            }
            Self::W4Size => {
                "median of an event that matches one of many waiters (--waiters), against one of 1,000"
            }
            Self::W4Batch => {
                "events published 200 at a time, each for one of 20,000 waiters, against signals by hand, as in W3b"
            }
            Self::W5 => "children of 100 parents with 1,000 each, joined, against W1",
            Self::W6 => "W1 beside finished and scheduled rows (--grown), against W1 alone",
            Self::Held => {
                "median from a start to its committed step, and from a signal to its step, at the end of a time in which a snapshot is held (--held), against before"
            }
            Self::W7 => {
                "from a start to its committed step, and from a signal to its step, at half of the highest rate"
            }
            Self::W8 => {
                "40,000 instances of one step run by eight engines in processes of their own, against one"
            }
            Self::Disk => "bytes on disk of a finished instance of one step, with its history",
            Self::Cache => "resident memory of a waiting workflow whose code is kept",
            Self::Memory => "resident memory of an idle engine over 1,000,000 scheduled instances",
            Self::Outbox => {
                "1,000,000 requests of the outbox that wait at once, against the first 100,000 of them"
            }
            Self::Due => "how late a due time is met on an idle engine, the worst of 20",
            Self::Idle => "statements that an idle engine sends",
            Self::Replay => "10,000 recorded steps of a workflow replayed in memory",
            Self::ReplayStored => {
                "the same by an engine that has just started: read, replayed, and on to the next step"
            }
        }
    }

    /// The ratio that is wanted where a sync of the disk takes less than a quarter of a millisecond.
    pub const fn floor(self, store: Store) -> Floor {
        use Floor::{AtLeast, AtMost};
        let (postgres, sqlite) = match self {
            Self::W1 => (AtLeast(0.75), AtLeast(0.6)),
            Self::W2 => (AtLeast(1.2), AtLeast(0.75)),
            Self::W2Flow => (AtLeast(0.85), AtLeast(0.75)),
            Self::Start | Self::W3bDone | Self::Outbox => (AtLeast(0.5), AtLeast(0.5)),
            Self::W3a => (AtMost(1.4), AtMost(1.5)),
            Self::W3aBetween => (AtMost(1.8), AtMost(1.8)),
            Self::W3b => (AtLeast(0.4), AtLeast(0.4)),
            Self::W3bMany => (AtLeast(0.7), AtLeast(0.6)),
            Self::Http => (AtLeast(0.8), AtLeast(0.7)),
            Self::W4Size => (AtMost(1.5), AtMost(1.5)),
            Self::W4Batch => (AtLeast(0.35), AtLeast(0.35)),
            Self::W5 => (AtLeast(0.6), AtLeast(0.6)),
            Self::W6 => (AtLeast(0.9), AtLeast(0.9)),
            Self::Held => (AtMost(1.5), AtMost(1.5)),
            Self::W8 => (AtLeast(0.8), AtLeast(0.8)),
            Self::W7 | Self::Disk | Self::Cache => (AtMost(1.0), AtMost(1.0)),
            Self::Memory | Self::Due | Self::Idle | Self::Replay | Self::ReplayStored => {
                (AtMost(1.0), AtMost(1.0))
            }
        };
        match store {
            Store::Postgres => postgres,
            Store::Sqlite => sqlite,
        }
    }

    pub async fn run(self, site: &Site, plan: &Plan) -> Result<Measured> {
        match self {
            Self::W1 => w1::run(site, plan).await,
            Self::W2 => w2::run(site, plan).await,
            Self::W2Flow => w2f::run(site, plan).await,
            Self::Start => start::run(site, plan).await,
            Self::W3a => w3a::run(site, plan).await,
            Self::W3aBetween => w3a::between(site, plan).await,
            Self::W3b => w3b::run(site, plan, 64).await,
            Self::W3bMany => w3b::run(site, plan, 1_000).await,
            Self::W3bDone => w3b::resumed(site, plan).await,
            Self::Http => http::run(site, plan).await,
            Self::W4Size => w4::size(site, plan).await,
            Self::W4Batch => w4::batch(site, plan).await,
            Self::W5 => w5::run(site, plan).await,
            Self::W6 => w6::run(site, plan).await,
            Self::Held => w6::held(site, plan).await,
            Self::W7 => w7::run(site, plan).await,
            Self::W8 => w8::run(site, plan).await,
            Self::Disk => disk::run(site, plan).await,
            Self::Cache => cache::run(site, plan).await,
            Self::Memory => memory::run(site, plan).await,
            Self::Outbox => outbox::run(site, plan).await,
            Self::Due => due::run(site, plan).await,
            Self::Idle => idle::run(site, plan).await,
            Self::Replay => replay::run(site, plan).await,
            Self::ReplayStored => replay::stored(site, plan).await,
        }
    }
}

/// An engine for one machine, with the settings that are measured.
async fn engine(abide: &Abide, machine: impl Machine) -> Result<Engine> {
    Ok(set(abide.engine()).machine(machine).start().await?)
}

/// The settings that are measured.
fn set(engine: EngineBuilder) -> EngineBuilder {
    engine.queue("default", CONCURRENCY).batch(BATCH)
}

/// Number of instances that are started in one call, before an engine is.
const STARTED: usize = 1_000;

/// Starts so many instances.
async fn start_all<D: Definition>(
    abide: &Abide,
    instances: usize,
    start: impl Fn(u64) -> StartBuilder<D>,
) -> Result<()> {
    let orders: Vec<u64> = (0..).take(instances).collect();
    for batch in orders.chunks(STARTED) {
        for started in abide.start_all(batch.iter().copied().map(&start)).await? {
            started?;
        }
    }
    Ok(())
}

/// Starts instances in a store, runs them with an engine, and answers how many steps a second it committed: each instance
/// has so many.
async fn drain<D: Definition>(
    meter: &Meter<'_>,
    url: &str,
    instances: usize,
    steps: u32,
    start: impl Fn(u64) -> StartBuilder<D>,
    with: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Result<f64> {
    let abide = Abide::open(url).await?;
    start_all(&abide, instances, start).await?;
    let steps = u64::try_from(instances)? * u64::from(steps);
    let span = meter.begin(url).await?;
    // From the start of the engine to its last commit, which leaves out neither.
    let begun = Instant::now();
    let engine = with(set(abide.engine())).start().await?;
    committed(&engine, steps).await?;
    let took = begun.elapsed();
    let ended = span.end(steps).await?;
    engine.shutdown().await;
    abide.close().await;
    ended.closed().await?;
    Ok(steps as f64 / took.as_secs_f64())
}

/// Waits until an engine has committed so many steps.
async fn committed(engine: &Engine, steps: u64) -> Result<()> {
    let begun = Instant::now();
    while engine.stats().committed < steps {
        if begun.elapsed() > PATIENCE {
            return Err(format!("the engine hangs: {:?}", engine.stats()).into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
