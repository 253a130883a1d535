//! MEM: the memory of a fresh process whose engine is idle over a million scheduled instances.

use std::process::Command;
use std::time::{Duration, Instant};

use abide::Abide;
use abide::client::new_start;
use abide::time::days;

use super::engine;
use crate::Result;
use crate::args::RESIDENT;
use crate::machines::{One, Order};
use crate::site::Site;
use crate::table::{Floor, Measured};

const INSTANCES: u64 = 1_000_000;
/// Number of instances that are started in one call.
const BATCH: u64 = 20_000;
/// Time for which the engine is watched.
const WATCHED: Duration = Duration::from_secs(6);
/// Allowed memory, in megabytes.
const ALLOWED: f64 = 60.0;

pub async fn run(site: &Site) -> Result<Measured> {
    let url = site.fresh().await?;
    fill(&url).await?;
    let child = Command::new(std::env::current_exe()?)
        .args([RESIDENT, &url])
        .output()?;
    if !child.status.success() {
        let stderr = String::from_utf8_lossy(&child.stderr);
        return Err(format!("the process to measure failed: {stderr}").into());
    }
    let kilobytes: f64 = String::from_utf8(child.stdout)?.trim().parse()?;
    Ok(Measured::Figures {
        ours: kilobytes / 1024.0,
        limit: ALLOWED,
        unit: "MB",
        sync_ms: None,
        floor: Floor::AtMost(1.0),
    })
}

async fn fill(url: &str) -> Result<()> {
    let abide = Abide::open(url).await?;
    for first in (0..INSTANCES).step_by(usize::try_from(BATCH)?) {
        let batch = first..INSTANCES.min(first + BATCH);
        let far = |order| new_start(One, Order::new(order)).delay(days(365));
        for started in abide.start_all(batch.map(far)).await? {
            started?;
        }
    }
    abide.close().await;
    Ok(())
}

/// Opens the store with an idle engine, and answers the most memory that was resident while it was watched, in
/// kilobytes.
pub async fn resident(url: &str) -> Result<u64> {
    let abide = Abide::open(url).await?;
    let engine = engine(&abide, One).await?;
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < WATCHED {
        most = most.max(resident_now()?);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    engine.shutdown().await;
    abide.close().await;
    Ok(most)
}

fn resident_now() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes
        .ok_or("/proc/self/status does not tell the resident memory")?
        .parse()?)
}
