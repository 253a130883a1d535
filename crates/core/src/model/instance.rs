//! The complete row of an instance, as readers see it.

use serde::{Deserialize, Serialize};

use super::json::null_is_a_result;
use super::{
    Aside, BarrierNumber, Cause, CommandId, CommandKind, ContractId, Inbox, InstanceId, Json, Key,
    Kind, Name, OperationWait, Policy, Priority, Run, Scope, Status, Timestamp, UniqueKey, WaitId,
    WorkerId,
};

/// The complete row of an instance, as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Instance {
    /// Its id.
    pub id: InstanceId,
    /// The name that the business knows it by.
    pub key: Option<Key>,
    /// The statuses in which it holds the key.
    pub scope: Scope,
    /// A second identity, which cannot be used as an address.
    pub unique_key: Option<UniqueKey>,
    /// The statuses in which it holds the unique key.
    pub unique_scope: Scope,
    /// Its kind: machine or workflow.
    pub kind: Kind,
    /// The machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// The step it began at.
    pub first_step: Name,
    /// The step that runs, or runs next.
    pub step: Name,
    /// The number of that step in the run.
    pub step_seq: u32,
    /// Number of times that the step was begun before.
    pub attempt: u32,
    /// Number of these attempts in which its worker died (rule 5.5).
    #[serde(default)]
    pub deaths: u32,
    /// Its status.
    pub status: Status,
    /// Its state.
    pub state: Json,
    /// Its result, if it is done.
    pub result: Option<Json>,
    /// Its error, if it has failed.
    pub last_error: Option<String>,
    /// The builds that could not run its step, the last one at the end (rule 12.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<Name>,
    /// Its queue.
    pub queue: Name,
    /// Its priority.
    pub priority: Priority,
    /// When it is due, the deadline of its wait, or since when it has been runnable.
    pub due_at: Option<Timestamp>,
    /// Its partition.
    pub partition_key: Option<Key>,
    /// `true` if another instance of its partition runs first.
    pub behind: bool,
    /// The worker that holds it.
    pub worker: Option<WorkerId>,
    /// The reason why it last ran.
    pub cause: Cause,
    /// `true` if its wait timed out.
    pub timed_out: bool,
    /// The kind of its wait.
    pub wait_kind: Option<WaitKind>,
    /// The signals that would wake it.
    pub awaits: Vec<Name>,
    /// When the wait began.
    pub wait_since: Option<Timestamp>,
    /// The wait's id.
    pub wait_id: Option<WaitId>,
    /// The waits of a workflow's operations for signals, events and conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OperationWait>,
    /// The source that ended its wait, until that is applied (rule 13.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_source: Option<ResumeSource>,
    /// The status it returns to after it has run only for updates.
    pub aside: Option<Aside>,
    /// The counters of its inbox.
    pub inbox: Inbox,
    /// The contract of its signals and updates.
    pub contract: Option<ContractId>,
    /// Its own failure policy, where that differs from what its machine declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Its run number and chain.
    #[serde(flatten)]
    pub run: Run,
    /// Number of its children that must still end.
    pub children_needed: u32,
    /// Its parent, if it is a child.
    pub parent: Option<InstanceId>,
    /// The parent's barrier that it belongs to.
    pub parent_barrier: BarrierNumber,
    /// The number of its last barrier.
    pub barrier: BarrierNumber,
    /// Number of children of the last barrier that have not ended.
    pub children_pending: u32,
    /// `true` if it keeps a history.
    pub history: bool,
    /// The number of its last history event.
    pub history_events: u32,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

null_is_a_result!(Instance, |one| one.status == Status::Done);
null_is_a_result!(Child, |one| one.status == Status::Done);

impl Instance {
    /// `true` if every build that claimed it could not run it, and it waits for another build or a repair (rule 12.4).
    pub fn is_blocked(&self) -> bool {
        self.status == Status::Scheduled && self.cause == Cause::Replay && self.due_at.is_none()
    }

    /// `true` if it waits to run again because its workers died in its step (rule 5.6).
    pub fn is_recovering(&self) -> bool {
        self.status == Status::Scheduled && self.cause == Cause::Reclaim && self.due_at.is_some()
    }

    /// Returns its chain, named by the id of the first run.
    pub fn chain(&self) -> InstanceId {
        self.run.first.unwrap_or(self.id)
    }
}

/// The kind of an instance's wait; `signal` also for signals and events together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum WaitKind {
    /// A signal, possibly together with events.
    Signal = 1,
    /// An event.
    Event = 2,
    /// A condition.
    Condition = 3,
    /// Only time.
    Timer = 4,
    /// Its children.
    Children = 5,
}

impl WaitKind {
    /// The number that the databases store for it.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Converts the stored number back. Returns `None` if it is unknown.
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Signal),
            2 => Some(Self::Event),
            3 => Some(Self::Condition),
            4 => Some(Self::Timer),
            5 => Some(Self::Children),
            _ => None,
        }
    }

    /// Returns the kind with that name.
    pub fn named(name: &str) -> Option<Self> {
        (1..=5)
            .filter_map(Self::from_code)
            .find(|kind| kind.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Event => "event",
            Self::Condition => "condition",
            Self::Timer => "timer",
            Self::Children => "children",
        }
    }
}

/// The source that ended a wait, kept until the outcome of the step that it woke is committed (rule 13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResumeSource {
    /// The command; the first one if several arrived. Null for a deadline and for the end of children.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub command_id: Option<CommandId>,
    /// Its kind.
    pub kind: ResumeKind,
}

impl ResumeSource {
    /// Creates the source for a command, which is an event if it has the reserved name of one.
    pub fn command(id: CommandId, kind: CommandKind, name: &Name) -> Self {
        let kind = match (kind, name.event_type()) {
            (CommandKind::Signal, None) => ResumeKind::Signal,
            (CommandKind::Signal, Some(_)) => ResumeKind::Event,
            (CommandKind::Update, _) => ResumeKind::Update,
            (CommandKind::Cancel, _) => ResumeKind::Cancel,
        };
        Self {
            command_id: Some(id),
            kind,
        }
    }

    /// Creates the source for a deadline or for the end of children.
    pub const fn of(kind: ResumeKind) -> Self {
        Self {
            command_id: None,
            kind,
        }
    }
}

/// The kind of the source that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum ResumeKind {
    /// A signal.
    Signal = 1,
    /// An event.
    Event = 2,
    /// An update, which is handled during the wait; the wait stays open.
    Update = 3,
    /// A cancellation, which reaches a workflow's code.
    Cancel = 4,
    /// Its deadline.
    Timeout = 5,
    /// The end of its children.
    Children = 6,
}

impl ResumeKind {
    /// All of them, in the order of their codes, which begin at 1.
    pub const ALL: [Self; 6] = [
        Self::Signal,
        Self::Event,
        Self::Update,
        Self::Cancel,
        Self::Timeout,
        Self::Children,
    ];

    /// The number that the databases store for it.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Converts the stored number back. Returns `None` if it is unknown.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Event => "event",
            Self::Update => "update",
            Self::Cancel => "cancel",
            Self::Timeout => "timeout",
            Self::Children => "children",
        }
    }
}

/// A child as its parent sees it when it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Child {
    /// The child.
    pub id: InstanceId,
    /// Its key.
    pub key: Option<Key>,
    /// Its machine.
    pub machine: Name,
    /// Its status.
    pub status: Status,
    /// Its state.
    pub state: Json,
    /// Its result, if it is done.
    pub result: Option<Json>,
    /// Its error, if it has failed.
    pub last_error: Option<String>,
}
