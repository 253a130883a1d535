//! The workers that poll this server: the number of each in the database, and when it was last seen.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use abide::model::{Name, Worker, WorkerId};
use abide_kernel::NewWorker;
use abide_kernel::model::Lane;
use abide_kernel::rules::leases;
use tokio::time::Instant;

use super::{Poll, Waiting};

struct Known {
    id: WorkerId,
    queues: BTreeSet<Name>,
    lanes: BTreeSet<Lane>,
    build: Name,
    seen: Instant,
}

/// The workers that poll this server.
#[derive(Default)]
pub(super) struct Roll {
    known: HashMap<Name, Known>,
    /// Polls of workers that are not enlisted in the database yet, or not for what they serve now.
    arriving: Vec<Waiting>,
}

impl Roll {
    /// The number of the polling worker. Returns `None` if it is not enlisted for this queue, these lanes and this
    /// build.
    pub fn id(&self, poll: &Poll) -> Option<WorkerId> {
        let known = self.known.get(&poll.worker)?;
        let serves = known.queues.contains(&poll.queue)
            && poll.lanes.iter().all(|lane| known.lanes.contains(lane))
            && poll
                .build
                .as_ref()
                .is_none_or(|build| *build == known.build);
        serves.then_some(known.id)
    }

    /// Records that a worker is alive.
    pub fn see(&mut self, worker: &Name) {
        if let Some(known) = self.known.get_mut(worker) {
            known.seen = Instant::now();
        }
    }

    /// The builds of the workers that poll this server, each with the lanes that it has code for.
    pub fn builds(&self) -> Vec<(Name, Vec<Lane>)> {
        let mut builds: BTreeMap<&Name, BTreeSet<&Lane>> = BTreeMap::new();
        for known in self.known.values() {
            builds.entry(&known.build).or_default().extend(&known.lanes);
        }
        let builds = builds.into_iter();
        builds
            .map(|(build, lanes)| (build.clone(), lanes.into_iter().cloned().collect()))
            .collect()
    }

    /// Lets a poll wait until its worker is enlisted.
    pub fn arrive(&mut self, waiting: Waiting) {
        self.arriving.push(waiting);
    }

    /// The first workers to enlist, `most` at most, each with all that its polls serve.
    pub fn strangers(&mut self, most: usize) -> Vec<NewWorker> {
        self.arriving.retain(|waiting| !waiting.is_gone());
        let mut at: HashMap<Name, usize> = HashMap::new();
        let mut new: Vec<NewWorker> = Vec::new();
        for Waiting { poll, .. } in &self.arriving {
            let index = match at.get(&poll.worker) {
                Some(index) => *index,
                None if new.len() < most => {
                    at.insert(poll.worker.clone(), new.len());
                    new.push(NewWorker {
                        name: poll.worker.clone(),
                        lease: leases::REMOTE,
                        queues: Vec::new(),
                        lanes: Vec::new(),
                        build: poll.build.clone(),
                    });
                    new.len() - 1
                }
                None => continue,
            };
            let Some(worker) = new.get_mut(index) else {
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

    /// Records that workers are enlisted. Returns the polls that waited for that.
    pub fn welcome(&mut self, workers: Vec<Worker>) -> Vec<Waiting> {
        for worker in workers {
            let known = Known {
                id: worker.id,
                build: worker.build().clone(),
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

    /// Removes and returns the polls of workers that cannot be enlisted.
    pub fn turn_away(&mut self, names: &[Name]) -> Vec<Waiting> {
        let (away, stay) = std::mem::take(&mut self.arriving)
            .into_iter()
            .partition(|waiting| names.contains(&waiting.poll.worker));
        self.arriving = stay;
        away
    }

    /// Removes a worker.
    pub fn forget(&mut self, worker: &Name) {
        self.known.remove(worker);
    }

    /// `true` if a worker is still known under the number `id`.
    pub fn is(&self, worker: &Name, id: WorkerId) -> bool {
        self.known.get(worker).is_some_and(|known| known.id == id)
    }

    /// The workers whose leases to renew: those that wait here and those that were seen recently. Removes the others.
    pub fn living(&mut self, waiting: &HashSet<Name>) -> Vec<WorkerId> {
        let now = Instant::now();
        self.known.retain(|name, known| {
            waiting.contains(name) || now.duration_since(known.seen) < leases::REMOTE
        });
        self.known.values().map(|known| known.id).collect()
    }

    /// Removes the workers with these numbers, and returns their names.
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

    /// Removes and returns all polls whose workers are not enlisted yet.
    pub fn empty(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.arriving)
    }
}
