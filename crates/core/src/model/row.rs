//! The part of an instance that rules decide over: loaded under lock, changed, written back.

use super::{
    BarrierNumber, Cause, ContractId, Epoch, EventSequence, InstanceId, Key, Kind, Lease, Name,
    Priority, Scope, Sequence, Status, Timestamp, WaitId, WaitKind, WorkerId,
};

/// The part of an instance that rules decide over. States and results are not in it: no rule reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The instance.
    pub id: InstanceId,
    /// Which front runs it.
    pub kind: Kind,
    /// Where it stands.
    pub status: Status,
    /// In which statuses it holds its keys.
    pub scopes: Scopes,
    /// The step that runs, or runs next.
    pub step: Name,
    /// The number of that step in the run.
    pub step_seq: u32,
    /// How often that step was begun before.
    pub attempt: u32,
    /// Its queue.
    pub queue: Name,
    /// How urgent.
    pub priority: Priority,
    /// When the engine must next look at it: when it is due, its wait's deadline, or since when it is runnable.
    pub due_at: Option<Timestamp>,
    /// Its partition.
    pub partition_key: Option<Key>,
    /// Whether another of its partition goes first.
    pub behind: bool,
    /// Who holds it.
    pub worker: Option<WorkerId>,
    /// How long that hold is believed in, when it has a lease of its own.
    pub lease: Option<Lease>,
    /// Counts whatever ended a hold on it.
    pub epoch: Epoch,
    /// The last epoch under which an outcome was committed: tells a commit that is sent again from a stale one.
    pub settled: Epoch,
    /// What woke it, or will have.
    pub cause: Cause,
    /// Whether its wait ran into its deadline.
    pub timed_out: bool,
    /// What it waits for, or has been woken from and not yet moved on.
    pub awaits: Option<Awaits>,
    /// The events that a workflow's operations wait for, and up to which of them nothing was missed.
    pub attended: Vec<Attended>,
    /// Where it goes back to when it runs for nothing but updates.
    pub aside: Option<Aside>,
    /// Its messages, as far as rules count them.
    pub inbox: Inbox,
    /// What its signals and updates must look like.
    pub contract: Option<ContractId>,
    /// Which run of its chain it is.
    pub run: Run,
    /// Whose child it is.
    pub parent: Option<InstanceId>,
    /// Of which of the parent's barriers.
    pub parent_barrier: BarrierNumber,
    /// Its own children.
    pub family: Family,
    /// Whether it keeps a history.
    pub history: bool,
    /// The number of the last event in its history.
    pub history_seq: u32,
    /// What it failed of.
    pub last_error: Option<String>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// In which statuses an instance holds its key, and in which its unique key: in none where it does not have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// Of the key.
    pub key: Scope,
    /// Of the unique key.
    pub unique_key: Scope,
}

impl Scopes {
    /// Of an instance that never holds a key.
    pub const NONE: Self = Self {
        key: Scope::NEVER,
        unique_key: Scope::NEVER,
    };

    /// These scopes without the statuses of others.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            key: self.key.without(other.key),
            unique_key: self.unique_key.without(other.unique_key),
        }
    }
}

/// What an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaits {
    /// Of which kind the wait is.
    pub kind: WaitKind,
    /// The signals that would wake it.
    pub names: Vec<Name>,
    /// Since when it waits.
    pub since: Timestamp,
    /// The wait's own id; none when it waits for children.
    pub id: Option<WaitId>,
}

/// Up to which event an operation that waits for events has missed none. Waiters stand for a workflow only while it is
/// parked: what was published after this, and matches, either ended the operation or is found when it parks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Attended {
    /// The operation; 0 for those of a run that was parked before this was noted, of all of its operations.
    pub operation: u32,
    /// The last event of the type that was published before the operation was begun, or before it last parked.
    pub sequence: EventSequence,
}

/// Where an instance that runs for nothing but updates goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Aside {
    /// Where it stood.
    pub status: Status,
    /// When it was due.
    pub due_at: Option<Timestamp>,
    /// What would have woken it.
    pub cause: Cause,
}

/// An instance's messages, as far as rules count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Inbox {
    /// The last sequence given out in its chain.
    pub sequence: Sequence,
    /// The highest sequence that it has consumed.
    pub cursor: Sequence,
    /// How many signals are pending.
    pub signals: u32,
    /// How many updates are.
    pub updates: u32,
    /// Up to which sequence the step that was woken is handed what it waited for.
    pub handed: Sequence,
    /// How many bytes of arguments are pending, or more: what has come since the inbox was empty, or was counted.
    #[serde(default)]
    pub bytes: u64,
}

impl Inbox {
    /// Forgets the bytes of what was consumed, when that was all. Else they are kept: it costs less to count what is left
    /// when that matters.
    pub fn settle_bytes(&mut self) {
        if self.signals == 0 && self.updates == 0 {
            self.bytes = 0;
        }
    }
}

/// Which run of its chain an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Run {
    /// 1, 2, 3 …
    #[serde(rename = "run_number")]
    pub number: u32,
    /// The chain's first run, when this is not it.
    #[serde(rename = "first_id")]
    pub first: Option<InstanceId>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            number: 1,
            first: None,
        }
    }
}

impl Row {
    /// The chain that it belongs to, named by its first run.
    pub fn chain(&self) -> InstanceId {
        self.run.first.unwrap_or(self.id)
    }

    /// Whether its code did not fit its history, and nothing runs it before somebody says so (rule 12.4).
    pub fn is_blocked(&self) -> bool {
        self.status == Status::Scheduled && self.cause == Cause::Replay && self.due_at.is_none()
    }

    /// Whether waiters for events stand for it.
    pub fn has_waiters(&self) -> bool {
        self.stands() == Status::AwaitingSignal
            && self
                .awaits
                .as_ref()
                .is_some_and(|awaits| awaits.names.iter().any(|name| name.event_type().is_some()))
    }

    /// Where it stands when updates are not looked at.
    pub fn stands(&self) -> Status {
        self.aside.map_or(self.status, |aside| aside.status)
    }
}

/// An instance's children, as its barrier counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Family {
    /// How many barriers it has had; the last one's number.
    pub barrier: BarrierNumber,
    /// How many children of the last one have not ended; of a workflow, how many of all.
    pub pending: u32,
    /// How many more of them must end before the barrier opens.
    pub needed: u32,
    /// How many ends of children it has been told of. It only grows: a child that is started again and ends again counts
    /// twice, so that no end is hidden behind a restart.
    pub ended: u64,
}
