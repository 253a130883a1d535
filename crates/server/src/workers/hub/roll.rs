//! The workers that poll here: under what number the database knows each, and until when it is to.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use abide::{Name, Worker, WorkerId};
use abide_kernel::NewWorker;
use abide_kernel::model::Lane;
use tokio::time::Instant;

use super::{Poll, Waiting};

/// For how long a worker is believed to live after its last sign of life.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// How often the leases of all of them are renewed, in one statement (rule 6.4).
pub(super) const RENEWAL: Duration = Duration::from_secs(10);

struct Known {
    id: WorkerId,
    queues: BTreeSet<Name>,
    lanes: BTreeSet<Lane>,
    seen: Instant,
}

/// The workers that poll here.
#[derive(Default)]
pub(super) struct Roll {
    known: HashMap<Name, Known>,
    /// Polls of workers that the database does not know yet, or not for what they serve now.
    arriving: Vec<Waiting>,
}

impl Roll {
    /// The number of the worker that polls, when the database knows it for that.
    pub fn id(&self, poll: &Poll) -> Option<WorkerId> {
        let known = self.known.get(&poll.worker)?;
        let serves = known.queues.contains(&poll.queue)
            && poll.lanes.iter().all(|lane| known.lanes.contains(lane));
        serves.then_some(known.id)
    }

    /// Notes that a worker lives.
    pub fn see(&mut self, worker: &Name) {
        if let Some(known) = self.known.get_mut(worker) {
            known.seen = Instant::now();
        }
    }

    /// Has a poll wait until its worker is known.
    pub fn arrive(&mut self, waiting: Waiting) {
        self.arriving.push(waiting);
    }

    /// The first workers that are to be made known, each with all that its polls serve.
    pub fn strangers(&mut self, most: usize) -> Vec<NewWorker> {
        self.arriving.retain(|waiting| !waiting.is_gone());
        let mut at: HashMap<Name, usize> = HashMap::new();
        let mut new: Vec<NewWorker> = Vec::new();
        for Waiting { poll, .. } in &self.arriving {
            let place = match at.get(&poll.worker) {
                Some(place) => *place,
                None if new.len() < most => {
                    at.insert(poll.worker.clone(), new.len());
                    new.push(NewWorker {
                        name: poll.worker.clone(),
                        lease: LEASE,
                        queues: Vec::new(),
                        lanes: Vec::new(),
                    });
                    new.len() - 1
                }
                None => continue,
            };
            let Some(worker) = new.get_mut(place) else {
                continue;
            };
            if !worker.queues.contains(&poll.queue) {
                worker.queues.push(poll.queue.clone());
            }
            for lane in poll.lanes.iter() {
                if !worker.lanes.contains(lane) {
                    worker.lanes.push(lane.clone());
                }
            }
        }
        new
    }

    /// Takes in that workers are known now; the polls that waited for it.
    pub fn welcome(&mut self, workers: Vec<Worker>) -> Vec<Waiting> {
        for worker in workers {
            let known = Known {
                id: worker.id,
                queues: worker.queues.into_iter().collect(),
                lanes: worker.lanes.into_iter().collect(),
                seen: Instant::now(),
            };
            self.known.insert(worker.name, known);
        }
        let (ready, stay) = std::mem::take(&mut self.arriving)
            .into_iter()
            .partition(|waiting| self.id(&waiting.poll).is_some());
        self.arriving = stay;
        ready
    }

    /// The polls of these workers, which cannot be made known.
    pub fn turn_away(&mut self, names: &[Name]) -> Vec<Waiting> {
        let (away, stay) = std::mem::take(&mut self.arriving)
            .into_iter()
            .partition(|waiting| names.contains(&waiting.poll.worker));
        self.arriving = stay;
        away
    }

    /// Forgets a worker.
    pub fn forget(&mut self, worker: &Name) {
        self.known.remove(worker);
    }

    /// Whether a worker is still known under that number.
    pub fn is(&self, worker: &Name, id: WorkerId) -> bool {
        self.known.get(worker).is_some_and(|known| known.id == id)
    }

    /// The workers to renew: those that wait here, and those that were seen of late. Others are forgotten.
    pub fn living(&mut self, waiting: &HashSet<Name>) -> Vec<WorkerId> {
        let now = Instant::now();
        self.known
            .retain(|name, known| waiting.contains(name) || now.duration_since(known.seen) < LEASE);
        self.known.values().map(|known| known.id).collect()
    }

    /// Forgets the workers with these numbers: their names.
    pub fn lose(&mut self, lost: &[WorkerId]) -> Vec<Name> {
        let lost: HashSet<&WorkerId> = lost.iter().collect();
        let names = self
            .known
            .iter()
            .filter(|(_, known)| lost.contains(&known.id));
        let names: Vec<Name> = names.map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.known.remove(name);
        }
        names
    }

    /// All polls that wait to be known.
    pub fn empty(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.arriving)
    }
}
