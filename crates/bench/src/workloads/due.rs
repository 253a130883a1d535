//! DUE: how late a due time is met when the engine has nothing else to do.

use std::time::Duration;

use abide::Abide;

use super::engine;
use crate::Result;
use crate::args::Plan;
use crate::machines::{Late, now};
use crate::report::{Figure, Measured};
use crate::site::Site;

const INSTANCES: usize = 20;
/// Time ahead at which each is due.
const AHEAD: Duration = Duration::from_millis(500);
/// Allowed delay, in milliseconds.
const ALLOWED: f64 = 50.0;

pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let abide = Abide::open(&site.fresh().await?).await?;
    let engine = engine(&abide, Late).await?;
    let mut worst = 0;
    for _ in 0..plan.of(INSTANCES) {
        let due = now() + AHEAD;
        let late = abide.start(Late, due.as_micros()).at(due).await?;
        worst = worst.max(late.result().await?);
    }
    engine.shutdown().await;
    abide.close().await;
    Ok(Figure::new(worst as f64 / 1_000.0, ALLOWED, "ms").into())
}
