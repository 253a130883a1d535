//! W2: instances of ten steps, each step committed by itself.

use abide::Abide;

use super::drain;
use crate::Result;
use crate::limits::Queue;
use crate::machines::Ten;
use crate::rounds::{Round, middle};
use crate::site::Site;
use crate::table::{Floor, Measured};

const INSTANCES: u64 = 1_000;
const STEPS: u64 = INSTANCES * Ten::STEPS as u64;

pub async fn run(site: &Site, rounds: usize) -> Result<Measured> {
    // Fresh tables each time: what earlier rounds left behind would slow down the later ones.
    let round = async || {
        let limit = Queue::create(site).await?.drain().await?;
        let abide = Abide::open(&site.fresh().await?).await?;
        let ours = drain(&abide, || Ten, INSTANCES, STEPS).await?;
        abide.close().await;
        Ok(Round { ours, limit })
    };
    let Round { ours, limit } = middle(rounds, round).await?;
    let floor = match site {
        Site::Postgres(_) => 1.2,
        Site::Sqlite(_) => 0.6,
    };
    Ok(Measured::Figures {
        ours,
        limit,
        unit: "steps/s",
        floor: Floor::AtLeast(floor),
    })
}
