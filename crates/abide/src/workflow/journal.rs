//! What a workflow's code has asked for, and what has come of it: shared by the code and by the one who runs it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use abide_core::model::{
    Answered, Blocked, Brood, Command, Completed, Ending, EventWait, InstanceId, Json, Key, Limits,
    Name, Opened, Operation, OperationKind, Signature, Start, Taken, Timestamp,
};
use abide_kernel::Clock;

use super::recorded::{Recorded, came_to, named};
use super::waker::{Bell, StepBell};

/// What is known of the run.
pub(super) struct About {
    pub id: InstanceId,
    pub key: Option<Key>,
    pub clock: Arc<dyn Clock>,
    pub limits: Arc<Limits>,
}

/// What the code has asked for, and what has come of it.
pub(super) struct Journal {
    pub about: About,
    pub bell: Arc<Bell>,
    pub step_bell: Arc<StepBell>,
    pages: Mutex<Pages>,
}

/// Answers an update or a query: arguments in, result out.
pub(super) type Handler = Box<dyn FnMut(&Json) -> Result<Json, String> + Send>;
/// Puts a value back to what it was.
pub(super) type Restore = Box<dyn FnOnce() + Send>;
/// Keeps a value as it is, to be put back.
pub(super) type Save = Box<dyn Fn() -> Restore + Send>;

#[derive(Default)]
pub(super) struct Pages {
    /// The number of the last operation.
    number: u32,
    /// Those that the code waits for.
    pub open: BTreeMap<u32, Open>,
    pub recorded: Recorded,
    /// What has happened and is not committed.
    pub fresh: Fresh,
    /// Steps whose code has ended, and how.
    pub ran: VecDeque<(u32, Ran)>,
    /// The step, or the handler, whose code runs now.
    pub within: Option<Within>,
    /// Why the code cannot go on.
    pub trouble: Option<Blocked>,
    pub updates: HashMap<Name, Handler>,
    pub queries: HashMap<Name, Handler>,
    pub saves: Vec<Save>,
    /// Why the run is cancelled, when the code has been told.
    pub cancelled: Option<String>,
    /// The runtime that steps run in.
    pub runtime: Option<tokio::runtime::Handle>,
    /// Signals that were brought to an operation which was dropped before it looked.
    pub returned: Vec<Command>,
    /// Whether the code is gone, so that what is dropped now means nothing.
    pub over: bool,
    /// How many events the history has.
    pub events: usize,
    long_since: Option<u32>,
}

/// What code runs that must not ask for anything; put into words only when it does.
pub(super) enum Within {
    Step(Name),
    Other(String),
}

impl Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(name) => write!(f, "step {:?}", name.as_str()),
            Self::Other(words) => f.write_str(words),
        }
    }
}

/// What has happened and is not committed.
#[derive(Default)]
pub(super) struct Fresh {
    pub operations: Vec<Operation>,
    pub takes: Vec<Taken>,
    pub updates: Vec<Answered>,
    pub children: Vec<Brood>,
    /// What readers are to be shown.
    pub state: Option<Json>,
}

/// How the code of a step ended.
pub(super) struct Ran {
    pub outcome: Result<Json, String>,
    pub duration_us: u64,
    /// When it is tried again, if it failed and is.
    pub again: Option<Timestamp>,
}

/// An operation that the code waits for.
pub(super) struct Open {
    pub signature: Signature,
    pub deadline: Option<Timestamp>,
    pub waits_for: WaitsFor,
    pub brought: Option<Brought>,
    waker: Option<Waker>,
}

/// What would end an operation.
pub(super) enum WaitsFor {
    /// Its code.
    Step { state: StepState, attempts: u32 },
    /// A signal of its name.
    Signal,
    /// An event.
    Event(EventWait),
    /// Its predicate; whether that was true when the code looked last.
    Condition { is_true: bool },
    /// Its time.
    Time,
    /// So many of its children; how many of them have not ended, when that is known.
    Children { wanted: u32, unended: Option<u32> },
    /// Its branches.
    Branches,
}

/// Where a step stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StepState {
    /// It is to be begun.
    Wanted,
    /// Its code runs.
    Running,
    /// It is tried again at that moment.
    Again(Timestamp),
    /// Its code has ended, and that is not told yet.
    Ended,
}

/// What was brought to an operation.
pub(super) enum Brought {
    Ending(Ending, Option<Box<Command>>),
    Cancelled(String),
}

/// What an operation asks for.
pub(super) struct Request {
    pub signature: Signature,
    pub deadline: Option<Timestamp>,
    pub waits_for: WaitsFor,
    pub starts: Vec<Start>,
}

impl Journal {
    pub fn new(about: About, recorded: Recorded) -> Self {
        let (long_since, events) = (recorded.long_since, recorded.events);
        let pages = Pages {
            events,
            recorded,
            long_since,
            ..Pages::default()
        };
        Self {
            about,
            bell: Arc::default(),
            step_bell: Arc::default(),
            pages: Mutex::new(pages),
        }
    }

    /// Nothing in here is left half done by a panic: user code never runs under this lock.
    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Timestamp {
        self.about.clock.now()
    }

    /// Begins an operation; none when the code cannot go on.
    pub fn open(&self, request: Request) -> Option<u32> {
        let Request {
            signature,
            deadline,
            mut waits_for,
            starts,
        } = request;
        let mut pages = self.pages();
        if !self.may_ask(&mut pages, &signature) {
            return None;
        }
        let number = pages.next_number(&signature)?;
        let mut opened = Opened {
            operation: number,
            signature,
            deadline,
        };
        match pages.recorded.opened.get(&number) {
            Some(recorded) if recorded.signature != opened.signature => {
                let recorded = recorded.signature.to_string();
                pages.differs(number, &recorded, &opened.signature.to_string());
                return None;
            }
            Some(recorded) => opened = recorded.clone(),
            None if number <= pages.recorded.last => {
                let recorded = pages.recorded.name_of(number);
                let recorded = recorded.unwrap_or_else(|| "nothing".to_owned());
                pages.differs(number, &recorded, &opened.signature.to_string());
                return None;
            }
            None => {
                let fresh = &mut pages.fresh;
                fresh.operations.push(Operation::Opened(opened.clone()));
                if let WaitsFor::Children { wanted, .. } = waits_for {
                    fresh.children.push(Brood {
                        operation: number,
                        starts,
                        needed: wanted,
                    });
                }
            }
        }
        if let (WaitsFor::Step { state, attempts }, Some(tried)) =
            (&mut waits_for, pages.recorded.tried.get(&number))
        {
            (*state, *attempts) = (StepState::Again(tried.due_at), tried.attempts);
        }
        let open = Open {
            signature: opened.signature,
            deadline: opened.deadline,
            waits_for,
            brought: None,
            waker: None,
        };
        pages.open.insert(number, open);
        Some(number)
    }

    /// What was brought to an operation, once; else it is woken when something is.
    pub fn take(&self, number: u32, waker: &Waker) -> Option<Brought> {
        let mut pages = self.pages();
        let open = pages.open.get_mut(&number)?;
        if open.brought.is_some() {
            return pages.open.remove(&number)?.brought;
        }
        if !open
            .waker
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
        {
            open.waker = Some(waker.clone());
        }
        None
    }

    /// The code does not wait for an operation any more.
    pub fn abandon(&self, number: u32) {
        let mut pages = self.pages();
        if pages.over {
            return;
        }
        let Some(open) = pages.open.remove(&number) else {
            return;
        };
        for brood in &mut pages.fresh.children {
            if brood.operation == number {
                brood.needed = 0;
            }
        }
        if let Some(Brought::Ending(_, signal)) = open.brought {
            // It was brought and never looked at: a signal is there for whoever waits next (rule 12.2).
            let Some(signal) = signal else { return };
            let is_its_end = |operation: &Operation| matches!(operation, Operation::Completed(one) if one.operation == Some(number));
            pages.fresh.operations.retain(|one| !is_its_end(one));
            pages.fresh.takes.retain(|taken| taken.id != signal.id);
            pages.returned.push(*signal);
        }
        if pages.recorded.abandoned.contains_key(&number) {
            return;
        }
        let abandoned = Completed {
            name: open.signature.name.clone(),
            outcome: Ending::Abandoned,
            ..came_to(Some(number), open.signature.operation_kind, Json::null())
        };
        pages.fresh.operations.push(Operation::Completed(abandoned));
    }

    /// A group of operations is over, in the order that its code says.
    pub fn close_group(&self, number: u32, value: Json) {
        let mut pages = self.pages();
        let Some(open) = pages.open.remove(&number) else {
            return;
        };
        if !pages.recorded.on_the_spot.contains_key(&number) {
            let completed = came_to(Some(number), open.signature.operation_kind, value);
            pages.fresh.operations.push(Operation::Completed(completed));
        }
    }

    /// A value that the code comes by on the spot: recorded the first time, and the same from then on.
    pub fn on_the_spot(
        &self,
        kind: OperationKind,
        name: Option<Name>,
        make: impl FnOnce() -> Json,
    ) -> Json {
        let signature = Signature {
            name,
            ..Signature::of(kind)
        };
        let asked = signature.to_string();
        let number = {
            let mut pages = self.pages();
            if !self.may_ask(&mut pages, &asked) {
                drop(pages);
                return make();
            }
            let Some(number) = pages.next_number(&asked) else {
                drop(pages);
                return make();
            };
            let recorded = pages.recorded.on_the_spot.get(&number).cloned();
            if let Some(completed) = recorded {
                if (completed.operation_kind, &completed.name) == (kind, &signature.name)
                    && let Ending::Value(value) = completed.outcome
                {
                    return value;
                }
                pages.differs(number, &named(&completed), &asked);
                drop(pages);
                return make();
            }
            if number <= pages.recorded.last {
                let recorded = pages.recorded.name_of(number);
                pages.differs(
                    number,
                    &recorded.unwrap_or_else(|| "nothing".into()),
                    &asked,
                );
                drop(pages);
                return make();
            }
            // The time and the like ask for nothing; a side effect must not (rule 12.5).
            pages.within = Some(Within::Other(asked));
            number
        };
        // Outside the lock: this may be the user's code.
        let value = make();
        let mut pages = self.pages();
        pages.within = None;
        let completed = Completed {
            name: signature.name,
            ..came_to(Some(number), kind, value.clone())
        };
        pages.fresh.operations.push(Operation::Completed(completed));
        value
    }

    /// Which way the code goes at a change (it takes no number, so that runs from before the change find their places).
    pub fn version(&self, change: &Name, known: std::ops::RangeInclusive<u32>) -> u32 {
        let mut pages = self.pages();
        let asked = format!("version {:?}", change.as_str());
        if !self.may_ask(&mut pages, &asked) {
            return *known.end();
        }
        if let Some(version) = pages.recorded.versions.get(change).copied() {
            if !known.contains(&version) {
                let recorded = format!("version {version} of change {:?}", change.as_str());
                let asked = format!("one of {} to {}", known.start(), known.end());
                let number = pages.number;
                pages.differs(number, &recorded, &asked);
            }
            return version;
        }
        let version = if pages.is_replaying() {
            // The run went by here before there was a choice.
            *known.start()
        } else {
            let completed = Completed {
                name: Some(change.clone()),
                ..came_to(None, OperationKind::Version, number(*known.end()))
            };
            pages.fresh.operations.push(Operation::Completed(completed));
            *known.end()
        };
        pages.recorded.versions.insert(change.clone(), version);
        version
    }

    /// Whether so many operations have been recorded that the code does well to continue as new.
    pub fn is_long(&self) -> bool {
        let mut pages = self.pages();
        let after = pages.number;
        let events = pages.events + pages.fresh.operations.len();
        let is_long = events >= self.about.limits.history_events && !pages.is_replaying();
        if pages.long_since.is_none() && is_long {
            tracing::warn!(instance = %self.about.id, events, "continue_as_new_recommended: the history has grown long");
            pages.long_since = Some(after);
            let completed = came_to(None, OperationKind::LongHistory, number(after));
            pages.fresh.operations.push(Operation::Completed(completed));
        }
        pages.long_since.is_some_and(|since| after >= since)
    }

    /// Whether the code may ask for something here and now (rule 12.5).
    fn may_ask(&self, pages: &mut Pages, asked: &dyn Display) -> bool {
        if pages.trouble.is_some() {
            return false;
        }
        let problem = match &pages.within {
            Some(within) => format!("asks for {asked} inside {within}"),
            None if !self.bell.is_inside() => format!("asks for {asked} in another task"),
            None => return true,
        };
        pages.misused(
            problem,
            "ask for durable operations in the workflow's own code, and hand their results in",
        );
        false
    }
}

fn number(value: u32) -> Json {
    Json::of(&value).unwrap_or_default()
}

impl Pages {
    /// The number of the operation that is begun now; none when there is no more room for one.
    fn next_number(&mut self, asked: &dyn Display) -> Option<u32> {
        // The number is that of a barrier as well, which is signed in the databases.
        if self.number >= i32::MAX.unsigned_abs() {
            self.misused(
                format!("asks for {asked} after {} operations", self.number),
                "continue as new",
            );
            return None;
        }
        self.number += 1;
        Some(self.number)
    }

    /// How many operations have been begun.
    pub fn count(&self) -> u32 {
        self.number
    }

    /// Whether the history has more than the code has come to.
    pub fn is_replaying(&self) -> bool {
        !self.recorded.brought.is_empty() || self.number < self.recorded.last
    }

    /// Brings something to an operation.
    pub fn bring(&mut self, number: u32, brought: Brought) {
        if let Some(open) = self.open.get_mut(&number) {
            open.brought = Some(brought);
            if let Some(waker) = open.waker.take() {
                waker.wake();
            }
        }
    }

    /// How many operations are to be woken.
    pub fn wakers(&self) -> usize {
        let open = self.open.values();
        open.filter(|open| open.waker.is_some()).count()
    }

    /// Lets all conditions be looked at again.
    pub fn wake_conditions(&mut self) {
        for open in self.open.values_mut() {
            if matches!(open.waits_for, WaitsFor::Condition { .. })
                && let Some(waker) = open.waker.take()
            {
                waker.wake();
            }
        }
    }

    /// Lets all steps that run be polled.
    pub fn wake_steps(&mut self) {
        for open in self.open.values_mut() {
            if let WaitsFor::Step {
                state: StepState::Running,
                ..
            } = open.waits_for
                && let Some(waker) = open.waker.take()
            {
                waker.wake();
            }
        }
    }

    /// Notes that the code asks for something else than was recorded (rule 12.4).
    pub fn differs(&mut self, operation: u32, recorded: &str, asked: &str) {
        self.trouble.get_or_insert(Blocked {
            operation,
            recorded: recorded.to_owned(),
            asked: asked.to_owned(),
            cure: "deploy code that fits, or guard the change with `wf.version`; the run goes on when a worker \
                   with such code starts, or when it is repaired"
                .to_owned(),
        });
    }

    /// Notes that the code does what a workflow must not.
    pub fn misused(&mut self, problem: String, cure: &str) {
        let operation = self.number;
        self.trouble.get_or_insert(Blocked {
            operation,
            recorded: "nothing against it".to_owned(),
            asked: format!("what a workflow cannot do: it {problem}"),
            cure: format!("{cure}; the run goes on when a worker with such code starts, or when it is repaired"),
        });
    }
}
