//! W2F: workflows of ten steps, against the same steps as a machine.

use abide::client::new_start;

use super::{drain, w2};
use crate::Result;
use crate::args::Plan;
use crate::cost::Meter;
use crate::flows::{TEN, ten};
use crate::machines::{Order, Ten};
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::Site;

pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let (meter, of_machines) = (Meter::new(site), Meter::new(site));
    let machines = async || w2::rate(&of_machines, plan).await;
    let workflows = async || {
        let (url, instances) = (meter.fresh().await?, plan.of(w2::INSTANCES));
        let start = |order| new_start(TEN, Order::new(order));
        let with = |engine: abide::engine::EngineBuilder| engine.workflow(TEN, ten);
        drain(&meter, &url, instances, Ten::STEPS, start, with).await
    };
    let round = middle(plan, machines, workflows).await?;
    Ok(round.figure("steps/s").cost(&meter).into())
}
