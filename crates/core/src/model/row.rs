//! The part of an instance that rules use: loaded under lock, changed, written back.

use serde::{Deserialize, Serialize};

use super::{
    BarrierNumber, Cause, CommandId, ContractId, Epoch, EventSequence, InstanceId, Key, Kind,
    Lease, Name, Priority, ResumeSource, Scope, Sequence, Status, Timestamp, WaitId, WaitKind,
    WorkerId,
};

/// The part of an instance that rules use. It does not contain the state and the result: no rule reads them.
///
/// As JSON, which clients of a server read, it has flat fields and leaves out what only commits need: the fields that are
/// skipped have their default there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The instance.
    pub id: InstanceId,
    /// Its kind: machine or workflow.
    pub kind: Kind,
    /// Its machine.
    pub machine: Name,
    /// When it was started.
    pub created_at: Timestamp,
    /// Its status.
    pub status: Status,
    /// The statuses in which it holds its keys.
    #[serde(skip)]
    pub scopes: Scopes,
    /// The step that runs, or runs next.
    pub step: Name,
    /// The number of that step in the run.
    pub step_seq: u32,
    /// Number of times that the step was begun before.
    pub attempt: u32,
    /// Number of these attempts in which its worker died (rule 5.5).
    #[serde(default)]
    pub deaths: u32,
    /// Its queue.
    pub queue: Name,
    /// Its priority.
    pub priority: Priority,
    /// The next time at which the engine must handle it: when it is due, the deadline of its wait, or since when it has
    /// been runnable.
    pub due_at: Option<Timestamp>,
    /// Its partition.
    pub partition_key: Option<Key>,
    /// `true` if another instance of its partition runs first.
    pub behind: bool,
    /// The worker that holds it.
    pub worker: Option<WorkerId>,
    /// The lease of that claim, if it has one of its own.
    #[serde(skip)]
    pub lease: Option<Lease>,
    /// The epoch, which grows whenever a claim is granted or ends.
    #[serde(skip)]
    pub epoch: Epoch,
    /// The epochs under which outcomes were committed: they distinguish a repeated commit from a stale one.
    #[serde(skip)]
    pub settled: Settled,
    /// The reason why it runs, or will run.
    pub cause: Cause,
    /// `true` if its wait timed out.
    pub timed_out: bool,
    /// Its wait: the open one, or the one that it was woken from until its next outcome is committed.
    #[serde(flatten, with = "flat_wait")]
    pub awaits: Option<Awaits>,
    /// For each operation of a workflow that waits for events, the event up to which it has missed none.
    #[serde(skip)]
    pub attended: Vec<Attended>,
    /// The status it returns to after it has run only for updates.
    pub aside: Option<Aside>,
    /// The counters of its inbox.
    pub inbox: Inbox,
    /// The contract of its signals and updates.
    pub contract: Option<ContractId>,
    /// Its run number and chain.
    #[serde(flatten)]
    pub run: Run,
    /// Its parent, if it is a child.
    pub parent: Option<InstanceId>,
    /// The parent's barrier that it belongs to.
    pub parent_barrier: BarrierNumber,
    /// The counters of its children.
    #[serde(flatten, with = "FlatFamily")]
    pub family: Family,
    /// `true` if it keeps a history.
    pub history: bool,
    /// The number of the last event in its history.
    #[serde(rename = "history_events")]
    pub history_seq: u32,
    /// The history events that combine several attempts and may grow, in the order of their numbers.
    #[serde(skip)]
    pub folding: Vec<Folding>,
    /// Its error.
    pub last_error: Option<String>,
    /// The builds that could not run its step, the last one at the end: none of them claims it (rule 12.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<Name>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// The epochs of a run under which outcomes were committed, as far back as the row stores them (rule 1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settled {
    /// The last of them; 0, which no claim has, if there is none.
    pub last: Epoch,
    /// A bit for each of the 64 epochs before that, set if an outcome was committed under it: bit 0 for the one just
    /// before it.
    pub before: u64,
}

/// The statuses in which an instance holds its key and its unique key; none if it does not have that key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// The scope of the key.
    pub key: Scope,
    /// The scope of the unique key.
    pub unique_key: Scope,
}

impl Default for Scopes {
    fn default() -> Self {
        Self::NONE
    }
}

impl Scopes {
    /// The scopes of an instance that never holds a key.
    pub const NONE: Self = Self {
        key: Scope::NEVER,
        unique_key: Scope::NEVER,
    };

    /// Returns these scopes without the statuses of others.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            key: self.key.without(other.key),
            unique_key: self.unique_key.without(other.unique_key),
        }
    }
}

/// The wait of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaits {
    /// The kind of the wait.
    pub kind: WaitKind,
    /// The signals that would wake it.
    pub names: Vec<Name>,
    /// When the wait began.
    pub since: Timestamp,
    /// The wait's own id. `None` if it waits for children.
    pub id: Option<WaitId>,
    /// The waits of a workflow's operations for signals, events and conditions, by operation; empty for a machine.
    pub waits: Vec<OperationWait>,
    /// The source that ended the wait, until the outcome of the step that it woke is committed (rule 13.1).
    pub resumed: Option<ResumeSource>,
}

impl Awaits {
    /// Creates an open wait without waits of operations.
    pub const fn new(
        kind: WaitKind,
        names: Vec<Name>,
        since: Timestamp,
        id: Option<WaitId>,
    ) -> Self {
        Self {
            kind,
            names,
            since,
            id,
            waits: Vec::new(),
            resumed: None,
        }
    }
}

/// A signal, an event or a condition that one operation of a workflow waits for (rules 7.6 and 13.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationWait {
    /// The operation.
    pub operation: u32,
    /// A signal, an event, or a condition. No command is assigned to a condition: the code evaluates it.
    pub kind: WaitKind,
    /// The signal, the type of the event, or the key of the condition. `None` for a condition without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The wait's id: its own, or that of the buffered signal that it takes.
    pub id: WaitId,
    /// The deadline of the operation's wait for a signal or a condition; the deadline for an event is that of the whole
    /// wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The signal or event that it takes, once that has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
}

/// The event up to which an operation that waits for events has missed none. A workflow has waiters only while it is
/// parked: a matching event that is published later either ended the operation or is found when the workflow parks
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attended {
    /// The operation. 0 for a run that was parked by a release that did not record this; it then applies to all
    /// operations of the run.
    pub operation: u32,
    /// The last event of the type that was published before the operation began, or before it last parked.
    pub sequence: EventSequence,
}

/// A history event that combines several attempts at one step: the part of it that recording the next attempt needs
/// (rule 16.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folding {
    /// Its number, and that of the row that contains it: the number of the last attempt.
    pub seq: u32,
    /// The step of a workflow that was retried. `None` for a machine's step, and for a workflow's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// The first attempt that it combines.
    pub first: u32,
    /// Number of attempts that it combines.
    pub count: u32,
    /// Number of attempts that ended with the death of a worker.
    #[serde(default)]
    pub deaths: u32,
    /// When the first of them was recorded.
    pub since: Timestamp,
}

/// The position that an instance returns to after it has run only for updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// Its status before.
    pub status: Status,
    /// Its due time before.
    pub due_at: Option<Timestamp>,
    /// Its cause before.
    pub cause: Cause,
}

/// The counters of an instance's inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inbox {
    /// The last sequence that was issued in its chain.
    pub sequence: Sequence,
    /// The highest sequence that it has consumed.
    pub cursor: Sequence,
    /// Number of pending signals.
    pub signals: u32,
    /// Number of pending updates.
    pub updates: u32,
    /// The sequence up to which the step that was woken is handed the signals that it waited for.
    pub handed: Sequence,
    /// Upper bound of the bytes of pending arguments: all that arrived since the inbox was last empty, or was last
    /// counted.
    #[serde(default)]
    pub bytes: u64,
    /// Number of commands that were recorded for the run, including refused ones: the number of the last one
    /// (rule 7.1).
    #[serde(default)]
    pub commands: Sequence,
}

impl Inbox {
    /// Returns the number of the next command that is recorded for the run (rule 7.1).
    pub fn number_command(&mut self) -> Sequence {
        self.commands = Sequence(self.commands.0.saturating_add(1));
        self.commands
    }

    /// Resets the byte count if everything was consumed. Otherwise it is kept: counting what is left, when it matters,
    /// costs less.
    pub fn settle_bytes(&mut self) {
        if self.signals == 0 && self.updates == 0 {
            self.bytes = 0;
        }
    }
}

/// The position of a run in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The run number: 1, 2, 3 …
    #[serde(rename = "run_number")]
    pub number: u32,
    /// The chain's first run, if this is a later one.
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
    /// Creates a runnable row at its first step, with the values that nearly every row has.
    pub fn new(
        id: InstanceId,
        machine: Name,
        step: Name,
        queue: Name,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            kind: Kind::Machine,
            machine,
            created_at,
            status: Status::Runnable,
            scopes: Scopes::NONE,
            step,
            step_seq: 1,
            attempt: 0,
            deaths: 0,
            queue,
            priority: Priority::default(),
            due_at: None,
            partition_key: None,
            behind: false,
            worker: None,
            lease: None,
            epoch: Epoch::default(),
            settled: Settled::default(),
            cause: Cause::Start,
            timed_out: false,
            awaits: None,
            attended: Vec::new(),
            aside: None,
            inbox: Inbox::default(),
            contract: None,
            run: Run::default(),
            parent: None,
            parent_barrier: BarrierNumber::default(),
            family: Family::default(),
            history: true,
            history_seq: 1,
            folding: Vec::new(),
            last_error: None,
            unfit: Vec::new(),
            finished_at: None,
        }
    }

    /// Returns its chain, named by the id of the first run.
    pub fn chain(&self) -> InstanceId {
        self.run.first.unwrap_or(self.id)
    }

    /// `true` if every build that claimed it could not run it, and it waits for another build or a repair (rule 12.4).
    pub fn is_blocked(&self) -> bool {
        self.status == Status::Scheduled && self.cause == Cause::Replay && self.due_at.is_none()
    }

    /// `true` if it waits to run again because its workers died in its step (rule 5.6). Commands that arrive meanwhile
    /// wait with it, as they do for a runnable row.
    pub fn is_recovering(&self) -> bool {
        self.status == Status::Scheduled && self.cause == Cause::Reclaim && self.due_at.is_some()
    }

    /// `true` if waiters for events exist for it.
    pub fn has_waiters(&self) -> bool {
        self.stands() == Status::AwaitingSignal
            && self
                .awaits
                .as_ref()
                .is_some_and(|awaits| awaits.names.iter().any(|name| name.event_type().is_some()))
    }

    /// Returns the kind of its wait.
    pub fn wait_kind(&self) -> Option<WaitKind> {
        self.awaits.as_ref().map(|awaits| awaits.kind)
    }

    /// Returns when its wait began.
    pub fn wait_since(&self) -> Option<Timestamp> {
        self.awaits.as_ref().map(|awaits| awaits.since)
    }

    /// Returns the id of its wait.
    pub fn wait_id(&self) -> Option<&WaitId> {
        self.awaits.as_ref()?.id.as_ref()
    }

    /// Returns the signals that would wake it.
    pub fn awaited(&self) -> &[Name] {
        self.awaits.as_ref().map_or(&[], |awaits| &awaits.names)
    }

    /// Returns the waits of a workflow's operations.
    pub fn waits(&self) -> &[OperationWait] {
        self.awaits.as_ref().map_or(&[], |awaits| &awaits.waits)
    }

    /// Returns the source that ended its wait, until that is applied (rule 13.1).
    pub fn resume_source(&self) -> Option<ResumeSource> {
        self.awaits.as_ref()?.resumed
    }

    /// Returns its status without regard to updates: if it runs only for updates, the status that it returns to.
    pub fn stands(&self) -> Status {
        self.aside.map_or(self.status, |aside| aside.status)
    }
}

/// The counters of an instance's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Family {
    /// Number of barriers that it has had, which is the number of the last one.
    pub barrier: BarrierNumber,
    /// Number of children of the last barrier that have not ended; for a workflow, of all children.
    pub pending: u32,
    /// Number of children that must still end before the barrier opens.
    pub needed: u32,
    /// Number of ends of children that it has been notified of. It only grows: a child that is restarted and ends again
    /// counts twice, so no end is hidden by a restart.
    pub ended: u64,
}

/// A wait as flat fields of a row's JSON.
mod flat_wait {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Awaits, Name, OperationWait, ResumeSource, Timestamp, WaitId, WaitKind};

    #[derive(Default, Serialize, Deserialize)]
    struct Fields {
        wait_kind: Option<WaitKind>,
        awaits: Vec<Name>,
        wait_since: Option<Timestamp>,
        wait_id: Option<WaitId>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waits: Vec<OperationWait>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume_source: Option<ResumeSource>,
    }

    pub fn serialize<S: Serializer>(awaits: &Option<Awaits>, to: S) -> Result<S::Ok, S::Error> {
        let fields = awaits.clone().map(|awaits| Fields {
            wait_kind: Some(awaits.kind),
            awaits: awaits.names,
            wait_since: Some(awaits.since),
            wait_id: awaits.id,
            waits: awaits.waits,
            resume_source: awaits.resumed,
        });
        fields.unwrap_or_default().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Awaits>, D::Error> {
        let fields = Fields::deserialize(from)?;
        let wait = fields.wait_kind.zip(fields.wait_since);
        Ok(wait.map(|(kind, since)| Awaits {
            kind,
            names: fields.awaits,
            since,
            id: fields.wait_id,
            waits: fields.waits,
            resumed: fields.resume_source,
        }))
    }
}

/// The counters of children as flat fields of a row's JSON.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Family")]
struct FlatFamily {
    barrier: BarrierNumber,
    #[serde(rename = "children_pending")]
    pending: u32,
    #[serde(rename = "children_needed")]
    needed: u32,
    #[serde(skip)]
    ended: u64,
}
