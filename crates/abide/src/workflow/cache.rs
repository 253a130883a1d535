//! A cache of workflows whose code a worker keeps in memory. It is bounded, and only saves time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_core::model::InstanceId;

use super::live::Live;

/// Workflows whose code is kept in memory, by instance.
pub(super) struct Cache {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_id: HashMap<InstanceId, CacheEntry>,
    /// The number of them that have running steps.
    running: usize,
    clock: u64,
}

struct CacheEntry {
    live: Live,
    /// The number of the step with which the code continues.
    step_seq: u32,
    /// The generation of the database that it belongs to. Another generation may lack what this one has committed
    /// (rule 1.6).
    generation: i64,
    /// `true` if the turn before it is known to be committed.
    committed: bool,
    /// `true` if its steps run. Then it has a worker's claim, and is never evicted.
    running: bool,
    used: u64,
}

impl Cache {
    pub fn new(most: usize) -> Self {
        Self {
            most,
            kept: Mutex::default(),
        }
    }

    /// Keeps code whose turn is about to be committed, to continue with this step.
    pub fn keep(&self, live: Live, step_seq: u32, generation: i64, running: bool) {
        let mut kept = self.lock();
        kept.clock += 1;
        let used = kept.clock;
        let entry = CacheEntry {
            step_seq,
            generation,
            committed: false,
            running,
            used,
            live,
        };
        let id = entry.live.id();
        let mut gone: Vec<CacheEntry> = kept.remove(id).into_iter().collect();
        kept.running += usize::from(running);
        kept.by_id.insert(id, entry);
        if kept.by_id.len() - kept.running > self.most {
            gone.extend(kept.make_room());
        }
        // Outside the lock, because dropping it runs user code.
        drop(kept);
        drop(gone);
    }

    /// Notes if the turn of this step was committed. If it was not, the code is ahead of the database, and is dropped.
    pub fn settle(&self, id: InstanceId, step_seq: u32, committed: bool) {
        let mut kept = self.lock();
        let gone = match kept.by_id.get_mut(&id) {
            Some(entry) if entry.step_seq == step_seq.saturating_add(1) => {
                entry.committed = committed;
                (!committed).then(|| kept.remove(id)).flatten()
            }
            _ => None,
        };
        drop(kept);
        drop(gone);
    }

    /// Returns the code that continues with this step in the same generation of the database, if it is here.
    pub fn take(&self, id: InstanceId, step_seq: u32, generation: i64) -> Option<Live> {
        let entry = self.lock().remove(id)?;
        // Code at another step is out of date. Code whose commit is not confirmed may be ahead of the database.
        let is_it = entry.step_seq == step_seq && entry.generation == generation;
        (is_it && entry.committed).then_some(entry.live)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn remove(&mut self, id: InstanceId) -> Option<CacheEntry> {
        let entry = self.by_id.remove(&id)?;
        self.running -= usize::from(entry.running);
        Some(entry)
    }

    /// Removes the least recently used eighth.
    fn make_room(&mut self) -> Vec<CacheEntry> {
        let mut used: Vec<(u64, InstanceId)> = self
            .by_id
            .iter()
            .filter(|(_, entry)| !entry.running)
            .map(|(id, entry)| (entry.used, *id))
            .collect();
        used.sort_unstable();
        let count = used.len().div_ceil(8);
        let oldest = used.into_iter().take(count);
        oldest.filter_map(|(_, id)| self.remove(id)).collect()
    }
}
