//! MEM: the memory of a fresh process whose engine is idle over a million scheduled instances.

use std::process::Command;
use std::time::{Duration, Instant};

use abide::Abide;
use abide::client::new_start;
use abide::time::days;

use super::{engine, start_all};
use crate::Result;
use crate::args::{Plan, RESIDENT};
use crate::machines::{One, Order};
use crate::report::{Figure, Measured};
use crate::site::Site;

const INSTANCES: usize = 1_000_000;
/// Time for which the engine is watched.
const WATCHED: Duration = Duration::from_secs(6);
/// Allowed memory, in megabytes.
const ALLOWED: f64 = 60.0;

pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let url = site.fresh().await?;
    fill(&url, plan).await?;
    let child = Command::new(std::env::current_exe()?)
        .args([RESIDENT, &url])
        .arg(plan.time(WATCHED).as_millis().to_string())
        .output()?;
    if !child.status.success() {
        let stderr = String::from_utf8_lossy(&child.stderr);
        return Err(format!("the process to measure failed: {stderr}").into());
    }
    let kilobytes: f64 = String::from_utf8(child.stdout)?.trim().parse()?;
    Ok(Figure::new(kilobytes / 1024.0, ALLOWED, "MB").into())
}

async fn fill(url: &str, plan: &Plan) -> Result<()> {
    let abide = Abide::open(url).await?;
    let far = |order| new_start(One, Order::new(order)).delay(days(365));
    start_all(&abide, plan.of(INSTANCES), far).await?;
    abide.close().await;
    Ok(())
}

/// Opens the store with an idle engine, and answers the most memory that was resident while it was watched, in
/// kilobytes.
pub async fn resident(url: &str, watched: Duration) -> Result<u64> {
    let abide = Abide::open(url).await?;
    let engine = engine(&abide, One).await?;
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < watched {
        most = most.max(resident_now()?);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    engine.shutdown().await;
    abide.close().await;
    Ok(most)
}

/// Resident memory of this process, in kilobytes.
pub(super) fn resident_now() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes
        .ok_or("/proc/self/status does not tell the resident memory")?
        .parse()?)
}
