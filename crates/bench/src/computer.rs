//! Load of this computer just now, which decides what figures mean.

use std::io::{Seek, Write};
use std::time::Instant;

use crate::Result;

/// Number of syncs of the disk that are timed.
const SYNCS: u32 = 20;

/// Processor, number of cores, memory, system and load.
pub fn described() -> Result<String> {
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let field = |file: &str, name: &str| {
        let text = read(file);
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let processor = field("/proc/cpuinfo", "model name");
    let memory = field("/proc/meminfo", "MemTotal");
    let kilobytes = memory.trim_end_matches(" kB").parse().unwrap_or(f64::NAN);
    let gigabytes = kilobytes / 1024.0 / 1024.0;
    let cores = std::thread::available_parallelism()?;
    let system = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("unknown");
    Ok(format!(
        "{processor}, {cores} cores, {gigabytes:.1} GiB, Linux {}, load {load} before measuring",
        system.trim()
    ))
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
