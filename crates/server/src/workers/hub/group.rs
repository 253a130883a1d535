//! A group of polls: those for the same queue and the same machines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use abide::model::Name;
use abide_kernel::model::{Claimed, Lane};
use abide_kernel::{Begun, Demand};
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
    demand: Demand,
    /// `true` while a query is running. A group has one at a time, because the next depends on its width.
    querying: bool,
    /// Number of polls that the next query serves. It doubles as long as all of them get work.
    width: usize,
    /// The time of the last query.
    queried_at: Instant,
}

/// A query for work, for some polls of a group. It is settled when the answer arrives.
pub(super) struct WorkQuery {
    begun: Begun,
    began_at: Instant,
    /// Polls with a smaller number had arrived when the query began.
    before: usize,
}

impl Group {
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            demand: Demand::default(),
            querying: false,
            width: 1,
            queried_at: Instant::now(),
        }
    }

    /// Adds a poll. A poll that does not wait causes a query; for any other, the last result is used while it is
    /// recent.
    pub fn join(&mut self, waiting: Waiting) {
        if waiting.is_once() || self.queried_at.elapsed() >= FLOOR {
            self.demand.wake();
        }
        self.waiting.push_back(waiting);
    }

    /// Records that there may be work.
    pub const fn wake(&mut self) {
        self.demand.wake();
    }

    /// Removes polls whose callers have stopped waiting, and checks whether a query is due.
    pub fn tick(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_gone());
        if self.queried_at.elapsed() >= FLOOR {
            self.demand.wake();
        }
    }

    /// `true` if the group may be forgotten.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && !self.querying && self.queried_at.elapsed() >= REMEMBERED
    }

    /// `true` if a query should start now.
    pub fn wants_query(&self) -> bool {
        self.demand.is_hungry() && !self.querying && !self.waiting.is_empty()
    }

    /// The number of its first poll, which has waited longest.
    pub fn first(&self) -> Option<usize> {
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
    pub fn query(&mut self, most: usize, number: usize) -> (WorkQuery, Vec<Waiting>) {
        let mut polls = Vec::new();
        while polls.len() < self.width.min(most)
            && let Some(waiting) = self.waiting.pop_front()
        {
            if !waiting.is_gone() {
                polls.push(waiting);
            }
        }
        self.querying = true;
        let query = WorkQuery {
            begun: self.demand.begin(),
            began_at: Instant::now(),
            before: number,
        };
        (query, polls)
    }

    /// Settles a query that returned these claims for its polls, in order. Returns the polls to answer, each with its
    /// claims.
    pub fn settle(
        &mut self,
        query: WorkQuery,
        served: Vec<(Waiting, Vec<Claimed>)>,
    ) -> Vec<(Waiting, Vec<Claimed>)> {
        self.querying = false;
        self.queried_at = query.began_at;
        let gets_all =
            |(waiting, claims): &(Waiting, Vec<Claimed>)| claims.len() >= waiting.poll.limit;
        let all = served.iter().all(gets_all);
        self.demand.end(query.begun, all);
        let (mut answered, unserved): (Vec<_>, Vec<_>) = served
            .into_iter()
            .partition(|(waiting, claims)| !claims.is_empty() || waiting.is_once());
        self.come_back(unserved.into_iter().map(|(waiting, _)| waiting).collect());
        if all {
            self.width = (self.width * 2).min(WIDTH_MAX);
            return answered;
        }
        self.width = 1;
        // For polls that do not wait, this was their one query.
        let (once, stay): (VecDeque<_>, _) = self
            .waiting
            .drain(..)
            .partition(|waiting| waiting.is_once() && waiting.number < query.before);
        self.waiting = stay;
        answered.extend(once.into_iter().map(|waiting| (waiting, Vec::new())));
        answered
    }

    /// Takes back the polls of a query that failed. Another query is due.
    pub fn fail(&mut self, polls: Vec<Waiting>) {
        self.querying = false;
        self.demand.fail();
        self.come_back(polls);
    }

    /// Puts polls back at the front, in their order.
    fn come_back(&mut self, polls: Vec<Waiting>) {
        for waiting in polls.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }
}
