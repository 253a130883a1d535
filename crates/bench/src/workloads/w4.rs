//! W4: events that each match one of those who wait for such an event.

use std::cell::Cell;
use std::time::{Duration, Instant};

use abide::Abide;
use abide::client::{event_of, new_start};
use serde_json::{Value, json};

use super::{POLL_INTERVAL, engine};
use crate::Result;
use crate::args::Plan;
use crate::limits::inbox::{BATCH, Inbox};
use crate::machines::{Listening, Order};
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::{Site, connect};

/// Number of waiters where there are few.
const FEW: usize = 1_000;
/// Number of events that are published one by one in a round.
const SINGLE: usize = 200;
/// Number of waiters where events are published in batches, each of them for one.
const BATCHED: usize = 20_000;
/// Number of instances that are started before those are parked: what is parked at once is held in memory.
const STARTED: usize = 20_000;
/// So many are parked at once within this time, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Duration of one event that matches one of many, against one of few: the median of some.
pub async fn size(site: &Site, plan: &Plan) -> Result<Measured> {
    // Each event ends a wait; where few wait, so many are left when the last was published.
    let single = plan.of(SINGLE);
    let few = Listeners::fill(site, plan.of(FEW) + (plan.rounds + 1) * single).await?;
    let many = Listeners::fill(site, plan.of(plan.waiters)).await?;
    let (mut of_few, mut of_many) = (few.scattered(), many.scattered());
    // One here and one there: what else the computer does in a round slows both down alike.
    let of_round = Cell::new(0.0);
    let limit = async || {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for (one, other) in of_few.by_ref().zip(of_many.by_ref()).take(single) {
            here.push(few.publish(one).await?);
            there.push(many.publish(other).await?);
        }
        of_round.set(median_micros(there)?);
        median_micros(here)
    };
    let ours = async || Ok(of_round.get());
    let round = middle(plan, limit, ours).await?;
    few.abide.close().await;
    many.abide.close().await;
    Ok(round.figure("µs").into())
}

/// Events published a second, in batches of as many as the limit has in a transaction.
pub async fn batch(site: &Site, plan: &Plan) -> Result<Measured> {
    let batched = plan.of(BATCHED);
    let limit = async || Inbox::rate(site, batched).await;
    let ours = async || {
        let listeners = Listeners::fill(site, batched).await?;
        let rate = listeners.publish_all().await?;
        listeners.abide.close().await;
        Ok(rate)
    };
    let round = middle(plan, limit, ours).await?;
    Ok(round.figure("events/s").into())
}

/// Instances that wait for events of one type, each for one of its own; no engine runs.
struct Listeners {
    abide: Abide,
    count: usize,
}

impl Listeners {
    /// A store in which so many wait.
    async fn fill(site: &Site, count: usize) -> Result<Self> {
        let url = site.fresh().await?;
        let abide = Abide::open(&url).await?;
        let engine = engine(&abide, Listening).await?;
        let orders: Vec<u64> = (0..).take(count).collect();
        let mut parked = 0;
        for part in orders.chunks(STARTED) {
            for batch in part.chunks(super::CONCURRENCY) {
                let specs = batch
                    .iter()
                    .map(|order| new_start(Listening, Order::new(*order)));
                for started in abide.start_all(specs).await? {
                    started?;
                }
            }
            parked += u64::try_from(part.len())?;
            let begun = Instant::now();
            while engine.stats().committed < parked {
                if begun.elapsed() > PATIENCE {
                    return Err(format!("the engine hangs: {:?}", engine.stats()).into());
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        engine.shutdown().await;
        // What filling has left to do is not what is measured: SQLite does it when the file is closed.
        abide.close().await;
        if let Site::Postgres(_) = site {
            let client = connect(&url).await?;
            client.batch_execute("vacuum analyze").await?;
            client.batch_execute("checkpoint").await?;
        }
        let abide = Abide::open(&url).await?;
        Ok(Self { abide, count })
    }

    /// All of them, in an order in which neighbours are far from each other.
    fn scattered(&self) -> impl Iterator<Item = usize> + use<> {
        /// A prime number, so that all are met.
        const STRIDE: usize = 611_953;
        let count = self.count;
        (0..count).map(move |at| at * STRIDE % count)
    }

    /// Publishes the event of one of them, and answers how long it took.
    async fn publish(&self, order: usize) -> Result<Duration> {
        let payment = payment(order);
        let begun = Instant::now();
        let published = self.abide.publish(Listening::EVENT, &payment).await?;
        let took = begun.elapsed();
        matched_one(published.matched)?;
        Ok(took)
    }

    /// Publishes an event for each of them, and answers how many a second.
    async fn publish_all(&self) -> Result<f64> {
        let orders: Vec<usize> = (0..self.count).collect();
        let begun = Instant::now();
        for batch in orders.chunks(BATCH) {
            let events = batch.iter();
            let events = events.map(|order| event_of(Listening::EVENT, &payment(*order)));
            for published in self.abide.publish_all(events).await? {
                matched_one(published?.matched)?;
            }
        }
        Ok(self.count as f64 / begun.elapsed().as_secs_f64())
    }
}

fn median_micros(mut took: Vec<Duration>) -> Result<f64> {
    took.sort_unstable();
    let middle = took.get(took.len() / 2).ok_or("nothing waits")?;
    Ok(middle.as_secs_f64() * 1e6)
}

/// Payload that one of them waits for.
fn payment(order: usize) -> Value {
    json!({"order": order, "amount": 99.5, "currency": "EUR"})
}

fn matched_one(matched: u32) -> Result<()> {
    match matched {
        1 => Ok(()),
        _ => Err(format!("an event matched {matched} instead of one").into()),
    }
}
