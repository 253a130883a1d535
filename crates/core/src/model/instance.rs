//! An instance as readers see it.

use serde::{Deserialize, Serialize};

use super::json::null_is_a_result;
use super::{
    Aside, BarrierNumber, Cause, ContractId, Inbox, InstanceId, Json, Key, Kind, Name, Priority,
    Run, Scope, Status, Timestamp, UniqueKey, WaitId, WorkerId,
};

/// An instance as readers see it: the whole row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Instance {
    /// Its id.
    pub id: InstanceId,
    /// Its business identity.
    pub key: Option<Key>,
    /// In which statuses the key is taken.
    pub scope: Scope,
    /// A second identity that addresses nothing.
    pub unique_key: Option<UniqueKey>,
    /// In which statuses that one is taken.
    pub unique_scope: Scope,
    /// Which front runs it.
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
    /// How often that step was begun before.
    pub attempt: u32,
    /// Where it stands.
    pub status: Status,
    /// Its state.
    pub state: Json,
    /// What it came to, when it is done.
    pub result: Option<Json>,
    /// What it failed of, when it has.
    pub last_error: Option<String>,
    /// Its queue.
    pub queue: Name,
    /// How urgent.
    pub priority: Priority,
    /// When it is due, its wait's deadline, or since when it is runnable.
    pub due_at: Option<Timestamp>,
    /// Its partition.
    pub partition_key: Option<Key>,
    /// Whether another of its partition goes first.
    pub behind: bool,
    /// Who holds it.
    pub worker: Option<WorkerId>,
    /// What woke it last.
    pub cause: Cause,
    /// Whether its wait ran into its deadline.
    pub timed_out: bool,
    /// What kind of thing it waits for.
    pub wait_kind: Option<WaitKind>,
    /// The signals that would wake it.
    pub awaits: Vec<Name>,
    /// Since when it waits.
    pub wait_since: Option<Timestamp>,
    /// The wait's id.
    pub wait_id: Option<WaitId>,
    /// Where it goes back to when it runs for nothing but updates.
    pub aside: Option<Aside>,
    /// Its messages, counted.
    pub inbox: Inbox,
    /// What its signals and updates must look like.
    pub contract: Option<ContractId>,
    /// Which run of its chain it is.
    #[serde(flatten)]
    pub run: Run,
    /// How many more of its children must end.
    pub children_needed: u32,
    /// Whose child it is.
    pub parent: Option<InstanceId>,
    /// Of which of the parent's barriers.
    pub parent_barrier: BarrierNumber,
    /// How many barriers it has had itself.
    pub barrier: BarrierNumber,
    /// How many children of the last one have not ended.
    pub children_pending: u32,
    /// Whether it keeps a history.
    pub history: bool,
    /// How many events that has.
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
    /// Whether its code did not fit its history, and nothing runs it before somebody says so (rule 12.4).
    pub fn is_blocked(&self) -> bool {
        self.status == Status::Scheduled && self.cause == Cause::Replay && self.due_at.is_none()
    }

    /// The chain that it belongs to, named by its first run.
    pub fn chain(&self) -> InstanceId {
        self.run.first.unwrap_or(self.id)
    }
}

/// What kind of thing an instance waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum WaitKind {
    /// A signal, also together with events.
    Signal = 1,
    /// An event.
    Event = 2,
    /// A condition.
    Condition = 3,
    /// Nothing but time.
    Timer = 4,
    /// Its children.
    Children = 5,
}

impl WaitKind {
    /// The number that stands for it in the databases.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Reads the number back.
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

    /// The kind of that name.
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
    /// Where it stands.
    pub status: Status,
    /// Its state.
    pub state: Json,
    /// What it came to, when it is done.
    pub result: Option<Json>,
    /// What it failed of, when it has.
    pub last_error: Option<String>,
}
