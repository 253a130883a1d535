//! W5: fan-out, parents that start many children and join them.

use abide::client::new_start;

use super::{drain, w1};
use crate::Result;
use crate::args::Plan;
use crate::cost::Meter;
use crate::machines::{Fan, One};
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::Site;

const PARENTS: usize = 100;
/// Number of children of each.
const CHILDREN: usize = 1_000;

/// Children a second, against instances of one step.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let (meter, of_w1) = (Meter::new(site), Meter::new(site));
    let children = u32::try_from(plan.of(CHILDREN))?;
    let limit = async || w1::rate(&of_w1, &of_w1.fresh().await?, plan).await;
    let ours = async || {
        // A parent has two steps of its own.
        let (url, steps) = (meter.fresh().await?, children + 2);
        let start = |_| new_start(Fan, children);
        let with = |engine: abide::engine::EngineBuilder| engine.machine(Fan).machine(One);
        let rate = drain(&meter, &url, plan.of(PARENTS), steps, start, with).await?;
        Ok(rate * f64::from(children) / f64::from(steps))
    };
    let round = middle(plan, limit, ours).await?;
    Ok(round.figure("children/s").cost(&meter).into())
}
