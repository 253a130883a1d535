//! W1: instances of one step, started before the engine and drained by it.

use abide::client::new_start;

use super::drain;
use crate::args::Plan;
use crate::cost::Meter;
use crate::machines::{One, Order};
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::Site;
use crate::{Result, limits};

pub(super) const INSTANCES: usize = 10_000;

pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let meter = Meter::new(site);
    let limit = async || limits::drain(site, plan).await;
    let ours = async || rate(&meter, &meter.fresh().await?, plan).await;
    let round = middle(plan, limit, ours).await?;
    Ok(round.figure("instances/s").cost(&meter).into())
}

/// Instances a second, in that store.
pub(super) async fn rate(meter: &Meter<'_>, url: &str, plan: &Plan) -> Result<f64> {
    let start = |order| new_start(One, Order::new(order));
    drain(meter, url, plan.of(INSTANCES), 1, start, |engine| {
        engine.machine(One)
    })
    .await
}
