//! Metrics of this process from the operating system, under the standard names of Prometheus clients.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// One metric: name, type, help text and value.
type Figure = (&'static str, &'static str, &'static str, f64);

/// The time of the first call, which a server makes at its start.
static STARTED: LazyLock<f64> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
});

/// Records the start time of the process.
pub(super) fn begin() {
    LazyLock::force(&STARTED);
}

/// Writes the metrics in the text format. Those that the system does not provide are left out.
pub(super) fn write(text: &mut String) {
    for (name, kind, help, value) in figures() {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n"
        );
    }
}

fn figures() -> Vec<Figure> {
    let started = (
        "process_start_time_seconds",
        "gauge",
        "When the process started, in seconds since 1970",
        *STARTED,
    );
    let mut figures = vec![started];
    if let Ok(stat) = std::fs::read_to_string("/proc/self/stat") {
        figures.extend(of_stat(&stat));
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // Does not count the directory itself, which is open at this moment.
        let open = open.count().saturating_sub(1);
        figures.push((
            "process_open_fds",
            "gauge",
            "Files and connections that the process has open",
            open as f64,
        ));
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if let Some(limit) = limit.current {
        figures.push((
            "process_max_fds",
            "gauge",
            "The most files and connections that it may have open",
            limit as f64,
        ));
    }
    figures
}

/// Parses `/proc/self/stat`: the fields from the third on, after the name, which is in parentheses and may contain any
/// character (proc(5)).
fn of_stat(stat: &str) -> Vec<Figure> {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |number: usize| -> Option<f64> { fields.get(number - 3)?.parse().ok() };
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let page = rustix::param::page_size() as f64;
    let figure =
        |name, kind, help, value: Option<f64>| value.map(|value| (name, kind, help, value));
    let used = field(14).zip(field(15));
    let figures = [
        figure(
            "process_cpu_seconds_total",
            "counter",
            "Processor time that the process has used, its own and the system's for it",
            used.map(|(user, system)| (user + system) / ticks),
        ),
        figure(
            "process_threads",
            "gauge",
            "Threads of the process",
            field(20),
        ),
        figure(
            "process_virtual_memory_bytes",
            "gauge",
            "Memory that the process has asked for",
            field(23),
        ),
        figure(
            "process_resident_memory_bytes",
            "gauge",
            "Memory that the process has",
            field(24).map(|pages| pages * page),
        ),
    ];
    figures.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_read_whatever_the_process_is_called() {
        let stat = "7 (a) b (c) S 1 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12345 1048576 256 18446744073709551615 1 1";
        let found = of_stat(stat);
        let value = |name: &str| found.iter().find(|one| one.0 == name).map(|one| one.3);
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(value("process_cpu_seconds_total"), Some(300.0 / ticks));
        assert_eq!(value("process_threads"), Some(9.0));
        assert_eq!(value("process_virtual_memory_bytes"), Some(1_048_576.0));
        let page = rustix::param::page_size() as f64;
        assert_eq!(value("process_resident_memory_bytes"), Some(256.0 * page));
        assert!(of_stat("").is_empty());
    }
}
