//! The journal: operations that a workflow's code requested, and their results. The code and its runner share it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use abide_core::model::{
    Answered, Blocked, ChildStarts, Command, CommandId, Completed, Ending, EventWait, InstanceId,
    Json, Key, Limits, Name, Opened, Operation, OperationKind, Signature, Start, Taken, Timestamp,
};
use abide_kernel::{Clock, OwnTransaction, Store};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::Workflow;
use super::recorded::{Recorded, came_to, named};
use super::waker::{Bell, StepBell};
use crate::machine::Fault;

/// Facts about the run.
pub(super) struct About {
    pub id: InstanceId,
    pub key: Option<Key>,
    pub clock: Arc<dyn Clock>,
    pub limits: Arc<Limits>,
    /// The store. `None` if a history is replayed without one.
    pub store: Option<Arc<dyn Store>>,
}

/// Operations that the code requested, and their results.
pub(super) struct Journal {
    pub about: About,
    pub bell: Arc<Bell>,
    pub step_bell: Arc<StepBell>,
    /// Allows one step at a time to write its own rows, because each such step commits a turn of the code.
    pub writing: Arc<Semaphore>,
    pages: Mutex<Pages>,
}

/// Answers an update or a query: takes arguments, returns a result.
pub(super) type Handler = Box<dyn FnMut(&Json) -> Result<Json, String> + Send>;
/// Begins to handle an update.
pub(super) type Begin = Arc<dyn Fn(Workflow, Json) -> Handling + Send + Sync>;
/// An update that is being handled; resolves to its answer.
pub(super) type Handling = BoxFuture<'static, Result<Json, String>>;
/// Restores an earlier value.
pub(super) type Restore = Box<dyn FnOnce() + Send>;
/// Saves the current value, to be restored later.
pub(super) type Save = Box<dyn Fn() -> Restore + Send>;

#[derive(Default)]
pub(super) struct Pages {
    /// The number of the last operation.
    number: u32,
    /// Operations that the code waits for.
    pub open: BTreeMap<u32, Open>,
    pub recorded: Recorded,
    /// Changes that are not committed yet.
    pub fresh: Fresh,
    /// Steps whose code has ended, with their results.
    pub ran: VecDeque<(u32, Ran)>,
    /// The transaction in which the changes must be committed: that of a step which wrote its own rows.
    pub within_own: Option<Box<dyn OwnTransaction>>,
    /// The step or handler whose code runs now.
    pub within: Option<Within>,
    /// The reason why the code cannot continue.
    pub trouble: Option<Blocked>,
    pub updates: HashMap<Name, Answers>,
    /// Updates that `async` code handles now, by the number of their operation.
    pub handled: BTreeMap<u32, Handled>,
    pub queries: HashMap<Name, Handler>,
    pub saves: Vec<Save>,
    /// The reason why the run was cancelled, once the code was notified.
    pub cancelled: Option<String>,
    /// The runtime that steps run in.
    pub runtime: Option<tokio::runtime::Handle>,
    /// Signals that were delivered to an operation which was dropped before it read them.
    pub returned: Vec<Command>,
    /// `true` if the code has ended, so that dropped operations have no meaning.
    pub over: bool,
    /// The number of events in the history.
    pub events: usize,
    long_since: Option<u32>,
}

/// The ways in which the code answers an update.
pub(super) enum Answers {
    /// Immediately, by changing its state.
    AtOnce(Handler),
    /// With `async` code, which may take time.
    InTime(Begin),
}

/// An update that `async` code handles.
pub(super) struct Handled {
    pub message: CommandId,
    pub name: Name,
}

/// Code that must not request operations. It is formatted only when it does.
pub(super) enum Within {
    Step(Name),
    Other(String),
}

impl Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(name) => write!(f, "step {:?}", name.as_str()),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Changes that are not committed yet.
#[derive(Default)]
pub(super) struct Fresh {
    pub operations: Vec<Operation>,
    pub takes: Vec<Taken>,
    pub updates: Vec<Answered>,
    pub children: Vec<ChildStarts>,
    /// The state to show to readers.
    pub state: Option<Json>,
}

/// The end of a step's code.
pub(super) struct Ran {
    pub outcome: Result<Json, String>,
    pub duration_us: u64,
    /// The time of the next attempt, if the step failed and is retried.
    pub again: Option<Timestamp>,
    /// The transaction in which the end of the step must be committed.
    pub within: Option<Box<dyn OwnTransaction>>,
}

/// An operation that the code waits for.
pub(super) struct Open {
    pub signature: Signature,
    pub deadline: Option<Timestamp>,
    /// The step of the graph that the operation belongs to.
    pub graph_step: Option<Name>,
    pub waits_for: WaitsFor,
    pub brought: Option<Brought>,
    waker: Option<Waker>,
}

/// The thing that ends an operation.
pub(super) enum WaitsFor {
    /// The end of its code.
    Step { state: StepState, attempts: u32 },
    /// A signal with its name.
    Signal,
    /// An event.
    Event(EventWait),
    /// Its predicate, and `true` if that held when the code last checked.
    Condition { is_true: bool },
    /// Its due time.
    Time,
    /// The end of `wanted` of its children; `unended` is how many of these have not ended, if that is known.
    Children { wanted: u32, unended: Option<u32> },
    /// The end of its branches.
    Branches,
}

/// The state of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StepState {
    /// The step must be started.
    Wanted,
    /// Its code runs.
    Running,
    /// The step is retried at this time.
    Again(Timestamp),
    /// Its code has ended, and the workflow's code was not notified yet.
    Ended,
}

/// The result that was delivered to an operation.
pub(super) enum Brought {
    Ending(Ending, Option<Box<Command>>),
    Cancelled(String),
}

/// The request for an operation.
pub(super) struct Request {
    pub signature: Signature,
    pub deadline: Option<Timestamp>,
    pub waits_for: WaitsFor,
    pub starts: Vec<Start>,
    /// The step of the graph that makes the request.
    pub graph_step: Option<Name>,
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
            writing: Arc::new(Semaphore::new(1)),
            pages: Mutex::new(pages),
        }
    }

    /// Locks the pages. A panic leaves nothing in them half done, because user code never runs under this lock.
    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Timestamp {
        self.about.clock.now()
    }

    /// Begins an operation. Returns `None` if the code cannot continue.
    pub fn open(&self, request: Request) -> Option<u32> {
        let Request {
            signature,
            deadline,
            mut waits_for,
            starts,
            graph_step,
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
            message: None,
            arguments: None,
            graph_step: graph_step.clone(),
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
                    fresh.children.push(ChildStarts {
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
            graph_step,
            waits_for,
            brought: None,
            waker: None,
        };
        pages.open.insert(number, open);
        Some(number)
    }

    /// Takes the result of an operation, once. If there is none yet, the operation is woken when there is.
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

    /// Notes that the code no longer waits for an operation.
    pub fn abandon(&self, number: u32) {
        let mut pages = self.pages();
        if pages.over {
            return;
        }
        let Some(open) = pages.open.remove(&number) else {
            return;
        };
        for spawn in &mut pages.fresh.children {
            if spawn.operation == number {
                spawn.needed = 0;
            }
        }
        if let Some(Brought::Ending(_, signal)) = open.brought {
            // The result was never read, so a signal goes to the next operation that waits for it (rule 12.2).
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
            graph_step: open.graph_step.clone(),
            outcome: Ending::Abandoned,
            ..came_to(Some(number), open.signature.operation_kind, Json::null())
        };
        pages.fresh.operations.push(Operation::Completed(abandoned));
    }

    /// Closes a group of operations. `value` is its result: for `select`, the index of the first branch.
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

    /// Returns a value that the code computes immediately, without waiting. It is recorded the first time, and is the
    /// same from then on.
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
        let requested = signature.to_string();
        let number = {
            let mut pages = self.pages();
            if !self.may_ask(&mut pages, &requested) {
                drop(pages);
                return make();
            }
            let Some(number) = pages.next_number(&requested) else {
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
                pages.differs(number, &named(&completed), &requested);
                drop(pages);
                return make();
            }
            if number <= pages.recorded.last {
                let recorded = pages.recorded.name_of(number);
                pages.differs(
                    number,
                    &recorded.unwrap_or_else(|| "nothing".into()),
                    &requested,
                );
                drop(pages);
                return make();
            }
            // `now` and the like request nothing. A side effect must not (rule 12.5).
            pages.within = Some(Within::Other(requested));
            number
        };
        // Outside the lock, because this may be user code.
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

    /// Selects the branch that the code takes at a change. It uses no operation number, so that the numbers of runs
    /// from before the change stay valid.
    pub fn version(&self, change: &Name, known: std::ops::RangeInclusive<u32>) -> u32 {
        let mut pages = self.pages();
        let requested = format!("version {:?}", change.as_str());
        if !self.may_ask(&mut pages, &requested) {
            return *known.end();
        }
        if let Some(version) = pages.recorded.versions.get(change).copied() {
            if !known.contains(&version) {
                let recorded = format!("version {version} of change {:?}", change.as_str());
                let requested = format!("one of {} to {}", known.start(), known.end());
                let number = pages.number;
                pages.differs(number, &recorded, &requested);
            }
            return version;
        }
        let version = if pages.is_replaying() {
            // The run passed this point before the change existed.
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

    /// `true` if so many operations are recorded that the code should continue as new.
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

    /// `true` if the code may request an operation here and now (rule 12.5).
    fn may_ask(&self, pages: &mut Pages, requested: &dyn Display) -> bool {
        if pages.trouble.is_some() {
            return false;
        }
        let problem = match &pages.within {
            Some(within) => format!("asks for {requested} inside {within}"),
            None if !self.bell.is_inside() => format!("asks for {requested} in another task"),
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
    /// Returns the number of the operation that begins now, or `None` if no numbers are left.
    pub fn next_number(&mut self, requested: &dyn Display) -> Option<u32> {
        // The number is also that of a barrier, which is a signed integer in the databases.
        if self.number >= i32::MAX.unsigned_abs() {
            self.misused(
                format!("asks for {requested} after {} operations", self.number),
                "continue as new",
            );
            return None;
        }
        self.number += 1;
        Some(self.number)
    }

    /// The number of operations that have begun.
    pub fn count(&self) -> u32 {
        self.number
    }

    /// `true` if the history contains more than the code has reached.
    pub fn is_replaying(&self) -> bool {
        !self.recorded.brought.is_empty() || self.number < self.recorded.last
    }

    /// Delivers a result to an operation.
    pub fn bring(&mut self, number: u32, brought: Brought) {
        if let Some(open) = self.open.get_mut(&number) {
            open.brought = Some(brought);
            if let Some(waker) = open.waker.take() {
                waker.wake();
            }
        }
    }

    /// `true` if `async` code handles this update now.
    pub fn handles(&self, update: CommandId) -> bool {
        self.handled.values().any(|one| one.message == update)
    }

    /// The number of operations that have a waker.
    pub fn wakers(&self) -> usize {
        let open = self.open.values();
        open.filter(|open| open.waker.is_some()).count()
    }

    /// Wakes all conditions, so that the code checks them again.
    pub fn wake_conditions(&mut self) {
        for open in self.open.values_mut() {
            if matches!(open.waits_for, WaitsFor::Condition { .. })
                && let Some(waker) = open.waker.take()
            {
                waker.wake();
            }
        }
    }

    /// Wakes all running steps, so that they are polled.
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

    /// Notes that the code requests a different operation than was recorded (rule 12.4).
    pub fn differs(&mut self, operation: u32, recorded: &str, requested: &str) {
        self.trouble.get_or_insert(Blocked {
            operation,
            recorded: recorded.to_owned(),
            requested: requested.to_owned(),
            cure: "deploy code that fits, or guard the change with `wf.version`; the run goes on when a worker \
                   with such code starts, or when it is repaired"
                .to_owned(),
        });
    }

    /// Notes that the code panicked. Returns why the run cannot continue.
    pub fn panicked(&mut self, fault: &Fault) -> Blocked {
        let operation = self.number;
        let blocked = self.trouble.get_or_insert_with(|| Blocked {
            operation,
            recorded: "nothing against it".to_owned(),
            requested: format!("nothing more: it {fault}"),
            cure: "deploy code that does not; the run goes on when a worker with such code starts, or when it is repaired"
                .to_owned(),
        });
        blocked.clone()
    }

    /// Notes that the code does something that a workflow must not do.
    pub fn misused(&mut self, problem: String, cure: &str) {
        let operation = self.number;
        self.trouble.get_or_insert(Blocked {
            operation,
            recorded: "nothing against it".to_owned(),
            requested: format!("what a workflow cannot do: it {problem}"),
            cure: format!("{cure}; the run goes on when a worker with such code starts, or when it is repaired"),
        });
    }
}
