//! Random programs on the memory store, by seed: crashes, lost answers, expired leases, clock jumps, doubled commits,
//! with signals, updates, cancels and restarts, of machines and of workflows.
//! After every action the invariants are checked; in the end everything is driven to completion.
//!
//! `ABIDE_SIM_SEEDS=5000` runs more seeds, `ABIDE_SIM_SEED=17` runs that one and tells what it does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod actions;
mod code;
mod commits;
mod events;
mod messages;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use world::World;

/// How many seeds run unless the environment says otherwise: a few seconds' worth.
const SEEDS: u64 = 150;
/// How many actions a program has.
const ACTIONS: usize = 120;
/// How many of the last actions are shown when a seed fails.
const SHOWN: usize = 12;

#[test]
fn no_program_breaks_an_invariant() {
    // rules 1.1, 1.3, 2.2, 2.4, 2.8, 4.1, 5.3, 6.3, 7.1, 9.2, 10.2, 11.1, 11.2, 11.3, 12.2, 12.3, 12.4, 14.1, 14.5, 14.7 and 16.1
    if let Some(seed) = number("ABIDE_SIM_SEED") {
        let failure = run(seed, true);
        assert!(failure.is_none(), "{}", failure.unwrap_or_default());
        return;
    }
    let (seeds, next) = (
        number("ABIDE_SIM_SEEDS").unwrap_or(SEEDS),
        AtomicU64::new(0),
    );
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    if let Some(failure) = run(seed, false) {
                        failures.lock().unwrap().push((seed, failure));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    if let Some((_, first)) = failures.first() {
        panic!(
            "{} of {seeds} seeds failed; the first:\n{first}",
            failures.len()
        );
    }
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
    std::env::var(variable).ok()?.parse().ok()
}
