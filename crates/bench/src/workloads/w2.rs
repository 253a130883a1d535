//! W2: instances of ten steps, each step committed by itself.

use abide::Abide;

use super::drain;
use crate::Result;
use crate::limits::Queue;
use crate::machines::Ten;
use crate::rounds::middle;
use crate::site::Site;
use crate::table::{Floor, Measured};

const INSTANCES: u64 = 1_000;
const STEPS: u64 = INSTANCES * Ten::STEPS as u64;

pub async fn run(site: &Site, rounds: usize) -> Result<Measured> {
    // Fresh tables each time: what earlier rounds left behind would slow down the later ones.
    let limit = async || Queue::create(site).await?.drain().await;
    let ours = async || {
        let abide = Abide::open(&site.fresh().await?).await?;
        let rate = drain(&abide, || Ten, INSTANCES, STEPS).await?;
        abide.close().await;
        Ok(rate)
    };
    let round = middle(rounds, limit, ours).await?;
    let floor = match site {
        Site::Postgres(_) => 1.2,
        Site::Sqlite(_) => 0.6,
    };
    Ok(round.measured("steps/s", Floor::AtLeast(floor)))
}
