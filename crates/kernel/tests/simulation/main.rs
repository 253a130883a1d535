//! Random programs on the memory store, by seed: crashes before and after a commit, lost answers, expired leases, clocks
//! that jump both ways, paused workers, doubled requests, poisoned entries; with signals, updates, events, children,
//! partitions, cancels, restarts and sweeps, of machines and of workflows. After every action the invariants are checked.
//! Then the faults stop, and all that can end must end.
//!
//! Each run takes fixed seeds and new ones. `ABIDE_SIM_SEED=17` runs that one and prints what it does,
//! `ABIDE_SIM_SEEDS=5000` runs so many new ones, `ABIDE_SIM_SECONDS=600` runs new ones for so long.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod actions;
mod code;
mod commits;
mod driving;
mod events;
mod faults;
mod messages;
mod waits;
mod world;

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use world::World;

/// The number of fixed seeds that run each time.
const FIXED: u64 = 150;
/// The number of new seeds that run each time, unless the environment sets another.
const NEW: u64 = 1000;
/// The number of actions of a program.
const ACTIONS: usize = 120;
/// The number of last actions that are shown when a seed fails.
const SHOWN: usize = 12;
/// The number of seeds that may fail before no more are tried.
const FAILURES_MOST: usize = 20;

// rules 1.1, 1.3, 2.2, 2.4, 2.8, 4.1, 5.3, 6.3, 7.1, 9.2, 10.2, 11.1, 11.2, 11.3, 12.2, 12.3, 12.4, 14.1, 14.5, 14.7 and 16.1

#[test]
fn fixed_programs_break_no_invariant_and_end() {
    if let Some(seed) = number("ABIDE_SIM_SEED") {
        let failure = run(seed, true);
        assert!(failure.is_none(), "{}", failure.unwrap_or_default());
        return;
    }
    run_all(0, |ran| ran < FIXED);
}

#[test]
fn new_programs_break_no_invariant_and_end() {
    if number("ABIDE_SIM_SEED").is_some() {
        return;
    }
    // Small enough to be typed.
    let base = FIXED + RandomState::new().hash_one("seed") % 1_000_000_000_000;
    println!("the new seeds begin at {base}");
    let began = Instant::now();
    let ran = match number("ABIDE_SIM_SECONDS").map(Duration::from_secs) {
        Some(time) => run_all(base, |_| began.elapsed() < time),
        None => {
            let count = number("ABIDE_SIM_SEEDS").unwrap_or(NEW);
            run_all(base, |ran| ran < count)
        }
    };
    println!("{ran} new seeds in {:?}", began.elapsed());
}

/// Runs the seeds from `base` on, on all cores, as long as `goes_on` is true for the number that have begun; returns
/// that number.
fn run_all(base: u64, goes_on: impl Fn(u64) -> bool + Sync) -> u64 {
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let begun = next.fetch_add(1, Ordering::Relaxed);
                    if !goes_on(begun) || failures.lock().unwrap().len() >= FAILURES_MOST {
                        next.fetch_sub(1, Ordering::Relaxed);
                        break;
                    }
                    if let Some(failure) = run(base + begun, false) {
                        failures.lock().unwrap().push((base + begun, failure));
                    }
                }
            });
        }
    });
    let ran = next.into_inner();
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    if let Some((_, first)) = failures.first() {
        let seeds: Vec<u64> = failures.iter().map(|(seed, _)| *seed).collect();
        panic!(
            "{} of {ran} seeds failed: {seeds:?}; the first:\n{first}",
            failures.len()
        );
    }
    ran
}

/// Runs one seed; what went wrong, and how to see it again.
fn run(seed: u64, tells: bool) -> Option<String> {
    let mut world = World::new(seed, tells);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        world.begin();
        for _ in 0..ACTIONS {
            world.act();
            world.check();
        }
        world.finish();
    }));
    let panic = ran.err()?;
    let why = panic.downcast_ref::<String>().cloned();
    let why = why.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let skipped = world.trace.len().saturating_sub(SHOWN);
    let last: Vec<String> = world.trace.drain(skipped..).collect();
    Some(format!(
        "seed {seed}, line {}: {}\nthe last actions were:\n  {}\nrun it again with:\n  \
         ABIDE_SIM_SEED={seed} cargo test -p abide-kernel --test simulation -- --nocapture\n",
        skipped + last.len(),
        why.unwrap_or_default(),
        last.join("\n  "),
    ))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} must be a whole number, and is {text:?}")))
}
