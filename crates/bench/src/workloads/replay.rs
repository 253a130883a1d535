//! REPLAY: a workflow with a long history goes on on a worker that knows nothing of it.

use std::time::{Duration, Instant};

use abide::client::Handle;
use abide::testing::replays;
use abide::{Abide, Status};
use tokio::sync::mpsc;

use super::{PATIENCE, POLL_INTERVAL, set};
use crate::Result;
use crate::args::Plan;
use crate::flows::{LONG, long};
use crate::machines::GO;
use crate::report::{Figure, Measured};
use crate::site::Site;

/// Number of operations that are recorded.
const OPERATIONS: usize = 10_000;
/// Allowed time, in milliseconds.
const ALLOWED: f64 = 300.0;

/// Replays the history that was read already.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let abide = Abide::open(&site.fresh().await?).await?;
    let parked = parked(&abide, plan).await?;
    let history = abide.export(parked.id()).await?.ok_or("it is gone")?;
    let mut times = Vec::new();
    for _ in 0..=plan.rounds {
        let begun = Instant::now();
        replays(LONG, long(|| ()), &history)?;
        times.push(begun.elapsed());
    }
    abide.close().await;
    measured(times)
}

/// Lets an engine that has just started go on with it: from the signal to the step that follows.
pub async fn stored(site: &Site, plan: &Plan) -> Result<Measured> {
    let abide = Abide::open(&site.fresh().await?).await?;
    let parked = parked(&abide, plan).await?;
    let mut times = Vec::new();
    for _ in 0..=plan.rounds {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let code = long(move || {
            let _ = sender.send(());
        });
        let engine = set(abide.engine()).workflow(LONG, code).start().await?;
        let begun = Instant::now();
        abide.signal(parked.id(), GO, &1).await?;
        receiver.recv().await.ok_or("the workflow is gone")?;
        times.push(begun.elapsed());
        until_it_waits(&abide, &parked).await?;
        engine.shutdown().await;
    }
    abide.close().await;
    measured(times)
}

/// A run whose steps were all recorded, and that waits.
async fn parked(abide: &Abide, plan: &Plan) -> Result<Handle<()>> {
    let engine = set(abide.engine()).workflow(LONG, long(|| ()));
    let engine = engine.start().await?;
    let run = abide
        .start(LONG, u32::try_from(plan.of(OPERATIONS))?)
        .await?;
    until_it_waits(abide, &run).await?;
    engine.shutdown().await;
    Ok(run)
}

async fn until_it_waits(abide: &Abide, run: &Handle<()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match abide.get(run.id()).await? {
            Some(found) if found.status == Status::AwaitingSignal => return Ok(()),
            _ if begun.elapsed() < PATIENCE => tokio::time::sleep(POLL_INTERVAL).await,
            found => return Err(format!("the workflow hangs: {found:?}").into()),
        }
    }
}

/// The time in the middle, without the first, which is to warm up.
fn measured(times: Vec<Duration>) -> Result<Measured> {
    let mut times: Vec<Duration> = times.into_iter().skip(1).collect();
    for (number, took) in times.iter().enumerate() {
        eprintln!("  round {}: {took:.1?}", number + 1);
    }
    times.sort_unstable();
    let middle = times.get(times.len() / 2).ok_or("no round was measured")?;
    Ok(Figure::new(middle.as_secs_f64() * 1_000.0, ALLOWED, "ms").into())
}
