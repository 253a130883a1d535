//! The workflows whose code a worker keeps in memory: a bounded number, and it changes nothing but time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_core::model::InstanceId;

use super::live::Live;

/// The workflows whose code is kept in memory, by instance.
pub(super) struct Cache {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_id: HashMap<InstanceId, Place>,
    /// How many of them have steps that run.
    running: usize,
    clock: u64,
}

struct Place {
    live: Live,
    /// The number of the step that the code goes on with.
    step_seq: u32,
    /// The generation of the database that it has come from: another may lack what this one has committed (rule 1.6).
    generation: i64,
    /// Whether the turn before it is known to be committed.
    committed: bool,
    /// Whether its steps run: it has a worker's claim, and stays however little room there is.
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

    /// Keeps code whose turn is about to be committed, to go on with that step.
    pub fn keep(&self, live: Live, step_seq: u32, generation: i64, running: bool) {
        let mut kept = self.lock();
        kept.clock += 1;
        let used = kept.clock;
        let place = Place {
            step_seq,
            generation,
            committed: false,
            running,
            used,
            live,
        };
        let id = place.live.id();
        let mut gone: Vec<Place> = kept.remove(id).into_iter().collect();
        kept.running += usize::from(running);
        kept.by_id.insert(id, place);
        if kept.by_id.len() - kept.running > self.most {
            gone.extend(kept.make_room());
        }
        // Outside the lock: dropping it is the user's code.
        drop(kept);
        drop(gone);
    }

    /// Notes whether the turn of that step was committed. What was not is ahead of the database, and forgotten.
    pub fn settle(&self, id: InstanceId, step_seq: u32, committed: bool) {
        let mut kept = self.lock();
        let gone = match kept.by_id.get_mut(&id) {
            Some(place) if place.step_seq == step_seq.saturating_add(1) => {
                place.committed = committed;
                (!committed).then(|| kept.remove(id)).flatten()
            }
            _ => None,
        };
        drop(kept);
        drop(gone);
    }

    /// The code that goes on with that step of the same database, if it is here.
    pub fn take(&self, id: InstanceId, step_seq: u32, generation: i64) -> Option<Live> {
        let place = self.lock().remove(id)?;
        // One of another step is of another time; one whose commit nobody has heard of may be ahead of the database.
        let is_it = place.step_seq == step_seq && place.generation == generation;
        (is_it && place.committed).then_some(place.live)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn remove(&mut self, id: InstanceId) -> Option<Place> {
        let place = self.by_id.remove(&id)?;
        self.running -= usize::from(place.running);
        Some(place)
    }

    /// Takes out the eighth that was not used for longest.
    fn make_room(&mut self) -> Vec<Place> {
        let mut used: Vec<(u64, InstanceId)> = self
            .by_id
            .iter()
            .filter(|(_, place)| !place.running)
            .map(|(id, place)| (place.used, *id))
            .collect();
        used.sort_unstable();
        let count = used.len().div_ceil(8);
        let oldest = used.into_iter().take(count);
        oldest.filter_map(|(_, id)| self.remove(id)).collect()
    }
}
