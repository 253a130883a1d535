//! Health: the wait of an instance, and whether anything can still wake it. One function gives the answer to every
//! reader.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contract::Terms;
use super::{deaths, similar};
use crate::model::{
    Awaits, CommandId, EventSequence, Inbox, Instance, Kind, Lane, Name, OperationWait,
    ResumeSource, Row, Sequence, Status, Timestamp, WaitId, WaitKind, Worker,
};

/// Time after which something that should have happened is called overdue.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of children of one instance that a store reads, the newest ones. If there are more, the others are
/// assumed to be healthy.
pub const CHILDREN_SEEN: u32 = 20_000;

/// Maximum number of names of pending signals, and of types of awaited events, that a store reads for one instance.
pub const NAMES_SEEN: u32 = 20;

/// Number of failed attempts in a row that still count as healthy.
pub const FAILURES_HEALTHY: u32 = 3;

/// Maximum number of lanes that a reason names.
const LANES_NAMED: usize = 3;

/// The wait of an instance (section 13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Its kind.
    pub kind: WaitKind,
    /// The wait's id; if a workflow has several waits, that of the one that was ended, or of the first.
    pub id: Option<WaitId>,
    /// The signals that would wake it.
    pub names: Vec<Name>,
    /// The waits of a workflow's operations for signals, events and conditions, each with its id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OperationWait>,
    /// The source that ended it, until that is applied.
    pub resume_source: Option<ResumeSource>,
    /// When it began.
    pub since: Option<Timestamp>,
    /// The deadline.
    pub deadline: Option<Timestamp>,
}

/// The health of an instance, in one word (rule 13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// It has ended.
    Closed,
    /// A worker holds it.
    Running,
    /// A worker will claim it.
    Ready,
    /// It is due later, or is reserved and not started.
    Scheduled,
    /// It waits for a signal.
    WaitingForSignal,
    /// It waits for an event.
    WaitingForEvent,
    /// It waits for a condition.
    WaitingForCondition,
    /// It waits for its children.
    WaitingForChildren,
    /// It is runnable, and no live worker has code for it.
    WaitingForWorker,
    /// Its code does not match its history. A worker whose code matches, or a repair, lets it continue.
    ReplayBlocked,
    /// No live build can run its step. A worker of a build that can, or a repair, lets it continue.
    Blocked,
    /// Only a repair can wake it.
    RepairNeeded,
}

impl Liveness {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Scheduled => "scheduled",
            Self::WaitingForSignal => "waiting_for_signal",
            Self::WaitingForEvent => "waiting_for_event",
            Self::WaitingForCondition => "waiting_for_condition",
            Self::WaitingForChildren => "waiting_for_children",
            Self::WaitingForWorker => "waiting_for_worker",
            Self::ReplayBlocked => "replay_blocked",
            Self::Blocked => "blocked",
            Self::RepairNeeded => "repair_needed",
        }
    }
}

/// The health of an instance (rule 13.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Its state.
    pub liveness: Liveness,
    /// The reason why it is not healthy. `None` if it is healthy.
    pub reason: Option<Reason>,
}

/// The reason why an instance is not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The code, for programs.
    pub code: Code,
    /// The text, for people: the problem, and what to do about it if that is not a repair.
    pub text: String,
    /// The signal or update that it concerns.
    pub command_id: Option<CommandId>,
}

/// The reason why an instance is not healthy (rule 13.1), as a code. Later releases may add reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = LivenessCode))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// `repair_needed`: it has no due time.
    NeverDue,
    /// `repair_needed`: it waits, and neither a signal nor a deadline can wake it.
    WaitsForNothing,
    /// `repair_needed`: its contract declares none of the signals that it waits for, and it has no deadline.
    UndeclaredSignal,
    /// `repair_needed`: a signal that it waits for is pending, and did not wake it.
    MissedSignal,
    /// `repair_needed`: an update is pending, and did not wake it.
    MissedUpdate,
    /// `repair_needed`: it waits for more children than have yet to end.
    MissedChildren,
    /// `repair_needed`: it executes, and no worker holds it.
    NotHeld,
    /// `repair_needed`: it is behind in a partition that has no instance at its front.
    NoFront,
    /// `repair_needed`: its count of pending messages differs from its inbox.
    Miscounted,
    /// `replay_blocked`: its code does not match its history.
    ReplayBlocked,
    /// `blocked`: the builds that claimed it could not run its step.
    Blocked,
    /// `waiting_for_worker`: no live worker serves its queue with code for it.
    NoWorker,
    /// `waiting_for_children`: too many of the children are runnable, and no live worker has code for them.
    ChildrenUnserved,
    /// `waiting_for_children`: too many of the children are blocked, or have no due time.
    ChildrenBlocked,
    /// `running`: the worker that holds it is not live.
    WorkerSilent,
    /// `scheduled` or `waiting_for_…`: its time has passed, and it was not woken.
    Overdue,
    /// Its step has failed more than three times in a row.
    Failing,
    /// `waiting_for_…`: a signal with a name similar to the awaited one is pending.
    SimilarSignal,
    /// `waiting_for_…`: an event of the type that it waits for was published, and did not match.
    UnmatchedEvent,
    /// `running`, `ready` or `scheduled`: its workers have died in this step, more than once.
    WorkerDied,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::NeverDue,
        Self::WaitsForNothing,
        Self::UndeclaredSignal,
        Self::MissedSignal,
        Self::MissedUpdate,
        Self::MissedChildren,
        Self::NotHeld,
        Self::NoFront,
        Self::Miscounted,
        Self::ReplayBlocked,
        Self::Blocked,
        Self::NoWorker,
        Self::ChildrenUnserved,
        Self::ChildrenBlocked,
        Self::WorkerSilent,
        Self::Overdue,
        Self::Failing,
        Self::SimilarSignal,
        Self::UnmatchedEvent,
        Self::WorkerDied,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeverDue => "never_due",
            Self::WaitsForNothing => "waits_for_nothing",
            Self::UndeclaredSignal => "undeclared_signal",
            Self::MissedSignal => "missed_signal",
            Self::MissedUpdate => "missed_update",
            Self::MissedChildren => "missed_children",
            Self::NotHeld => "not_held",
            Self::NoFront => "no_front",
            Self::Miscounted => "miscounted",
            Self::ReplayBlocked => "replay_blocked",
            Self::Blocked => "blocked",
            Self::NoWorker => "no_worker",
            Self::ChildrenUnserved => "children_unserved",
            Self::ChildrenBlocked => "children_blocked",
            Self::WorkerSilent => "worker_silent",
            Self::Overdue => "overdue",
            Self::Failing => "failing",
            Self::SimilarSignal => "similar_signal",
            Self::UnmatchedEvent => "unmatched_event",
            Self::WorkerDied => "worker_died",
        }
    }
}

/// A problem of an instance itself, which `repair` fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It has no due time.
    NeverDue,
    /// It waits for nothing.
    WaitsForNothing,
    /// It waits only for these signals, and its contract declares none of them.
    UndeclaredSignal(Vec<Name>),
    /// A signal that it waits for is pending, and did not wake it.
    MissedSignal(CommandId),
    /// Updates are pending, and did not wake it; the newest of them.
    MissedUpdate(Option<CommandId>),
    /// Its children have ended, and did not wake it.
    MissedChildren,
    /// It executes, and no worker holds it.
    NotHeld,
    /// It is behind in its partition, and no instance is at the front.
    NoFront,
    /// Its count of pending messages is wrong.
    Miscounted,
}

impl Problem {
    /// Returns its code, for programs.
    pub const fn code(&self) -> Code {
        match self {
            Self::NeverDue => Code::NeverDue,
            Self::WaitsForNothing => Code::WaitsForNothing,
            Self::UndeclaredSignal(_) => Code::UndeclaredSignal,
            Self::MissedSignal(_) => Code::MissedSignal,
            Self::MissedUpdate(_) => Code::MissedUpdate,
            Self::MissedChildren => Code::MissedChildren,
            Self::NotHeld => Code::NotHeld,
            Self::NoFront => Code::NoFront,
            Self::Miscounted => Code::Miscounted,
        }
    }

    /// Returns the signal or update that it concerns.
    pub const fn command(&self) -> Option<CommandId> {
        match self {
            Self::MissedSignal(id) => Some(*id),
            Self::MissedUpdate(id) => *id,
            _ => None,
        }
    }

    /// Returns a description, and why only a repair helps.
    pub fn text(&self) -> String {
        match self {
            Self::NeverDue => "it is scheduled, and due at no time".to_owned(),
            Self::WaitsForNothing => {
                "it waits, and neither a signal nor a deadline can wake it".to_owned()
            }
            Self::UndeclaredSignal(names) => {
                let names: Vec<String> = names
                    .iter()
                    .map(|name| format!("{:?}", name.as_str()))
                    .collect();
                format!(
                    "it waits for {} {}, which the contract of this run does not declare, so that it cannot be sent, and \
                     the wait has no deadline",
                    match names.len() {
                        1 => "the signal",
                        _ => "the signals",
                    },
                    names.join(", ")
                )
            }
            Self::MissedSignal(id) => {
                format!("signal {id}, which it waits for, is pending and did not wake it")
            }
            Self::MissedUpdate(Some(id)) => {
                format!("update {id} is pending and did not wake it")
            }
            Self::MissedUpdate(None) => "an update is pending and did not wake it".to_owned(),
            Self::MissedChildren => {
                "it waits for more children than have yet to end, so that its barrier cannot open"
                    .to_owned()
            }
            Self::NotHeld => "it executes, and no worker holds it".to_owned(),
            Self::NoFront => {
                "it stands behind in its partition, and nothing is at the front of it".to_owned()
            }
            Self::Miscounted => {
                "its count of pending messages is not what its inbox holds".to_owned()
            }
        }
    }

    /// Returns it as a reason, the form that readers see.
    pub fn reason(&self) -> Reason {
        Reason {
            code: self.code(),
            text: self.text(),
            command_id: self.command(),
        }
    }
}

/// The rows around an instance that has not ended, counted and probed by the store, all at the same moment as the
/// instance's own row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Around {
    /// Number of signals that are pending in its inbox.
    pub signals: u32,
    /// Number of updates and cancellations that are pending.
    pub updates: u32,
    /// The first pending signal with a name that it waits for and that it was not handed.
    pub missed_signal: Option<CommandId>,
    /// The newest pending update or cancellation, and its position; read if the instance is parked.
    pub newest_update: Option<(CommandId, Sequence)>,
    /// `true` if the worker that its row names is known, live or not.
    pub has_holder: bool,
    /// `true` if its partition has an instance at its front; read if this one is behind.
    pub has_front: bool,
    /// Its children, if it waits for children: those of its last barrier, or all of a workflow; the newest
    /// [`CHILDREN_SEEN`].
    pub children: Vec<Siblings>,
    /// The names of the pending signals, each with the first of them, if the instance waits for signals; at most
    /// [`NAMES_SEEN`].
    #[serde(default)]
    pub pending_names: Vec<(Name, CommandId)>,
    /// The newest event of a type that it waits for that was published since the wait began. It did not match;
    /// otherwise it would have ended the wait.
    #[serde(default)]
    pub unmatched_event: Option<UnmatchedEvent>,
}

/// An event of a type that an instance waits for and that did not match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmatchedEvent {
    /// Its position.
    pub sequence: EventSequence,
    /// Its type.
    pub event_type: Name,
    /// Its id.
    pub event_id: Name,
}

/// A group of children of one instance that are in the same state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Siblings {
    /// Their status.
    pub status: Status,
    /// `true` if they have a due time.
    pub is_due: bool,
    /// The queue and the lane that a worker must serve to run them, if they are runnable.
    pub runs_on: Option<(Name, Lane)>,
    /// Number of children in the group.
    pub count: u32,
}

/// The known facts about the surroundings of an instance. Everything that was not read is assumed to be healthy.
#[derive(Clone, Copy, Default)]
pub struct World<'a> {
    /// The rows around it.
    pub around: Option<&'a Around>,
    /// The live workers.
    pub workers: Option<&'a [Worker]>,
    /// Its contract.
    pub terms: Option<&'a Terms>,
    /// The time.
    pub now: Option<Timestamp>,
}

/// The part of an instance that decides about its health.
struct Position<'a> {
    status: Status,
    due_at: Option<Timestamp>,
    has_worker: bool,
    kind: Option<WaitKind>,
    names: &'a [Name],
    waits: &'a [OperationWait],
    inbox: Inbox,
    needed: u32,
    behind: bool,
    blocked: bool,
    recovering: bool,
    workflow: bool,
}

impl<'a> From<&'a Row> for Position<'a> {
    fn from(row: &'a Row) -> Self {
        Self {
            status: row.status,
            due_at: row.due_at,
            has_worker: row.worker.is_some(),
            kind: row.awaits.as_ref().map(|awaits| awaits.kind),
            names: row
                .awaits
                .as_ref()
                .map_or(&[], |Awaits { names, .. }| names),
            waits: row
                .awaits
                .as_ref()
                .map_or(&[], |Awaits { waits, .. }| waits),
            inbox: row.inbox,
            needed: row.family.needed,
            behind: row.behind,
            blocked: row.is_blocked(),
            recovering: row.is_recovering(),
            workflow: row.kind == Kind::Workflow,
        }
    }
}

impl<'a> From<&'a Instance> for Position<'a> {
    fn from(instance: &'a Instance) -> Self {
        Self {
            status: instance.status,
            due_at: instance.due_at,
            has_worker: instance.worker.is_some(),
            kind: instance.wait_kind,
            names: &instance.awaits,
            waits: &instance.waits,
            inbox: instance.inbox,
            needed: instance.children_needed,
            behind: instance.behind,
            blocked: instance.is_blocked(),
            recovering: instance.is_recovering(),
            workflow: instance.kind == Kind::Workflow,
        }
    }
}

/// Returns the wait of an instance if it waits, or the wait that it was woken from until the source of the wake is
/// applied.
pub fn waiting(instance: &Instance) -> Option<Waiting> {
    let stands = instance.aside.map_or(instance.status, |aside| aside.status);
    let parked = matches!(
        stands,
        Status::Scheduled | Status::AwaitingSignal | Status::AwaitingChildren
    );
    let source = instance.resume_source;
    let kind = instance.wait_kind.filter(|kind| {
        // Rows that an earlier release woke have no source, and their step may be retried later.
        source.is_some() || parked && (stands != Status::Scheduled || *kind == WaitKind::Timer)
    })?;
    let ended = source.and_then(|source| {
        let mut waits = instance.waits.iter();
        waits.find(|wait| wait.command_id.is_some() && wait.command_id == source.command_id)
    });
    Some(Waiting {
        kind: ended.map_or(kind, |wait| wait.kind),
        id: match ended {
            Some(wait) => Some(wait.id.clone()),
            None => instance.wait_id.clone(),
        },
        names: instance.awaits.clone(),
        waits: instance.waits.clone(),
        since: instance.wait_since,
        deadline: match (instance.aside, source) {
            (Some(aside), _) => aside.due_at,
            (None, None) => instance.due_at,
            // The wait is over.
            (None, Some(_)) => None,
        },
        resume_source: source,
    })
}

/// Returns the health of an instance (rule 13.1). Every reader shows this result. `repair` and `doctor` use
/// [`problem`], which is the part of it that concerns the instance itself.
pub fn health(instance: &Instance, world: World<'_>) -> Health {
    if let Some(problem) = problem_of(&instance.into(), world) {
        return Health {
            liveness: Liveness::RepairNeeded,
            reason: Some(problem.reason()),
        };
    }
    let liveness = liveness(instance, world.workers);
    let reason = match liveness {
        Liveness::ReplayBlocked => Some((
            Code::ReplayBlocked,
            instance.last_error.clone().unwrap_or_default(),
        )),
        Liveness::Blocked => Some((Code::Blocked, blocked(instance))),
        Liveness::WaitingForWorker => Some((
            Code::NoWorker,
            format!(
                "no live worker serves {}",
                lane_named(&instance.queue, &instance.machine, instance.version)
            ),
        )),
        Liveness::Running => silent(instance, world.workers).or_else(|| died(instance)),
        Liveness::WaitingForChildren => {
            overdue(instance, world).or_else(|| stranded(instance, world))
        }
        Liveness::Scheduled => overdue(instance, world).or_else(|| died(instance)),
        Liveness::Ready => died(instance),
        Liveness::WaitingForSignal | Liveness::WaitingForEvent | Liveness::WaitingForCondition => {
            overdue(instance, world)
        }
        Liveness::Closed | Liveness::RepairNeeded => None,
    };
    let reason = reason.or_else(|| failing(instance));
    let reason = reason.map(|(code, text)| Reason {
        code,
        text,
        command_id: None,
    });
    let reason = reason.or_else(|| near_miss(instance, world.around?));
    Health { liveness, reason }
}

/// Returns the state of an instance that does not need repair.
fn liveness(instance: &Instance, workers: Option<&[Worker]>) -> Liveness {
    if instance.is_blocked() {
        return match instance.kind {
            Kind::Workflow => Liveness::ReplayBlocked,
            Kind::Machine => Liveness::Blocked,
        };
    }
    let unserved =
        || workers.is_some_and(|workers| !workers.iter().any(|one| serves(one, instance)));
    // It was released by a worker that has stopped since.
    let unfit = || {
        let fits = |one: &Worker| serves(one, instance) && !instance.unfit.contains(one.build());
        !instance.unfit.is_empty() && workers.is_some_and(|workers| !workers.iter().any(fits))
    };
    match (instance.status, instance.wait_kind) {
        (status, _) if status.is_terminal() => Liveness::Closed,
        (Status::Executing, _) => Liveness::Running,
        (Status::Runnable, _) if unserved() => Liveness::WaitingForWorker,
        (Status::Runnable, _) if unfit() => Liveness::Blocked,
        (Status::Runnable, _) => Liveness::Ready,
        (Status::AwaitingSignal, Some(WaitKind::Event)) => Liveness::WaitingForEvent,
        (Status::AwaitingSignal, Some(WaitKind::Condition)) => Liveness::WaitingForCondition,
        (Status::AwaitingSignal, _) => Liveness::WaitingForSignal,
        (Status::AwaitingChildren, _) => Liveness::WaitingForChildren,
        _ => Liveness::Scheduled,
    }
}

/// Describes what the builds that claimed an instance could not run, and what to do about it.
fn blocked(instance: &Instance) -> String {
    let builds: Vec<&str> = instance.unfit.iter().map(Name::as_str).collect();
    let what = match (&instance.last_error, builds.is_empty()) {
        (Some(error), _) => error.clone(),
        (None, false) => format!(
            "step {:?} could not be run by build {}, and no worker of another build is running",
            instance.step.as_str(),
            builds.join(", ")
        ),
        (None, true) => format!("step {:?} could not be run", instance.step.as_str()),
    };
    format!("{what}; deploy a build that fits")
}

/// `true` if a worker serves an instance's queue and has code for it.
pub fn serves(worker: &Worker, instance: &Instance) -> bool {
    serves_lane(worker, &instance.queue, &instance.machine, instance.version)
}

/// `true` if a worker serves a queue and has code for that machine and version.
pub fn serves_lane(worker: &Worker, queue: &Name, machine: &Name, version: u32) -> bool {
    let has_code = |lane: &Lane| lane.machine == *machine && lane.version == version;
    worker.queues.contains(queue) && worker.lanes.iter().any(has_code)
}

fn lane_named(queue: &Name, machine: &Name, version: u32) -> String {
    format!("queue {queue} with code for {machine} version {version}")
}

/// Returns a reason if the worker that holds an instance is not live.
fn silent(instance: &Instance, workers: Option<&[Worker]>) -> Option<(Code, String)> {
    let holder = instance.worker?;
    let lives = workers?.iter().any(|worker| worker.id == holder);
    (!lives).then(|| {
        let text = format!(
            "worker {holder}, which holds it, is not alive; another takes over when its lease ends"
        );
        (Code::WorkerSilent, text)
    })
}

/// Returns a reason if workers died more than once in the current step of an instance (rule 5.5). A single death may
/// have any cause.
fn died(instance: &Instance) -> Option<(Code, String)> {
    (instance.deaths > 1).then(|| {
        let text = format!(
            "the worker died {} in step {}, so that it runs again later each time, and fails when that goes on; find what \
             ends the worker's process there",
            deaths::times(instance.deaths),
            instance.step
        );
        (Code::WorkerDied, text)
    })
}

/// Returns a reason if something should have happened by now and did not.
fn overdue(instance: &Instance, world: World<'_>) -> Option<(Code, String)> {
    let (due, now) = (instance.due_at?, world.now?);
    if instance.status == Status::Reserved || now.since(due) <= PATIENCE {
        return None;
    }
    let text = match world.workers {
        Some([]) => "it is overdue: no worker is running, so timers do not fire; start one",
        _ => {
            "it is overdue, and workers are running, which fire timers; if this stays so, read their logs"
        }
    };
    Some((Code::Overdue, text.to_owned()))
}

/// `true` if an instance is failing (rule 13.1): open, not blocked, and a step of it has failed more than three times
/// in a row.
pub fn is_failing(instance: &Instance) -> bool {
    !instance.is_blocked() && failing(instance).is_some()
}

/// Returns a reason if a step has failed more than three times in a row. Only then does the row of a workflow have an
/// error.
fn failing(instance: &Instance) -> Option<(Code, String)> {
    let error = instance.last_error.as_deref()?;
    // A death is not a failure of the step (rule 5.3).
    let failures = instance.attempt.saturating_sub(instance.deaths);
    let text = match instance.kind {
        _ if instance.status.is_terminal() => return None,
        Kind::Workflow => error.to_owned(),
        Kind::Machine if failures <= FAILURES_HEALTHY => return None,
        Kind::Machine => format!(
            "its step {} has failed {failures} times in a row: {error}",
            instance.step
        ),
    };
    Some((Code::Failing, text))
}

/// Returns the error that the row of a workflow stores for a step of its code that has failed again and will be
/// retried. `None` while the number of failures still counts as healthy.
pub fn failing_step(name: &Name, attempts: u32, error: &str) -> Option<String> {
    (attempts > FAILURES_HEALTHY)
        .then(|| format!("its step {name} has failed {attempts} times in a row: {error}"))
}

/// Returns a reason if something arrived that may have been meant to end the wait and did not.
fn near_miss(instance: &Instance, around: &Around) -> Option<Reason> {
    if instance.status != Status::AwaitingSignal || instance.resume_source.is_some() {
        return None;
    }
    let slip = around
        .pending_names
        .iter()
        .find_map(|(name, id)| Some((name, *id, similar::meant(name, &instance.awaits)?)));
    if let Some((name, id, meant)) = slip {
        return Some(Reason {
            code: Code::SimilarSignal,
            text: format!(
                "signal {id} is pending under the name {:?}, and it waits for {:?}; if that was meant, send it under that name",
                name.as_str(),
                meant.as_str()
            ),
            command_id: Some(id),
        });
    }
    let event = around.unmatched_event.as_ref()?;
    Some(Reason {
        code: Code::UnmatchedEvent,
        text: format!(
            "event {:?} of type {:?} came since and did not match; compare it with the conditions of the wait",
            event.event_id.as_str(),
            event.event_type.as_str()
        ),
        command_id: None,
    })
}

/// Returns a reason if too many of the children that an instance waits for cannot continue by themselves. It checks the
/// children, not their own children.
fn stranded(instance: &Instance, world: World<'_>) -> Option<(Code, String)> {
    let around = world.around?;
    let open = around.children_open().unwrap_or(instance.children_pending);
    let blocked = around.count(|one| one.status == Status::Scheduled && !one.is_due);
    let unserved: Vec<(&Siblings, &(Name, Lane))> = around
        .children
        .iter()
        .filter_map(|one| Some((one, one.runs_on.as_ref()?)))
        .filter(|(_, (queue, lane))| {
            world.workers.is_some_and(|workers| {
                let mut workers = workers.iter();
                !workers.any(|one| serves_lane(one, queue, &lane.machine, lane.version))
            })
        })
        .collect();
    let idle: u32 = unserved.iter().map(|(one, _)| one.count).sum();
    if open.saturating_sub(blocked).saturating_sub(idle) >= instance.children_needed {
        return None;
    }
    if blocked > 0 {
        let text = format!(
            "{blocked} of the children that it waits for cannot go on with the code that is deployed; deploy code that fits, \
             or repair them"
        );
        return Some((Code::ChildrenBlocked, text));
    }
    let lanes = unserved.iter().take(LANES_NAMED);
    let mut lanes: Vec<String> = lanes
        .map(|(_, (queue, lane))| lane_named(queue, &lane.machine, lane.version))
        .collect();
    if let Some(more) = unserved.len().checked_sub(LANES_NAMED)
        && more > 0
    {
        lanes.push(format!("{more} more"));
    }
    (idle > 0).then(|| {
        let text = format!(
            "{idle} of the children that it waits for could run, and no live worker serves {}; start one",
            lanes.join(", or ")
        );
        (Code::ChildrenUnserved, text)
    })
}

impl Around {
    fn count(&self, which: impl Fn(&Siblings) -> bool) -> u32 {
        let counts = self.children.iter().filter(|one| which(one));
        counts.map(|one| one.count).fold(0, u32::saturating_add)
    }

    /// Returns the number of its children that have not ended. `None` if it has more than were read.
    fn children_open(&self) -> Option<u32> {
        let is_whole = self.count(|_| true) < CHILDREN_SEEN;
        is_whole.then(|| self.count(|one| !one.status.is_terminal()))
    }
}

/// Returns the problem of a locked row, if it has one: the part that [`health`] shows as `repair_needed`.
pub fn problem(row: &Row, world: World<'_>) -> Option<Problem> {
    problem_of(&row.into(), world)
}

/// `true` if the contract is needed to decide whether an instance is healthy.
pub fn is_judged_by_contract(instance: &Instance) -> bool {
    waits_for_signals_alone(&instance.into())
}

/// `true` if the contract is needed to decide whether a locked row is healthy.
pub fn is_row_judged_by_contract(row: &Row) -> bool {
    waits_for_signals_alone(&row.into())
}

/// `true` if the list of workers is needed to decide whether an instance is healthy, at that time.
pub fn is_judged_by_workers(instance: &Instance, now: Timestamp) -> bool {
    match instance.status {
        Status::Runnable | Status::Executing | Status::AwaitingChildren => true,
        status if status.is_terminal() => false,
        _ => instance.due_at.is_some_and(|due| now.since(due) > PATIENCE),
    }
}

/// `true` if only signals can end its wait.
fn waits_for_signals_alone(at: &Position<'_>) -> bool {
    at.status == Status::AwaitingSignal
        && at.kind != Some(WaitKind::Condition)
        && at.waits.iter().all(|wait| wait.kind != WaitKind::Condition)
        && at.due_at.is_none()
        && at.needed == 0
        && at.names.iter().all(|name| name.event_type().is_none())
}

fn problem_of(at: &Position<'_>, world: World<'_>) -> Option<Problem> {
    // An instance that has ended, or was never started, waits for nothing and cannot be repaired.
    if at.status.is_terminal() || at.status == Status::Reserved {
        return None;
    }
    let stuck = match at.blocked {
        true => None,
        false => stuck(at, world),
    };
    // Last, because every other repair also corrects the counts.
    stuck.or_else(|| is_miscounted(at.inbox, world.around?).then_some(Problem::Miscounted))
}

/// `true` if the counts of pending messages are wrong.
pub fn is_miscounted(inbox: Inbox, around: &Around) -> bool {
    (inbox.signals, inbox.updates) != (around.signals, around.updates)
}

fn stuck(at: &Position<'_>, world: World<'_>) -> Option<Problem> {
    let around = world.around;
    let parked = matches!(
        at.status,
        Status::Scheduled | Status::AwaitingSignal | Status::AwaitingChildren
    );
    // Updates to a row whose workers died are handled when it runs again.
    if parked && !at.recovering && misses_update(at, around) {
        let newest = around.and_then(|around| around.newest_update);
        return Some(Problem::MissedUpdate(newest.map(|(id, _)| id)));
    }
    match at.status {
        Status::Scheduled if at.due_at.is_none() => Some(Problem::NeverDue),
        Status::AwaitingSignal if at.names.is_empty() && waits_for_signals_alone(at) => {
            Some(Problem::WaitsForNothing)
        }
        Status::AwaitingSignal => {
            let waits = matches!(at.kind, Some(WaitKind::Signal | WaitKind::Event));
            let missed = around.filter(|_| waits).and_then(|one| one.missed_signal);
            missed
                .map(Problem::MissedSignal)
                .or_else(|| undeclared(at, world.terms?))
        }
        Status::AwaitingChildren => {
            let open = around.and_then(Around::children_open).unwrap_or(u32::MAX);
            (at.needed == 0 || open < at.needed).then_some(Problem::MissedChildren)
        }
        Status::Executing => {
            let held = at.has_worker && around.is_none_or(|around| around.has_holder);
            (!held).then_some(Problem::NotHeld)
        }
        Status::Runnable if at.behind && around.is_some_and(|around| !around.has_front) => {
            Some(Problem::NoFront)
        }
        Status::Runnable if at.due_at.is_none() => Some(Problem::NeverDue),
        _ => None,
    }
}

/// `true` if an update is pending that should have woken a parked instance. A workflow's code may know of updates that
/// its handlers have not answered yet (rule 9.1): all that had arrived when it parked. An update that arrived later
/// should have woken it.
fn misses_update(at: &Position<'_>, around: Option<&Around>) -> bool {
    match around {
        None => at.inbox.updates > 0 && !at.workflow,
        Some(around) if at.workflow => around
            .newest_update
            .is_some_and(|(_, sequence)| sequence > at.inbox.handed),
        Some(around) => around.updates > 0,
    }
}

/// Returns a problem if none of the signals that it waits for can be sent, and nothing else can end its wait
/// (rule 8.6).
fn undeclared(at: &Position<'_>, terms: &Terms) -> Option<Problem> {
    let hopeless = waits_for_signals_alone(at) && !at.names.iter().any(|name| terms.takes(name));
    hopeless.then(|| Problem::UndeclaredSignal(at.names.to_vec()))
}

#[cfg(test)]
mod tests;
