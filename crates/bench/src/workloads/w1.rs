//! W1: instances of one step, started before the engine and drained by it.

use abide::Abide;

use super::drain;
use crate::Result;
use crate::limits::Queue;
use crate::machines::One;
use crate::rounds::middle;
use crate::site::Site;
use crate::table::{Floor, Measured};

const INSTANCES: u64 = 10_000;

pub async fn run(site: &Site, rounds: usize) -> Result<Measured> {
    // Fresh tables each time: what earlier rounds left behind would slow down the later ones.
    let limit = async || Queue::create(site).await?.drain().await;
    let ours = async || {
        let abide = Abide::open(&site.fresh().await?).await?;
        let rate = drain(&abide, || One, INSTANCES, INSTANCES).await?;
        abide.close().await;
        Ok(rate)
    };
    let round = middle(rounds, limit, ours).await?;
    let floor = match site {
        Site::Postgres(_) => 0.6,
        Site::Sqlite(_) => 0.4,
    };
    Ok(round.measured("instances/s", Floor::AtLeast(floor)))
}
