//! CACHE: the memory of a waiting workflow whose code is kept.

use std::process::Command;
use std::time::Duration;

use abide::Abide;
use abide::client::new_start;

use super::memory::resident_now;
use super::{committed, set, start_all};
use crate::Result;
use crate::args::{CACHED, Plan};
use crate::flows::{LONG, long};
use crate::report::{Figure, Measured};
use crate::site::Site;

const WORKFLOWS: usize = 20_000;
/// Allowed memory, in bytes.
const ALLOWED: f64 = 8_192.0;
/// Time for the engine to come to rest.
const SETTLING: Duration = Duration::from_secs(1);

/// The memory of a process that keeps all of them, less that of one that keeps none, by their number.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let workflows = plan.of(WORKFLOWS);
    let mut kilobytes = [0.0; 2];
    for (kilobytes, kept) in kilobytes.iter_mut().zip([0, workflows]) {
        let url = site.fresh().await?;
        let abide = Abide::open(&url).await?;
        start_all(&abide, workflows, |_| new_start(LONG, 0)).await?;
        abide.close().await;
        let numbers = [workflows, kept].map(|number| number.to_string());
        let child = Command::new(std::env::current_exe()?)
            .args([CACHED, &url])
            .args(numbers)
            .output()?;
        if !child.status.success() {
            let stderr = String::from_utf8_lossy(&child.stderr);
            return Err(format!("the process to measure failed: {stderr}").into());
        }
        *kilobytes = String::from_utf8(child.stdout)?.trim().parse()?;
    }
    let [without, with] = kilobytes;
    let each = (with - without) * 1024.0 / workflows as f64;
    Ok(Figure::new(each, ALLOWED, "bytes").into())
}

/// The process that is measured: runs so many workflows until all wait, keeps so many, and answers how much memory is resident,
/// in kilobytes.
pub async fn resident(url: &str, workflows: usize, kept: usize) -> Result<u64> {
    let abide = Abide::open(url).await?;
    let engine = set(abide.engine()).workflow(LONG, long(|| ()));
    let engine = engine.workflows_kept(kept).start().await?;
    committed(&engine, workflows as u64).await?;
    tokio::time::sleep(SETTLING).await;
    let kilobytes = resident_now()?;
    engine.shutdown().await;
    abide.close().await;
    Ok(kilobytes)
}
