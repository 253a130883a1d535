//! The workloads, each measured against its limit.

mod due;
pub mod http;
mod idle;
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

use std::time::{Duration, Instant};

use abide::client::{StartBuilder, new_start};
use abide::engine::{Engine, EngineBuilder};
use abide::machine::Definition;
use abide::{Abide, Machine};

use crate::Result;
use crate::args::Plan;
use crate::machines::Order;
use crate::site::Site;
use crate::table::Measured;

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
    Memory,
    Outbox,
    Idle,
    Due,
    Replay,
    ReplayStored,
}

impl Workload {
    /// All of them, in the order in which they are measured: the one that may restart the server comes last.
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

    pub async fn run(self, site: &Site, plan: &Plan) -> Result<Measured> {
        let rounds = plan.rounds;
        match self {
            Self::W1 => w1::run(site, rounds).await,
            Self::W2 => w2::run(site, rounds).await,
            Self::W2Flow => w2f::run(site, rounds).await,
            Self::Start => start::run(site, rounds).await,
            Self::W3a => w3a::run(site, rounds).await,
            Self::W3aBetween => w3a::between(site, rounds).await,
            Self::W3b => w3b::run(site, rounds, 64, 0.4).await,
            Self::W3bMany => w3b::run(site, rounds, 1_000, 0.6).await,
            Self::W3bDone => w3b::resumed(site, rounds).await,
            Self::Http => http::run(site, rounds).await,
            Self::W4Size => w4::size(site, rounds, plan.waiters).await,
            Self::W4Batch => w4::batch(site, rounds).await,
            Self::Memory => memory::run(site).await,
            Self::Outbox => outbox::run(site).await,
            Self::Due => due::run(site).await,
            Self::Idle => idle::run(site).await,
            Self::Replay => replay::run(site, rounds).await,
            Self::ReplayStored => replay::stored(site, rounds).await,
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
const STARTED: u64 = 1_000;

/// Starts instances with no engine running, runs them with one, and answers how many steps a second it committed.
async fn drain<M: Machine<State = Order>>(
    abide: &Abide,
    machine: fn() -> M,
    instances: u64,
    steps: u64,
) -> Result<f64> {
    let start = |order| new_start(machine(), Order::new(order));
    let engine = set(abide.engine()).machine(machine());
    drain_by(abide, engine, start, instances, steps).await
}

/// Starts instances, runs them with that engine, and answers how many steps a second it committed.
///
/// Timed from the start of the engine to its last commit, which leaves out neither.
async fn drain_by<D: Definition>(
    abide: &Abide,
    engine: EngineBuilder,
    start: impl Fn(u64) -> StartBuilder<D>,
    instances: u64,
    steps: u64,
) -> Result<f64> {
    for first in (0..instances).step_by(usize::try_from(STARTED)?) {
        let batch = first..instances.min(first + STARTED);
        for started in abide.start_all(batch.map(&start)).await? {
            started?;
        }
    }
    let begun = Instant::now();
    let engine = engine.start().await?;
    committed(&engine, steps).await?;
    let took = begun.elapsed();
    engine.shutdown().await;
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
