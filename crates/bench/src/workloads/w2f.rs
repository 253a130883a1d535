//! W2F: workflows of ten steps, against the same steps as a machine.

use abide::Abide;
use abide::client::new_start;

use super::{drain, drain_by, set};
use crate::Result;
use crate::flows::{TEN, ten};
use crate::machines::{Order, Ten};
use crate::rounds::middle;
use crate::site::Site;
use crate::table::{Floor, Measured};

const INSTANCES: u64 = 1_000;
const STEPS: u64 = INSTANCES * Ten::STEPS as u64;

pub async fn run(site: &Site, rounds: usize) -> Result<Measured> {
    // Fresh tables each time: what earlier rounds left behind would slow down the later ones.
    let machines = async || {
        let abide = Abide::open(&site.fresh().await?).await?;
        let rate = drain(&abide, || Ten, INSTANCES, STEPS).await?;
        abide.close().await;
        Ok(rate)
    };
    let workflows = async || {
        let abide = Abide::open(&site.fresh().await?).await?;
        let engine = set(abide.engine()).workflow(TEN, ten);
        let start = |order| new_start(TEN, Order::new(order));
        let rate = drain_by(&abide, engine, start, INSTANCES, STEPS).await?;
        abide.close().await;
        Ok(rate)
    };
    let round = middle(rounds, machines, workflows).await?;
    Ok(round.measured("steps/s", Floor::AtLeast(0.6)))
}
