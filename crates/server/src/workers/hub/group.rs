//! Polls for the same queue and the same machines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use abide::Name;
use abide_kernel::model::{Claimed, Lane};
use tokio::time::Instant;

use super::Waiting;

/// How long a group that was found empty is believed to be, when nobody tells of work.
pub(super) const FLOOR: Duration = Duration::from_secs(5);
/// How long a group is remembered that nobody waits in.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The most polls of one group that are served by one look.
const WIDTH_MAX: usize = 64;

/// What polls of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Spot {
    pub queue: Name,
    pub lanes: Arc<[Lane]>,
}

/// Polls for the same queue and machines, in the order in which they came.
pub(super) struct Group {
    waiting: VecDeque<Waiting>,
    /// Whether there may be work that was not asked for.
    hungry: bool,
    /// Whether a look is under way.
    looking: bool,
    /// Counts the wakes, so that one that comes while a look is under way is not forgotten.
    wakes: u64,
    /// How many polls the next look serves: more and more, as long as all of them are.
    width: usize,
    /// When it was last looked.
    looked: Instant,
}

/// What a look at a group takes along, to be settled when it is back.
pub(super) struct Look {
    taken: Vec<Waiting>,
    wakes: u64,
    began: Instant,
    /// Polls below that number had come when it began.
    before: u64,
}

impl Look {
    /// The polls that it is made for.
    pub fn polls(&self) -> &[Waiting] {
        &self.taken
    }

    /// The look without its polls, and they.
    pub fn split(mut self) -> (Self, Vec<Waiting>) {
        let taken = std::mem::take(&mut self.taken);
        (self, taken)
    }

    /// The same look for these polls: some may have left it.
    pub fn with(self, taken: Vec<Waiting>) -> Self {
        Self { taken, ..self }
    }
}

impl Group {
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            hungry: true,
            looking: false,
            wakes: 0,
            width: 1,
            looked: Instant::now(),
        }
    }

    /// Takes a poll in. One that is answered after a look has one made for it; another trusts what is known.
    pub fn join(&mut self, waiting: Waiting) {
        self.hungry |= waiting.is_once() || self.looked.elapsed() >= FLOOR;
        self.waiting.push_back(waiting);
    }

    /// Hears that there may be work.
    pub fn wake(&mut self) {
        self.hungry = true;
        self.wakes += 1;
    }

    /// Drops the polls that nobody waits for any more, and hears what time it is.
    pub fn tick(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_gone());
        self.hungry |= self.looked.elapsed() >= FLOOR;
    }

    /// Whether it may be forgotten.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && !self.looking && self.looked.elapsed() >= REMEMBERED
    }

    /// Whether it is to be looked at now.
    pub fn wants_look(&self) -> bool {
        self.hungry && !self.looking && !self.waiting.is_empty()
    }

    /// Since when the first of its polls waits.
    pub fn first(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.number)
    }

    /// Who waits in it.
    pub fn workers(&self) -> impl Iterator<Item = &Name> {
        self.waiting
            .iter()
            .filter(|waiting| !waiting.is_gone())
            .map(|waiting| &waiting.poll.worker)
    }

    /// Takes out the polls of a worker.
    pub fn leave(&mut self, worker: &Name) -> Vec<Waiting> {
        let (left, stay): (VecDeque<_>, _) = self
            .waiting
            .drain(..)
            .partition(|waiting| waiting.poll.worker == *worker);
        self.waiting = stay;
        left.into()
    }

    /// All its polls.
    pub fn empty(&mut self) -> Vec<Waiting> {
        self.waiting.drain(..).collect()
    }

    /// Begins a look for the first polls, at most that many. `number` is that of the next poll to come.
    pub fn look(&mut self, most: usize, number: u64) -> Look {
        let mut taken = Vec::new();
        while taken.len() < self.width.min(most)
            && let Some(waiting) = self.waiting.pop_front()
        {
            if !waiting.is_gone() {
                taken.push(waiting);
            }
        }
        self.looking = true;
        self.hungry = false;
        Look {
            taken,
            wakes: self.wakes,
            began: Instant::now(),
            before: number,
        }
    }

    /// Settles a look that has brought so much for each of its polls, in order: what each is to be told.
    pub fn settle(
        &mut self,
        look: Look,
        brought: Vec<Vec<Claimed>>,
    ) -> Vec<(Waiting, Vec<Claimed>)> {
        self.looking = false;
        self.looked = look.began;
        let mut told = Vec::new();
        let mut unserved = Vec::new();
        let mut exhausted = false;
        for (waiting, claims) in look.taken.into_iter().zip(brought) {
            exhausted |= claims.len() < waiting.poll.limit;
            match claims.is_empty() && !waiting.is_once() {
                true => unserved.push(waiting),
                false => told.push((waiting, claims)),
            }
        }
        self.come_back(unserved);
        if exhausted {
            // Whoever asked for one look has had it.
            let (once, stay): (VecDeque<_>, _) = self
                .waiting
                .drain(..)
                .partition(|waiting| waiting.is_once() && waiting.number < look.before);
            self.waiting = stay;
            told.extend(once.into_iter().map(|waiting| (waiting, Vec::new())));
        }
        let newer = self.waiting.iter().any(Waiting::is_once);
        self.hungry |= !exhausted || newer || self.wakes > look.wakes;
        self.width = if exhausted {
            1
        } else {
            (self.width * 2).min(WIDTH_MAX)
        };
        told
    }

    /// Takes back the polls of a look that came to nothing; another is due.
    pub fn fail(&mut self, taken: Vec<Waiting>) {
        self.looking = false;
        self.hungry = true;
        self.come_back(taken);
    }

    /// Puts polls back where they stood.
    fn come_back(&mut self, polls: Vec<Waiting>) {
        for waiting in polls.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }
}
