//! Command-line arguments.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::site::Store;
use crate::workloads::Workload;

/// The text of `--help`.
pub const USAGE: &str = "\
Measures abide side by side with the database's own limit, and prints the ratios.

usage: abide-bench [--only W1,W2] [--store sqlite|postgres] [--postgres URL] [--rounds N]
                   [--waiters N] [--grown N] [--held SECONDS] [--tiny]
                   [--json | --markdown] [--plots DIR]

  --only LIST       these workloads: W1, W2, W2F, START, W3a, W3a-2, W3b, W3b-1k, W3b-done, HTTP,
                    W4-size, W4-batch, W5, W6, W6-held, W7, W8, DISK, CACHE, MEM, OUTBOX, IDLE, DUE,
                    REPLAY, REPLAY-db; all unless given
  --store STORE     sqlite or postgres; both unless given
  --postgres URL    measure on that server, as a role that may create databases (they are dropped again);
                    unless given, a private PostgreSQL is started and removed, with fsync on
  --rounds N        how often limit and abide are measured in turn; 5 unless given
  --waiters N       how many wait where W4-size has many; 100,000 unless given, 1,000,000 for the whole of it
  --grown N         finished rows of W6, and a tenth as many scheduled ones; 500,000 unless given, 10,000,000 for the whole
  --held SECONDS    how long W6-held holds a snapshot; 20 unless given, 600 for the whole
  --tiny            a hundredth of all numbers and times: shows that the bench works, and no figure means anything
  --json            print {\"rows\": [...]} instead of a table
  --markdown        print the section of docs/performance.md that has the figures
  --plots DIR       write plots there, as SVG
  --help            print this

The files of SQLite and of the private PostgreSQL lie in the temporary directory: point TMPDIR at a real disk.
The exit code is 0 whether floors are met or missed, 1 when measuring failed, 2 when called wrongly.";

/// Mode of this process.
#[derive(Debug, PartialEq, Eq)]
pub enum Mode {
    /// Say how to call it.
    Help,
    /// Measure.
    Run(Plan),
    /// Be the fresh process whose memory is measured.
    Resident(String, Duration),
    /// Be the other process that listens.
    Listen(String),
    /// Be the other process that runs an engine.
    Worker(String),
    /// Be the server.
    Serve(String),
    /// Be one of several processes that run an engine.
    Drain(String),
    /// Be the process that keeps so many of so many workflows in memory.
    Cached(String, usize, usize),
}

/// The measurements to make, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    pub workloads: Vec<Workload>,
    pub stores: Vec<Store>,
    pub postgres: Option<String>,
    pub rounds: usize,
    pub waiters: usize,
    /// Number of finished rows of W6.
    pub grown: usize,
    /// Time for which a snapshot is held.
    pub held: Duration,
    pub tiny: bool,
    pub print: Print,
    /// Directory for plots.
    pub plots: Option<PathBuf>,
}

/// What is printed at the end.
#[derive(Debug, PartialEq, Eq)]
pub enum Print {
    Table,
    Json,
    Markdown,
}

impl Plan {
    /// Number of things of a workload that has so many.
    pub fn of(&self, number: usize) -> usize {
        if self.tiny {
            number.div_ceil(TINY as usize)
        } else {
            number
        }
    }

    /// Time of a workload that takes so long.
    pub fn time(&self, time: Duration) -> Duration {
        if self.tiny { time / TINY } else { time }
    }
}

/// Part of everything that `--tiny` leaves: one in so many.
const TINY: u32 = 100;

/// Flags by which the parent process starts another one; of no use by hand.
pub const RESIDENT: &str = "--resident";
pub const LISTEN: &str = "--listen";
pub const WORKER: &str = "--worker";
pub const SERVE: &str = "--serve";
pub const DRAIN: &str = "--drain";
pub const CACHED: &str = "--cached";

/// Reads the arguments; the error says what would be right.
pub fn read(args: impl Iterator<Item = String>) -> Result<Mode, String> {
    let mut plan = Plan {
        workloads: Workload::ALL.to_vec(),
        stores: Store::ALL.to_vec(),
        postgres: None,
        rounds: 5,
        waiters: 100_000,
        grown: 500_000,
        held: Duration::from_secs(20),
        tiny: false,
        print: Print::Table,
        plots: None,
    };
    // `--store=sqlite` is `--store sqlite`.
    let mut args = args.flat_map(|arg| match arg.split_once('=') {
        Some((name, value)) if name.starts_with("--") => vec![name.to_owned(), value.to_owned()],
        _ => vec![arg],
    });
    while let Some(arg) = args.next() {
        let mut value = |what: &str| {
            args.next()
                .filter(|value| !value.is_empty())
                .ok_or_else(|| format!("{arg} wants {what} after it"))
        };
        match arg.as_str() {
            "--help" | "-h" => return Ok(Mode::Help),
            RESIDENT => {
                let url = value("a connection string")?;
                let watched = within(&arg, &value("milliseconds")?, 0..=600_000)?;
                let watched = Duration::from_millis(watched as u64);
                return Ok(Mode::Resident(url, watched));
            }
            LISTEN => return Ok(Mode::Listen(value("a connection string")?)),
            WORKER => return Ok(Mode::Worker(value("a connection string")?)),
            SERVE => return Ok(Mode::Serve(value("a connection string")?)),
            DRAIN => return Ok(Mode::Drain(value("a connection string")?)),
            CACHED => {
                let url = value("a connection string")?;
                let workflows = within(&arg, &value("a number")?, 1..=1_000_000)?;
                let kept = within(&arg, &value("a number")?, 0..=1_000_000)?;
                return Ok(Mode::Cached(url, workflows, kept));
            }
            "--json" => plan.print = Print::Json,
            "--markdown" => plan.print = Print::Markdown,
            "--plots" => plan.plots = Some(value("a directory")?.into()),
            "--tiny" => plan.tiny = true,
            "--only" => plan.workloads = workloads(&value("workloads, like W1,W2")?)?,
            "--store" => plan.stores = vec![store(&value("sqlite or postgres")?)?],
            "--postgres" => plan.postgres = Some(url(value("a URL")?)?),
            "--rounds" => plan.rounds = within(&arg, &value("a number")?, 1..=99)?,
            "--waiters" => {
                plan.waiters = within(&arg, &value("a number")?, 10_000..=1_000_000)?;
            }
            "--grown" => plan.grown = within(&arg, &value("a number")?, 1_000..=10_000_000)?,
            "--held" => {
                let seconds = within(&arg, &value("seconds")?, 1..=3_600)?;
                plan.held = Duration::from_secs(seconds as u64);
            }
            _ => return Err(format!("there is no argument {arg}")),
        }
    }
    if plan.postgres.is_some() && !plan.stores.contains(&Store::Postgres) {
        return Err(
            "--postgres is of no use with --store sqlite: leave one of them out".to_owned(),
        );
    }
    Ok(Mode::Run(plan))
}

fn workloads(list: &str) -> Result<Vec<Workload>, String> {
    let named = |name: &str| {
        let found = Workload::ALL
            .iter()
            .find(|workload| workload.name().eq_ignore_ascii_case(name.trim()));
        found.copied().ok_or_else(|| {
            let all: Vec<&str> = Workload::ALL.iter().map(|one| one.name()).collect();
            format!("there is no workload {name:?}: they are {}", all.join(", "))
        })
    };
    list.split(',').map(named).collect()
}

fn store(name: &str) -> Result<Store, String> {
    let found = Store::ALL.iter().find(|store| store.name() == name);
    found
        .copied()
        .ok_or_else(|| format!("there is no store {name:?}: write sqlite or postgres"))
}

fn url(url: String) -> Result<String, String> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        Ok(url)
    } else {
        Err(format!(
            "{url:?} is not a URL of a PostgreSQL: write postgres://role:password@host:5432"
        ))
    }
}

fn within(arg: &str, number: &str, allowed: RangeInclusive<usize>) -> Result<usize, String> {
    match number.parse() {
        Ok(number) if allowed.contains(&number) => Ok(number),
        _ => {
            let (least, most) = allowed.into_inner();
            Err(format!(
                "{arg} wants a number from {least} to {most}, not {number:?}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Result<Mode, String> {
        read(line.split_whitespace().map(str::to_owned))
    }

    fn plan(line: &str) -> Plan {
        match read_line(line) {
            Ok(Mode::Run(plan)) => plan,
            other => panic!("{line:?} is no plan: {other:?}"),
        }
    }

    #[test]
    fn without_arguments_everything_is_measured() {
        let plan = plan("");
        assert_eq!(plan.workloads, Workload::ALL);
        assert_eq!(plan.stores, Store::ALL);
        assert_eq!(plan.print, Print::Table);
    }

    #[test]
    fn what_is_named_is_measured_and_nothing_else() {
        let plan = plan("--only w1,START --store=sqlite --rounds 3 --json");
        assert_eq!(plan.workloads, [Workload::W1, Workload::Start]);
        assert_eq!(plan.stores, [Store::Sqlite]);
        assert!(plan.print == Print::Json && plan.rounds == 3);
    }

    #[test]
    fn a_mistake_is_answered_with_what_would_be_right() {
        for (line, right) in [
            ("--only W9", "W1, W2, W2F, START"),
            ("--store mysql", "sqlite or postgres"),
            ("--store", "sqlite or postgres"),
            ("--postgres host=db", "postgres://"),
            (
                "--store sqlite --postgres postgres://db",
                "leave one of them out",
            ),
            ("--rounds 0", "1 to 99"),
            ("--waiters 1000", "10000 to 1000000"),
            ("--held 0", "1 to 3600"),
            ("--fast", "no argument --fast"),
        ] {
            let mistake = read_line(line).unwrap_err();
            assert!(mistake.contains(right), "{line}: {mistake}");
        }
    }

    #[test]
    fn the_usage_names_every_workload() {
        for workload in Workload::ALL {
            assert!(USAGE.contains(workload.name()), "{}", workload.name());
        }
    }
}
