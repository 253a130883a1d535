//! W3b: 20,000 parked instances, signalled by many callers of the single-signal call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use abide::Abide;
use abide::client::new_start;
use abide::engine::Engine;

use super::{committed, engine, start_all};
use crate::Result;
use crate::args::Plan;
use crate::cost::Meter;
use crate::limits::inbox::Inbox;
use crate::machines::{GO, Order, Parked};
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::Site;

pub(super) const PARKED: usize = 20_000;

/// Signals accepted a second, by so many callers.
pub async fn run(site: &Site, plan: &Plan, callers: usize) -> Result<Measured> {
    let limit = async || Inbox::rate(site, plan.of(PARKED)).await;
    let meter = Meter::new(site);
    let ours = async || accepted(&meter, plan, callers).await;
    let round = middle(plan, limit, ours).await?;
    Ok(round.figure("signals/s").cost(&meter).into())
}

/// Instances signalled, resumed and done a second, against signals accepted a second.
pub async fn resumed(site: &Site, plan: &Plan) -> Result<Measured> {
    const CALLERS: usize = 64;
    let meter = Meter::new(site);
    let accepted = async || accepted(&meter, plan, CALLERS).await;
    let done = async || {
        let parked = plan.of(PARKED);
        let (abide, engine) = park(&site.fresh().await?, parked).await?;
        let begun = Instant::now();
        signal_all(&abide, parked, CALLERS).await?;
        committed(&engine, 2 * parked as u64).await?;
        let took = begun.elapsed();
        engine.shutdown().await;
        abide.close().await;
        Ok(parked as f64 / took.as_secs_f64())
    };
    let round = middle(plan, accepted, done).await?;
    Ok(round.figure("instances/s").into())
}

/// Signals accepted a second by the library.
pub(super) async fn accepted(meter: &Meter<'_>, plan: &Plan, callers: usize) -> Result<f64> {
    let (url, parked) = (meter.fresh().await?, plan.of(PARKED));
    let (abide, engine) = park(&url, parked).await?;
    // No worker resumes them meanwhile: what is measured is how fast they are taken in.
    engine.shutdown().await;
    abide.close().await;
    meter.left_alone(&url).await?;
    let abide = Abide::open(&url).await?;
    let span = meter.begin(&url).await?;
    let took = signal_all(&abide, parked, callers).await?;
    let ended = span.end(parked as u64).await?;
    abide.close().await;
    ended.closed().await?;
    Ok(parked as f64 / took.as_secs_f64())
}

/// So many instances that wait for a signal, and the engine that has parked them.
pub(super) async fn park(url: &str, parked: usize) -> Result<(Abide, Engine)> {
    let abide = Abide::open(url).await?;
    let start = |order| new_start(Parked, Order::new(order)).key(format!("order:{order}"));
    start_all(&abide, parked, start).await?;
    let engine = engine(&abide, Parked).await?;
    committed(&engine, parked as u64).await?;
    Ok((abide, engine))
}

/// Signals each of them once, each caller one after the other.
pub(super) async fn signal_all(abide: &Abide, parked: usize, callers: usize) -> Result<Duration> {
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = Vec::with_capacity(callers);
    for _ in 0..callers {
        let (abide, next) = (abide.clone(), next.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let order = next.fetch_add(1, Ordering::Relaxed);
                if order >= parked {
                    return Ok::<(), abide::client::SendError>(());
                }
                abide.signal(format!("order:{order}"), GO, &1).await?;
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(begun.elapsed())
}
