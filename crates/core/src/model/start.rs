//! A request to start an instance, and the row that it becomes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    BarrierNumber, Cause, Contract, ContractId, Inbox, Instance, InstanceId, Json, Key, Kind, Name,
    Policy, Priority, Row, Run, Scope, Scopes, Status, Timestamp, UniqueKey,
};

/// A request to start one instance. Omitted fields take the value that the machine declares, or else a default.
///
/// ```
/// use abide_core::model::{Json, Key, Name, Start};
///
/// let start = Start { key: Some(Key::new("order:42")?), ..Start::of(Name::new("checkout")?, Json::null()) };
/// assert!(start.version.is_none());                  // the newest known
/// # Ok::<(), abide_core::model::Refusal>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The machine to run.
    pub machine: Name,
    /// Its kind; if omitted, as the machine declares, or else a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Its version; if omitted, the newest known, or 1 if none is known.
    #[serde(default)]
    pub version: Option<u32>,
    /// The step to begin at; if omitted, the machine's first step, or `start` if that is not known.
    #[serde(default)]
    pub step: Option<Name>,
    /// The state to begin with.
    #[serde(default)]
    pub state: Json,
    /// The name that the business knows it by.
    #[serde(default)]
    pub key: Option<Key>,
    /// The statuses in which it holds the key.
    #[serde(default)]
    pub scope: Scope,
    /// A second identity, which cannot be used as an address.
    #[serde(default)]
    pub unique_key: Option<UniqueKey>,
    /// The statuses in which it holds the unique key.
    #[serde(default)]
    pub unique_scope: Scope,
    /// The queue; if omitted, the machine's queue, or else `default`.
    #[serde(default)]
    pub queue: Option<Name>,
    /// Priority; lower runs first.
    #[serde(default)]
    pub priority: Priority,
    /// At most one instance of each partition executes at a time.
    #[serde(default)]
    pub partition_key: Option<Key>,
    /// When it is due.
    #[serde(default)]
    pub when: When,
    /// `true` if it keeps a history; if omitted, as the machine declares, or else `true`.
    #[serde(default)]
    pub history: Option<bool>,
    /// The contract of its signals and updates.
    #[serde(default, skip_serializing_if = "Contracted::is_declared")]
    pub contract: Contracted,
    /// Its own failure policy, where that differs from what its machine declares; for machines, not for workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// The contract of a start.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contracted {
    /// The one that the machine declares.
    #[default]
    Declared,
    /// None: it accepts any signal and no update.
    Free,
    /// This one, which is already stored.
    Of(ContractId),
    /// This one, which is stored with the start.
    Given(Box<Contract>),
}

impl Contracted {
    const fn is_declared(&self) -> bool {
        matches!(self, Self::Declared)
    }
}

impl Start {
    /// Creates a start of that machine with that state; everything else is omitted.
    pub fn of(machine: Name, state: Json) -> Self {
        Self {
            machine,
            kind: None,
            version: None,
            step: None,
            state,
            key: None,
            scope: Scope::default(),
            unique_key: None,
            unique_scope: Scope::default(),
            queue: None,
            priority: Priority::default(),
            partition_key: None,
            when: When::Now,
            history: None,
            contract: Contracted::Declared,
            policy: None,
        }
    }

    /// `true` if nothing depends on the machine's declaration.
    pub fn is_complete(&self) -> bool {
        self.kind.is_some()
            && self.version.is_some()
            && self.step.is_some()
            && self.queue.is_some()
            && self.history.is_some()
            && self.contract != Contracted::Declared
    }
}

/// The due time of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// At that time, or at once if it has passed.
    At(Timestamp),
    /// This long after the start is committed.
    After(Duration),
}

impl When {
    /// Returns the due time, relative to `now`.
    pub fn due(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(moment) => moment,
            Self::After(delay) => now + delay,
        }
    }
}

/// The complete row that a start becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    /// Its kind: machine or workflow.
    pub kind: Kind,
    /// The machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// The step to begin at.
    pub step: Name,
    /// The state to begin with.
    pub state: Json,
    /// `scheduled` or `runnable`.
    pub status: Status,
    /// The reason why it first runs.
    pub cause: Cause,
    /// The name that the business knows it by.
    pub key: Option<Key>,
    /// The statuses in which it holds the key.
    pub scope: Scope,
    /// A second identity.
    pub unique_key: Option<UniqueKey>,
    /// The statuses in which it holds the unique key.
    pub unique_scope: Scope,
    /// The queue.
    pub queue: Name,
    /// Its priority.
    pub priority: Priority,
    /// When it is due, or became due.
    pub due_at: Timestamp,
    /// Its partition.
    pub partition_key: Option<Key>,
    /// `true` if it is behind another instance of its partition.
    pub behind: bool,
    /// Its parent, if it is a child.
    pub parent: Option<InstanceId>,
    /// The parent's barrier that it belongs to.
    pub parent_barrier: BarrierNumber,
    /// `true` if it keeps a history.
    pub history: bool,
    /// The contract of its signals and updates.
    pub contract: Option<ContractId>,
    /// Its own failure policy, where that differs from what its machine declares.
    pub policy: Option<Policy>,
    /// Its run number and chain.
    pub run: Run,
    /// The counters of the inbox that it begins with.
    pub inbox: Inbox,
    /// When it was created.
    pub created_at: Timestamp,
}

impl From<Instance> for NewRow {
    /// Returns the start that would insert it again, with its current state.
    fn from(one: Instance) -> Self {
        let row = one.row;
        Self {
            kind: row.kind,
            machine: row.machine,
            version: one.version,
            step: row.step,
            state: one.state,
            status: row.status,
            cause: row.cause,
            key: one.key,
            scope: one.scope,
            unique_key: one.unique_key,
            unique_scope: one.unique_scope,
            queue: row.queue,
            priority: row.priority,
            due_at: row.due_at.unwrap_or_default(),
            partition_key: row.partition_key,
            behind: row.behind,
            parent: row.parent,
            parent_barrier: row.parent_barrier,
            history: row.history,
            contract: row.contract,
            policy: one.policy,
            run: row.run,
            inbox: row.inbox,
            created_at: row.created_at,
        }
    }
}

impl NewRow {
    /// Returns the instance that is inserted for it.
    pub fn into_instance(self, id: InstanceId) -> Instance {
        let row = Row {
            kind: self.kind,
            status: self.status,
            scopes: self.scopes(),
            priority: self.priority,
            due_at: Some(self.due_at),
            partition_key: self.partition_key,
            behind: self.behind,
            cause: self.cause,
            inbox: self.inbox,
            contract: self.contract,
            run: self.run,
            parent: self.parent,
            parent_barrier: self.parent_barrier,
            history: self.history,
            // Event 1 is `started`, which the row itself represents.
            history_seq: u32::from(self.history),
            ..Row::new(
                id,
                self.machine,
                self.step.clone(),
                self.queue,
                self.created_at,
            )
        };
        Instance {
            row,
            key: self.key,
            scope: self.scope,
            unique_key: self.unique_key,
            unique_scope: self.unique_scope,
            version: self.version,
            first_step: self.step,
            state: self.state,
            result: None,
            policy: self.policy,
            updated_at: self.created_at,
        }
    }

    /// Returns the statuses in which it will hold its keys.
    pub fn scopes(&self) -> Scopes {
        let of = |has: bool, scope| if has { scope } else { Scope::NEVER };
        Scopes {
            key: of(self.key.is_some(), self.scope),
            unique_key: of(self.unique_key.is_some(), self.unique_scope),
        }
    }
}

/// The answer to a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Started {
    /// A new instance.
    New(InstanceId),
    /// Another instance holds its key or its unique key; nothing was started.
    Duplicate(InstanceId),
}

impl Started {
    /// Returns the instance that now holds the key: the new one or the existing one.
    pub const fn id(self) -> InstanceId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }
}
