//! START: instances started in batches, against the same rows inserted by hand into the same table.

use std::ops::Range;
use std::time::Instant;

use abide::Abide;
use abide::client::new_start;

use crate::Result;
use crate::limits::Inserts;
use crate::machines::{One, Order};
use crate::rounds::middle;
use crate::site::Site;
use crate::table::{Floor, Measured};

/// Number of instances that are started in one call, or inserted in one transaction.
const BATCH: u64 = 1_000;
const BATCHES: u64 = 20;

pub async fn run(site: &Site, rounds: usize) -> Result<Measured> {
    let url = site.fresh().await?;
    let abide = Abide::open(&url).await?;
    let model = abide.start(One, Order::new(0)).await?;
    let mut inserts = Inserts::like(&url, model.id()).await?;
    let limit = async || by_hand(&mut inserts).await;
    let ours = async || by_abide(&abide).await;
    let round = middle(rounds, limit, ours).await?;
    abide.close().await;
    Ok(round.measured("instances/s", Floor::AtLeast(0.5)))
}

async fn by_hand(inserts: &mut Inserts) -> Result<f64> {
    let begun = Instant::now();
    for batch in batches() {
        let states: Vec<String> = batch.map(Order::json).collect();
        inserts.insert(&states).await?;
    }
    Ok(rate(begun))
}

async fn by_abide(abide: &Abide) -> Result<f64> {
    let begun = Instant::now();
    for batch in batches() {
        let started = abide.start_all(batch.map(|order| new_start(One, Order::new(order))));
        for started in started.await? {
            started?;
        }
    }
    Ok(rate(begun))
}

fn batches() -> impl Iterator<Item = Range<u64>> {
    (0..BATCHES).map(|batch| batch * BATCH..(batch + 1) * BATCH)
}

fn rate(begun: Instant) -> f64 {
    (BATCHES * BATCH) as f64 / begun.elapsed().as_secs_f64()
}
