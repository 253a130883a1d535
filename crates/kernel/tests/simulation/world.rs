//! The world of a simulation: a store, its clock, the workers with what they believe to hold, and what must be true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use abide_kernel::conformance::random::Rng;
use abide_kernel::conformance::random_turns::WORKFLOW;
use abide_kernel::conformance::{inboxes, invariants, waiters};
use abide_kernel::memory::Memory;
use abide_kernel::model::{
    Claim, Claimed, Command, CommandId, Entry, Epoch, Event, HistoryEvent, Instance, InstanceId,
    Limits, Outcome, Timestamp, Waiter, WorkerId,
};
use abide_kernel::{Answer, Cursor, Error, EventFilter, Filter, ManualClock, Op, Store};
use futures_util::FutureExt;

use crate::waits::{Waits, child_ends};

/// A small limit, so that a batch over it is cheap.
pub const BATCH_MOST: usize = 40;
/// A small limit, so that what is over it is cheap.
pub const STATE_MOST: usize = 500;
/// Types that enough wait for.
const WAITERS_MOST: usize = 12;
/// Inboxes that get full.
const INBOX_MOST: usize = 9;

pub struct World {
    pub rng: Rng,
    pub clock: ManualClock,
    pub store: Memory,
    pub workers: Vec<Worker>,
    /// Workers that stand still, and know nothing of what happens meanwhile.
    pub paused: Vec<Worker>,
    /// Commits that were taken, to be sent again.
    pub taken: Vec<(Claim, Outcome)>,
    /// Claims whose holder has forgotten them: they may still hold, or not.
    pub limbo: Vec<Claim>,
    /// The cursor at which the last sweep stopped.
    pub cursor: Option<Cursor>,
    /// Every hold that a claim has granted.
    granted: BTreeSet<(InstanceId, Epoch)>,
    /// Every worker that was ever registered.
    known: BTreeSet<WorkerId>,
    /// The instances when they were last read.
    pub seen: BTreeMap<InstanceId, Instance>,
    /// The known waits.
    pub waits: Waits,
    /// The number of operations that workflows have begun: each has a number of its own.
    pub operations: u32,
    tells: bool,
    pub trace: Vec<String>,
}

/// A worker process, as it sees itself.
pub struct Worker {
    pub id: WorkerId,
    pub name: usize,
    pub held: Vec<Held>,
}

/// An instance that a worker believes to hold.
pub struct Held {
    pub claim: Claim,
    pub step_seq: u32,
    pub attempt: u32,
    /// The signals that the step was handed.
    pub awaited: Vec<CommandId>,
    /// The updates that go first.
    pub updates: Vec<CommandId>,
    /// True if there is no step to run.
    pub aside: bool,
    /// The number of its children that had not ended, and the number of ends that had been counted.
    pub children: (u32, u64),
    /// The commands that were pending when it was committed.
    pub pending: BTreeSet<CommandId>,
}

/// The answer that a caller receives to its request.
#[derive(Debug)]
pub enum Heard {
    /// The answers.
    Answers(Vec<Answer>),
    /// An error: nothing was written.
    Refused,
    /// None: it was written, but the answer was lost. These are the lost answers.
    Lost(Vec<Answer>),
}

impl World {
    pub fn new(seed: u64, tells: bool) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_767_225_600_000_000));
        let limits = Limits {
            batch_entries: BATCH_MOST,
            inbox_pending: INBOX_MOST,
            waiters_per_type: WAITERS_MOST,
            state_bytes: STATE_MOST,
            payload_bytes: STATE_MOST,
            ..Limits::default()
        };
        Self {
            rng: Rng::new(seed),
            store: Memory::new(Arc::new(clock.clone()), limits),
            clock,
            workers: Vec::new(),
            paused: Vec::new(),
            taken: Vec::new(),
            limbo: Vec::new(),
            cursor: None,
            granted: BTreeSet::new(),
            known: BTreeSet::new(),
            seen: BTreeMap::new(),
            waits: Waits::default(),
            operations: 0,
            tells,
            trace: Vec::new(),
        }
    }

    pub fn tell(&mut self, what: String) {
        if self.tells {
            println!("{:>4} {what}", self.trace.len());
        }
        self.trace.push(what);
    }

    /// Runs operations on a store that may be down, or fall silent after it has written.
    pub fn send(&mut self, ops: Arc<[Op]>) -> Heard {
        if self.rng.chance(6) {
            self.tell("  the store is down".into());
            return Heard::Refused;
        }
        let answers = self.run(ops).expect("the operations are good");
        if self.rng.chance(8) {
            self.tell("  it is written, and the answer is lost".into());
            return Heard::Lost(answers);
        }
        Heard::Answers(answers)
    }

    /// Runs operations without trouble, and notes what holds were granted, whether or not a caller receives the answer.
    pub fn run(&mut self, ops: Arc<[Op]>) -> Result<Vec<Answer>, Error> {
        let answers = now(self.store.run(ops.clone()));
        if let Ok(answers) = &answers {
            let store = &self.store;
            let ends = |id| child_ends(&now(invariants::history(store, id)).unwrap());
            self.waits.note(&ops, answers, ends);
        }
        for answer in answers.iter().flatten() {
            match answer {
                Answer::Claimed(claimed) => {
                    for one in claimed {
                        let hold = (one.claim.id(), one.claim.epoch());
                        assert!(self.granted.insert(hold), "{hold:?} was granted twice");
                    }
                }
                Answer::Registered(worker) => {
                    self.known.insert(worker.id);
                }
                _ => {}
            }
        }
        answers
    }

    /// True if a claim has granted this hold: then no commit may have kept it.
    pub fn is_granted(&self, claim: &Claim) -> bool {
        self.granted.contains(&(claim.id(), claim.epoch()))
    }

    /// Everything that can be read, to see whether something changed.
    pub fn snapshot(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        (
            self.instances(),
            self.records(),
            self.waiters(),
            self.events(),
            now(self.store.workers()).unwrap(),
            now(self.store.next_due()).unwrap(),
        )
    }

    pub fn instances(&self) -> Vec<Instance> {
        let page = now(self.store.list(&Filter::default(), None, usize::MAX)).unwrap();
        page.items
    }

    pub fn records(&self) -> Vec<Command> {
        now(invariants::records(&self.store)).unwrap()
    }

    pub fn waiters(&self) -> Vec<Waiter> {
        now(waiters::standing(&self.store)).unwrap()
    }

    pub fn events(&self) -> Vec<Event> {
        let all = EventFilter::default();
        now(self.store.events(&all, None, usize::MAX - 1))
            .unwrap()
            .items
    }

    /// The commands that are pending in an inbox.
    pub fn inbox(&self, id: InstanceId) -> Vec<Command> {
        now(self.store.inbox(id)).unwrap()
    }

    /// The history of an instance.
    pub fn history(&self, id: InstanceId) -> Vec<Entry> {
        now(invariants::history(&self.store, id)).unwrap()
    }

    /// True if an instance runs as a workflow.
    pub fn is_workflow(&self, id: InstanceId) -> bool {
        let of = |one: &Instance| one.machine.as_str() == WORKFLOW;
        self.seen.get(&id).is_some_and(of)
    }

    /// True if an instance has ended because another held its key when it would have taken it (rule 2.8).
    pub fn met_taken_key(&self, id: InstanceId) -> bool {
        let all = self.instances();
        let found = all.iter().find(|one| one.id == id);
        found.is_some_and(|one| {
            let error = one.last_error.as_deref().unwrap_or_default();
            one.status.is_terminal() && error.contains(" is taken by instance ")
        })
    }

    /// Checks that a step whose commit was acknowledged is in the history.
    pub fn check_recorded(&self, id: InstanceId, step: u32, tried: u32) {
        let entries = now(invariants::history(&self.store, id)).unwrap();
        let recorded = entries.iter().any(|entry| match entry.what {
            HistoryEvent::StepCompleted {
                step_sequence,
                attempt,
                ..
            }
            | HistoryEvent::StepFailed {
                step_sequence,
                attempt,
                ..
            } => (step_sequence, attempt) == (step, tried),
            _ => false,
        });
        let kept = self.seen.get(&id).is_none_or(|instance| instance.history);
        assert!(
            recorded || !kept,
            "step {step}, attempt {tried} of {id} was acknowledged and is lost"
        );
    }

    /// The number of children of an instance that have not ended.
    pub fn live_children(&self, id: InstanceId) -> u32 {
        let all = self.instances();
        let lives = |one: &&Instance| one.parent == Some(id) && !one.status.is_terminal();
        all.iter().filter(lives).count() as u32
    }

    /// Checks that a parent is handed all the children it has spawned, and no others.
    pub fn check_joined(&self, claimed: &Claimed) {
        let id = claimed.claim.id();
        if claimed.machine.as_str() == WORKFLOW {
            assert!(claimed.children.is_empty(), "{id} reads its own");
            assert_eq!(claimed.children_pending, self.live_children(id), "{id}");
            return;
        }
        if claimed.aside {
            assert!(claimed.children.is_empty(), "{id} does not join yet");
            return;
        }
        let entries = now(invariants::history(&self.store, id)).unwrap();
        let spawned = entries.iter().rev().find_map(|entry| match entry.what {
            HistoryEvent::ChildrenSpawned { barrier, count, .. } => {
                Some((Some(barrier), count as usize))
            }
            // rule 11.2: a restarted run takes over the children that the failed step had joined.
            HistoryEvent::HandedAgain { children, .. } => Some((None, children as usize)),
            _ => None,
        });
        match (claimed.joins, spawned) {
            (Some(joins), Some((barrier, count))) => {
                assert_eq!(
                    (joins, claimed.children.len()),
                    (barrier.unwrap_or(joins), count),
                    "{id} joins"
                );
            }
            (Some(_), None) => assert!(entries.is_empty(), "{id} joins what it has not spawned"),
            (None, _) => assert!(claimed.children.is_empty(), "{id} joins nothing"),
        }
    }

    /// Checks what must be true at every moment; histories only of what has changed.
    pub fn check(&mut self) {
        let instances = self.instances();
        let mut found = invariants::of_rows(&instances, true);
        found.extend(inboxes::of_messages(&instances, &self.records(), true));
        found.extend(waiters::of_waiters(&instances, &self.waiters()));
        found.extend(now(invariants::examined(&self.store)).unwrap());
        for instance in &instances {
            if self.seen.get(&instance.id) != Some(instance) {
                let entries = now(invariants::history(&self.store, instance.id)).unwrap();
                found.extend(invariants::of_history(instance, &entries));
            }
            if let Some(worker) = instance.worker
                && !self.known.contains(&worker)
            {
                found.push(format!(
                    "{} is held by {worker}, which was never registered",
                    instance.id
                ));
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
        self.seen = instances.into_iter().map(|one| (one.id, one)).collect();
    }

    /// True if few enough have not ended: a program that gets too large cannot be checked at every turn.
    pub fn has_room(&self) -> bool {
        let lives = |one: &&Instance| !one.status.is_terminal();
        self.seen.values().filter(lives).count() <= 40
    }
}

/// The store's futures never wait.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future
        .now_or_never()
        .expect("a store in memory never waits")
}
