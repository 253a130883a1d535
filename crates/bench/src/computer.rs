//! Load of this computer just now, which decides what figures mean.

use std::io::{Seek, Write};
use std::time::Instant;

use crate::Result;

/// Number of syncs of the disk that are timed.
const SYNCS: u32 = 20;

/// Number of cores, and load.
pub fn described() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown");
    Ok(format!("{cores} cores, load {load} before measuring"))
}

/// Duration of a sync of the disk where the files lie, in milliseconds: the middle of some, each after a page was
/// written. Where it is long, a program that commits less often gains; so ratios are comparable only where it is alike.
pub fn sync_ms() -> Result<f64> {
    let mut file = tempfile::tempfile()?;
    let mut times = Vec::new();
    for _ in 0..SYNCS {
        file.rewind()?;
        file.write_all(&[1; 4096])?;
        let begun = Instant::now();
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(middle.as_secs_f64() * 1_000.0)
}
