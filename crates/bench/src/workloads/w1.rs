//! W1: instances of one step, started before the engine and drained by it.

use abide::Abide;

use super::drain;
use crate::Result;
use crate::limits::Queue;
use crate::machines::One;
use crate::rounds::{Round, middle};
use crate::site::Site;
use crate::table::{Floor, Measured};

const INSTANCES: u64 = 10_000;

pub async fn run(site: &Site, rounds: usize) -> Result<Measured> {
    // Fresh tables each time: what earlier rounds left behind would slow down the later ones.
    let round = async || {
        let limit = Queue::create(site).await?.drain().await?;
        let abide = Abide::open(&site.fresh().await?).await?;
        let ours = drain(&abide, || One, INSTANCES, INSTANCES).await?;
        abide.close().await;
        Ok(Round { ours, limit })
    };
    let Round { ours, limit } = middle(rounds, round).await?;
    let floor = match site {
        Site::Postgres(_) => 0.6,
        Site::Sqlite(_) => 0.4,
    };
    Ok(Measured::Figures {
        ours,
        limit,
        unit: "instances/s",
        floor: Floor::AtLeast(floor),
    })
}
