//! W2: instances of ten steps, each step committed by itself.

use abide::client::new_start;

use super::drain;
use crate::args::Plan;
use crate::cost::Meter;
use crate::machines::{Order, Ten};
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::Site;
use crate::{Result, limits};

pub(super) const INSTANCES: usize = 1_000;

pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let meter = Meter::new(site);
    let limit = async || limits::drain(site, plan).await;
    let ours = async || rate(&meter, plan).await;
    let round = middle(plan, limit, ours).await?;
    Ok(round.figure("steps/s").cost(&meter).into())
}

/// Steps a second.
pub(super) async fn rate(meter: &Meter<'_>, plan: &Plan) -> Result<f64> {
    let (url, instances) = (meter.fresh().await?, plan.of(INSTANCES));
    let start = |order| new_start(Ten, Order::new(order));
    drain(meter, &url, instances, Ten::STEPS, start, |engine| {
        engine.machine(Ten)
    })
    .await
}
