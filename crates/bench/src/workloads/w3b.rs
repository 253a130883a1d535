//! W3b: 20,000 parked instances, signalled by many callers of the single-signal call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use abide::Abide;
use abide::client::new_start;
use abide::engine::Engine;

use super::{CONCURRENCY, committed, engine};
use crate::Result;
use crate::limits::inbox::Inbox;
use crate::machines::{GO, Order, Parked};
use crate::rounds::middle;
use crate::site::Site;
use crate::table::{Floor, Measured};

pub(super) const PARKED: usize = 20_000;

/// Signals accepted a second, by so many callers.
pub async fn run(site: &Site, rounds: usize, callers: usize, floor: f64) -> Result<Measured> {
    let limit = async || Inbox::rate(site, PARKED).await;
    let ours = async || {
        let (abide, engine) = parked(site).await?;
        // No worker resumes them meanwhile: what is measured is how fast they are taken in.
        engine.shutdown().await;
        let took = signal_all(&abide, callers).await?;
        abide.close().await;
        Ok(PARKED as f64 / took.as_secs_f64())
    };
    let round = middle(rounds, limit, ours).await?;
    Ok(round.measured("signals/s", Floor::AtLeast(floor)))
}

/// Instances signalled, resumed and done a second, against signals accepted a second.
pub async fn resumed(site: &Site, rounds: usize) -> Result<Measured> {
    const CALLERS: usize = 64;
    let accepted = async || {
        let (abide, engine) = parked(site).await?;
        engine.shutdown().await;
        let took = signal_all(&abide, CALLERS).await?;
        abide.close().await;
        Ok(PARKED as f64 / took.as_secs_f64())
    };
    let done = async || {
        let (abide, engine) = parked(site).await?;
        let begun = Instant::now();
        signal_all(&abide, CALLERS).await?;
        committed(&engine, 2 * PARKED as u64).await?;
        let took = begun.elapsed();
        engine.shutdown().await;
        abide.close().await;
        Ok(PARKED as f64 / took.as_secs_f64())
    };
    let round = middle(rounds, accepted, done).await?;
    Ok(round.measured("instances/s", Floor::AtLeast(0.5)))
}

/// Instances that wait for a signal, and the engine that has parked them.
pub(super) async fn parked(site: &Site) -> Result<(Abide, Engine)> {
    parked_in(&site.fresh().await?).await
}

/// The same in that database.
pub(super) async fn parked_in(url: &str) -> Result<(Abide, Engine)> {
    let abide = Abide::open(url).await?;
    let orders: Vec<u64> = (0..PARKED as u64).collect();
    for batch in orders.chunks(CONCURRENCY) {
        let specs = batch.iter().map(|order| {
            let key = format!("order:{order}");
            new_start(Parked, Order::new(*order)).key(key)
        });
        for started in abide.start_all(specs).await? {
            started?;
        }
    }
    let engine = engine(&abide, Parked).await?;
    committed(&engine, PARKED as u64).await?;
    Ok((abide, engine))
}

/// Signals each of them once, each caller one after the other.
pub(super) async fn signal_all(abide: &Abide, callers: usize) -> Result<Duration> {
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = Vec::with_capacity(callers);
    for _ in 0..callers {
        let (abide, next) = (abide.clone(), next.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let order = next.fetch_add(1, Ordering::Relaxed);
                if order >= PARKED {
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
