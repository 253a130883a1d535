//! W7: how long calls take at half of the highest rate.

use std::time::{Duration, Instant};

use super::load::{Target, closed_loop, open_loop, percentile_ms};
use crate::args::Plan;
use crate::report::{Figure, Measured};
use crate::site::Site;
use crate::{Result, computer};

/// Number of calls, and of callers, by which the highest rate is found.
const CALLS: usize = 20_000;
const CALLERS: usize = 256;
/// Time for which there is load.
const TIME: Duration = Duration::from_secs(10);

/// From a start to its committed step, and from a signal to the running step.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let target = Target::open(&site.fresh().await?).await?;
    let mut figures = measured(plan, ["step p50", "step p99", "step p99.9"], || {
        target.start()
    })
    .await?;
    let signals = ["signal p50", "signal p99", "signal p99.9"];
    figures.extend(measured(plan, signals, || target.signal()).await?);
    target.close().await;
    Ok(Measured::Figures(figures))
}

async fn measured<C, F>(
    plan: &Plan,
    parts: [&'static str; 3],
    call: impl Fn() -> C,
) -> Result<Vec<Figure>>
where
    C: Fn(usize) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Instant>> + Send + 'static,
{
    /// Percentiles, and what is allowed of each, in milliseconds.
    const ALLOWED: [(f64, f64); 3] = [(50.0, 5.0), (99.0, 20.0), (99.9, 50.0)];
    let calls = plan.of(CALLS);
    // To warm up.
    closed_loop(calls / 4, CALLERS, call()).await?;
    let highest = closed_loop(calls, CALLERS, call()).await?;
    let (sync_ms, rate) = (computer::sync_ms()?, highest / 2.0);
    let calls = (rate * plan.time(TIME).as_secs_f64()).ceil() as usize;
    let took = open_loop(rate, calls, call()).await?;
    let figures = parts.into_iter().zip(ALLOWED);
    let mut figures: Vec<Figure> = figures
        .map(|(part, (percent, allowed))| Figure {
            part,
            sync_ms: Some(sync_ms),
            ..Figure::new(percentile_ms(&took, percent), allowed, "ms")
        })
        .collect();
    if let Some(first) = figures.first_mut() {
        let of_all = std::mem::take(first).detail("calls", rate, "/s");
        *first = of_all.detail("highest", highest, "/s");
    }
    Ok(figures)
}
