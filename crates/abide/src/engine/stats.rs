//! Counters of an engine's work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of an engine's work since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Instances claimed.
    pub claimed: u64,
    /// Outcomes committed.
    pub committed: u64,
    /// Outcomes dropped because the claim was lost.
    pub stale: u64,
    /// Outcomes refused because they broke a rule, or could not be stored.
    pub refused: u64,
    /// Outcomes committed one by one because a transaction that they shared had failed.
    pub separated: u64,
    /// Instances whose failure could not be stored either, counted when that was detected. They are retried at growing
    /// intervals.
    pub stuck: u64,
    /// Transactions that committed outcomes or made claims.
    pub batches: u64,
    /// Instances taken back from dead workers.
    pub reclaimed: u64,
    /// Finished instances deleted.
    pub swept: u64,
    /// Times that the runtime ran no task for a second or more, because a step blocked its threads.
    pub blocked: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub claimed: AtomicU64,
    pub committed: AtomicU64,
    pub stale: AtomicU64,
    pub refused: AtomicU64,
    pub separated: AtomicU64,
    pub stuck: AtomicU64,
    pub batches: AtomicU64,
    pub reclaimed: AtomicU64,
    pub swept: AtomicU64,
    pub blocked: AtomicU64,
}

impl Counters {
    pub fn read(&self) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            claimed: of(&self.claimed),
            committed: of(&self.committed),
            stale: of(&self.stale),
            refused: of(&self.refused),
            separated: of(&self.separated),
            stuck: of(&self.stuck),
            batches: of(&self.batches),
            reclaimed: of(&self.reclaimed),
            swept: of(&self.swept),
            blocked: of(&self.blocked),
        }
    }
}

pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}
