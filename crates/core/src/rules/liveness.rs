//! What an instance waits for, and whether anything can still wake it.

use serde::Serialize;

use crate::model::{
    Awaits, CommandKind, Inbox, Instance, Name, Pending, Row, Status, Timestamp, WaitId, WaitKind,
};

/// What an instance waits for (section 13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Of which kind.
    pub kind: WaitKind,
    /// The wait's id.
    pub id: Option<WaitId>,
    /// The signals that would wake it.
    pub names: Vec<Name>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Until when.
    pub deadline: Option<Timestamp>,
}

/// Whether an instance is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "liveness", content = "reason", rename_all = "snake_case")]
pub enum Liveness {
    /// It has ended.
    Closed,
    /// A worker has it.
    Running,
    /// A worker will take it.
    Ready,
    /// It is due later, or was reserved and is to be started.
    Scheduled,
    /// A signal will wake it.
    WaitingForSignal,
    /// An event will.
    WaitingForEvent,
    /// A condition will.
    WaitingForCondition,
    /// Its children will.
    WaitingForChildren,
    /// It could run, and no worker that lives has code for it.
    WaitingForWorker,
    /// Its code does not fit its history: what differs. A worker with code that fits, or a repair, lets it go on.
    ReplayBlocked(String),
    /// Nothing can wake it any more, for this reason.
    RepairNeeded(String),
}

impl Liveness {
    /// Its name.
    pub const fn name(&self) -> &'static str {
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
            Self::ReplayBlocked(_) => "replay_blocked",
            Self::RepairNeeded(_) => "repair_needed",
        }
    }
}

/// What is known of the world around an instance. What was not looked at is taken to be well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// Whether a worker that lives serves its queue and has code for it.
    pub served: Option<bool>,
    /// Whether the worker that holds it is known.
    pub worker_known: Option<bool>,
    /// How many children of its last barrier have not ended; of a workflow, how many of all.
    pub children_open: Option<u32>,
    /// Whether its partition has one at its front.
    pub has_front: Option<bool>,
    /// All that is pending in its inbox.
    pub pending: Option<&'a [Pending]>,
}

/// What can be wrong with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is due at no time.
    NeverDue,
    /// It waits for nothing.
    WaitsForNothing,
    /// A signal that it waits for is there, and did not wake it.
    MissedSignal,
    /// Updates are there, and did not wake it.
    MissedUpdate,
    /// Its children have ended, and did not wake it.
    MissedChildren,
    /// It executes, and nobody holds it.
    NobodyHolds,
    /// It stands behind in its partition, and nobody is at the front.
    NobodyAtFront,
    /// Its count of pending messages is wrong.
    Miscounted,
}

impl Problem {
    /// What it is, and why nothing else puts it right.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NeverDue => "it is scheduled, and due at no time",
            Self::WaitsForNothing => "it waits, and neither a signal nor a deadline can wake it",
            Self::MissedSignal => "a signal that it waits for is pending, and did not wake it",
            Self::MissedUpdate => "an update is pending, and did not wake it",
            Self::MissedChildren => {
                "it waits for more children than have yet to end, so that its barrier cannot open"
            }
            Self::NobodyHolds => "it executes, and no worker holds it",
            Self::NobodyAtFront => {
                "it stands behind in its partition, and nobody is at the front of it"
            }
            Self::Miscounted => "its count of pending messages is not what its inbox holds",
        }
    }
}

/// Where an instance stands, as far as this page looks at it.
struct Position<'a> {
    status: Status,
    due_at: Option<Timestamp>,
    has_worker: bool,
    kind: Option<WaitKind>,
    names: &'a [Name],
    inbox: Inbox,
    needed: u32,
    behind: bool,
    blocked: bool,
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
            inbox: row.inbox,
            needed: row.family.needed,
            behind: row.behind,
            blocked: row.is_blocked(),
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
            inbox: instance.inbox,
            needed: instance.children_needed,
            behind: instance.behind,
            blocked: instance.is_blocked(),
        }
    }
}

/// What an instance waits for, if it waits.
pub fn waiting(instance: &Instance) -> Option<Waiting> {
    let stands = instance.aside.map_or(instance.status, |aside| aside.status);
    let parked = matches!(
        stands,
        Status::Scheduled | Status::AwaitingSignal | Status::AwaitingChildren
    );
    let kind = instance.wait_kind.filter(|kind| {
        // A step that is tried again later still knows of the wait that it was woken from.
        parked && (stands != Status::Scheduled || *kind == WaitKind::Timer)
    })?;
    Some(Waiting {
        kind,
        id: instance.wait_id.clone(),
        names: instance.awaits.clone(),
        since: instance.wait_since,
        deadline: instance.aside.map_or(instance.due_at, |aside| aside.due_at),
    })
}

/// Whether an instance is well (section 13). The command line, the HTTP face and the dashboard all show what this says.
pub fn liveness(instance: &Instance, around: Around<'_>) -> Liveness {
    if let Some(problem) = problem_of(&instance.into(), around) {
        return Liveness::RepairNeeded(problem.text().to_owned());
    }
    if instance.is_blocked() {
        return Liveness::ReplayBlocked(instance.last_error.clone().unwrap_or_default());
    }
    match (instance.status, instance.wait_kind) {
        (status, _) if status.is_terminal() => Liveness::Closed,
        (Status::Executing, _) => Liveness::Running,
        (Status::Runnable, _) if around.served == Some(false) => Liveness::WaitingForWorker,
        (Status::Runnable, _) => Liveness::Ready,
        (Status::AwaitingSignal, Some(WaitKind::Event)) => Liveness::WaitingForEvent,
        (Status::AwaitingSignal, Some(WaitKind::Condition)) => Liveness::WaitingForCondition,
        (Status::AwaitingSignal, _) => Liveness::WaitingForSignal,
        (Status::AwaitingChildren, _) => Liveness::WaitingForChildren,
        _ => Liveness::Scheduled,
    }
}

/// What is wrong with a row that is locked, if anything is.
pub fn problem(row: &Row, around: Around<'_>) -> Option<Problem> {
    problem_of(&row.into(), around)
}

fn problem_of(at: &Position<'_>, around: Around<'_>) -> Option<Problem> {
    if let Some(pending) = around.pending {
        let of = |kind| pending.iter().filter(|one| one.kind == kind).count() as u64;
        let signals = of(CommandKind::Signal);
        let updates = of(CommandKind::Update) + of(CommandKind::Cancel);
        if (u64::from(at.inbox.signals), u64::from(at.inbox.updates)) != (signals, updates) {
            return Some(Problem::Miscounted);
        }
    }
    if at.blocked {
        return None;
    }
    let parked = matches!(
        at.status,
        Status::Scheduled | Status::AwaitingSignal | Status::AwaitingChildren
    );
    if parked && at.inbox.updates > 0 {
        return Some(Problem::MissedUpdate);
    }
    match at.status {
        Status::Scheduled if at.due_at.is_none() => Some(Problem::NeverDue),
        Status::AwaitingSignal
            if at.names.is_empty()
                && at.due_at.is_none()
                && at.needed == 0
                && at.kind != Some(WaitKind::Condition) =>
        {
            Some(Problem::WaitsForNothing)
        }
        Status::AwaitingSignal => {
            let missed = |one: &Pending| {
                matches!(at.kind, Some(WaitKind::Signal | WaitKind::Event))
                    && one.kind == CommandKind::Signal
                    && at.names.contains(&one.name)
                    && one.sequence > at.inbox.handed
            };
            let missed = around
                .pending
                .is_some_and(|pending| pending.iter().any(missed));
            missed.then_some(Problem::MissedSignal)
        }
        Status::AwaitingChildren => {
            let open = around.children_open.unwrap_or(u32::MAX);
            (at.needed == 0 || open < at.needed).then_some(Problem::MissedChildren)
        }
        Status::Executing => {
            let held = at.has_worker && around.worker_known != Some(false);
            (!held).then_some(Problem::NobodyHolds)
        }
        Status::Runnable if at.behind && around.has_front == Some(false) => {
            Some(Problem::NobodyAtFront)
        }
        Status::Runnable if at.due_at.is_none() => Some(Problem::NeverDue),
        _ => None,
    }
}
