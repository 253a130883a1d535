//! A group of polls: those for the same queue and the same machines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use abide::model::Name;
use abide_kernel::model::{Claimed, Lane};
use tokio::time::Instant;

use super::Waiting;

/// How long a group that was found empty is considered empty, if no notification of work arrives.
pub(super) const FLOOR: Duration = Duration::from_secs(5);
/// How long a group without polls is kept.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Maximum number of polls of one group that one query serves.
const WIDTH_MAX: usize = 64;

/// The properties that the polls of a group share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Spot {
    pub queue: Name,
    pub lanes: Arc<[Lane]>,
    /// Work that one build can run may not be runnable by another (rule 12.4).
    pub build: Option<Name>,
}

/// Polls for the same queue and machines, in the order of their arrival.
pub(super) struct Group {
    waiting: VecDeque<Waiting>,
    /// `true` if there may be work that was not queried.
    hungry: bool,
    /// `true` while a query is running.
    querying: bool,
    /// Number of wake-ups, so that one that arrives during a query is not lost.
    wakes: u64,
    /// Number of polls that the next query serves. It doubles as long as all of them get work.
    width: usize,
    /// The time of the last query.
    queried_at: Instant,
}

/// A query for work, for some polls of a group. It is settled when the answer arrives.
pub(super) struct WorkQuery {
    taken: Vec<Waiting>,
    wakes: u64,
    began: Instant,
    /// Polls with a smaller number had arrived when the query began.
    before: u64,
}

impl WorkQuery {
    /// The polls that it serves.
    pub fn polls(&self) -> &[Waiting] {
        &self.taken
    }

    /// Separates the query from its polls.
    pub fn split(mut self) -> (Self, Vec<Waiting>) {
        let taken = std::mem::take(&mut self.taken);
        (self, taken)
    }

    /// Returns the same query for the polls `taken`, because some may have left it.
    pub fn with(self, taken: Vec<Waiting>) -> Self {
        Self { taken, ..self }
    }
}

impl Group {
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            hungry: true,
            querying: false,
            wakes: 0,
            width: 1,
            queried_at: Instant::now(),
        }
    }

    /// Adds a poll. A poll that does not wait causes a query; for any other, the last result is used while it is
    /// recent.
    pub fn join(&mut self, waiting: Waiting) {
        self.hungry |= waiting.is_once() || self.queried_at.elapsed() >= FLOOR;
        self.waiting.push_back(waiting);
    }

    /// Records that there may be work.
    pub fn wake(&mut self) {
        self.hungry = true;
        self.wakes += 1;
    }

    /// Removes polls whose callers have stopped waiting, and checks whether a query is due.
    pub fn tick(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_gone());
        self.hungry |= self.queried_at.elapsed() >= FLOOR;
    }

    /// `true` if the group may be forgotten.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && !self.querying && self.queried_at.elapsed() >= REMEMBERED
    }

    /// `true` if a query should start now.
    pub fn wants_query(&self) -> bool {
        self.hungry && !self.querying && !self.waiting.is_empty()
    }

    /// The number of its first poll, which has waited longest.
    pub fn first(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.number)
    }

    /// The workers that wait in it.
    pub fn workers(&self) -> impl Iterator<Item = &Name> {
        self.waiting
            .iter()
            .filter(|waiting| !waiting.is_gone())
            .map(|waiting| &waiting.poll.worker)
    }

    /// Removes and returns the polls of a worker.
    pub fn leave(&mut self, worker: &Name) -> Vec<Waiting> {
        let (left, stay): (VecDeque<_>, _) = self
            .waiting
            .drain(..)
            .partition(|waiting| waiting.poll.worker == *worker);
        self.waiting = stay;
        left.into()
    }

    /// Removes and returns all polls.
    pub fn empty(&mut self) -> Vec<Waiting> {
        self.waiting.drain(..).collect()
    }

    /// Begins a query for the first polls, `most` at most. `number` is the number of the next poll to arrive.
    pub fn query(&mut self, most: usize, number: u64) -> WorkQuery {
        let mut taken = Vec::new();
        while taken.len() < self.width.min(most)
            && let Some(waiting) = self.waiting.pop_front()
        {
            if !waiting.is_gone() {
                taken.push(waiting);
            }
        }
        self.querying = true;
        self.hungry = false;
        WorkQuery {
            taken,
            wakes: self.wakes,
            began: Instant::now(),
            before: number,
        }
    }

    /// Settles a query that returned `brought` for its polls, in order. Returns the polls to answer, each with its
    /// claims.
    pub fn settle(
        &mut self,
        query: WorkQuery,
        brought: Vec<Vec<Claimed>>,
    ) -> Vec<(Waiting, Vec<Claimed>)> {
        self.querying = false;
        self.queried_at = query.began;
        let mut answered = Vec::new();
        let mut unserved = Vec::new();
        let mut exhausted = false;
        for (waiting, claims) in query.taken.into_iter().zip(brought) {
            exhausted |= claims.len() < waiting.poll.limit;
            match claims.is_empty() && !waiting.is_once() {
                true => unserved.push(waiting),
                false => answered.push((waiting, claims)),
            }
        }
        self.come_back(unserved);
        if exhausted {
            // For polls that do not wait, this was their one query.
            let (once, stay): (VecDeque<_>, _) = self
                .waiting
                .drain(..)
                .partition(|waiting| waiting.is_once() && waiting.number < query.before);
            self.waiting = stay;
            answered.extend(once.into_iter().map(|waiting| (waiting, Vec::new())));
        }
        let newer = self.waiting.iter().any(Waiting::is_once);
        self.hungry |= !exhausted || newer || self.wakes > query.wakes;
        self.width = if exhausted {
            1
        } else {
            (self.width * 2).min(WIDTH_MAX)
        };
        answered
    }

    /// Takes back the polls of a query that failed. Another query is due.
    pub fn fail(&mut self, taken: Vec<Waiting>) {
        self.querying = false;
        self.hungry = true;
        self.come_back(taken);
    }

    /// Puts polls back at the front, in their order.
    fn come_back(&mut self, polls: Vec<Waiting>) {
        for waiting in polls.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }
}
