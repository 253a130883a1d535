//! START: instances started in batches, against the same rows inserted by hand into the same table.

use std::ops::Range;
use std::time::Instant;

use abide::Abide;
use abide::client::new_start;

use crate::Result;
use crate::args::Plan;
use crate::limits::Inserts;
use crate::machines::{One, Order};
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::Site;

/// Number of instances that are started in one call, or inserted in one transaction.
const BATCH: u64 = 1_000;
const BATCHES: usize = 20;

pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let url = site.fresh().await?;
    let abide = Abide::open(&url).await?;
    let model = abide.start(One, Order::new(0)).await?;
    let mut inserts = Inserts::like(&url, model.id()).await?;
    let limit = async || by_hand(&mut inserts, plan).await;
    let ours = async || by_abide(&abide, plan).await;
    let round = middle(plan, limit, ours).await?;
    abide.close().await;
    Ok(round.figure("instances/s").into())
}

async fn by_hand(inserts: &mut Inserts, plan: &Plan) -> Result<f64> {
    let begun = Instant::now();
    for batch in batches(plan) {
        let states: Vec<String> = batch.map(Order::json).collect();
        inserts.insert(&states).await?;
    }
    Ok(rate(begun, plan))
}

async fn by_abide(abide: &Abide, plan: &Plan) -> Result<f64> {
    let begun = Instant::now();
    for batch in batches(plan) {
        let started = abide.start_all(batch.map(|order| new_start(One, Order::new(order))));
        for started in started.await? {
            started?;
        }
    }
    Ok(rate(begun, plan))
}

fn batches(plan: &Plan) -> impl Iterator<Item = Range<u64>> {
    let batches = (0..).take(plan.of(BATCHES));
    batches.map(|batch| batch * BATCH..(batch + 1) * BATCH)
}

fn rate(begun: Instant, plan: &Plan) -> f64 {
    (plan.of(BATCHES) as u64 * BATCH) as f64 / begun.elapsed().as_secs_f64()
}
