//! A request to start an instance, and the row that comes of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    BarrierNumber, Cause, Contract, ContractId, Inbox, InstanceId, Json, Key, Kind, Name, Priority,
    Run, Scope, Scopes, Status, Timestamp, UniqueKey,
};

/// A request to start one instance. What is left out takes the machine's declared value, else a plain default.
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
    /// Which front runs it; as the machine declares when left out, else a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Its version; the newest known when left out, else 1.
    #[serde(default)]
    pub version: Option<u32>,
    /// The step to begin at; the machine's first when left out, else `start`.
    #[serde(default)]
    pub step: Option<Name>,
    /// The state to begin with.
    #[serde(default)]
    pub state: Json,
    /// The business identity.
    #[serde(default)]
    pub key: Option<Key>,
    /// In which statuses the key is taken.
    #[serde(default)]
    pub scope: Scope,
    /// A second identity that addresses nothing.
    #[serde(default)]
    pub unique_key: Option<UniqueKey>,
    /// In which statuses that one is taken.
    #[serde(default)]
    pub unique_scope: Scope,
    /// The queue; the machine's when left out, else `default`.
    #[serde(default)]
    pub queue: Option<Name>,
    /// How urgent; lower goes first.
    #[serde(default)]
    pub priority: Priority,
    /// At most one instance of each partition executes at a time.
    #[serde(default)]
    pub partition_key: Option<Key>,
    /// When it is due.
    #[serde(default)]
    pub when: When,
    /// Whether it keeps a history; as the machine declares when left out, else yes.
    #[serde(default)]
    pub history: Option<bool>,
    /// What its signals and updates must look like.
    #[serde(default, skip_serializing_if = "Contracted::is_declared")]
    pub contract: Contracted,
}

/// Which contract a start is under.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contracted {
    /// The one that the machine declares.
    #[default]
    Declared,
    /// None: any signal is taken, and no update.
    Free,
    /// That one, which is stored already.
    Of(ContractId),
    /// That one, which is stored with the start.
    Given(Box<Contract>),
}

impl Contracted {
    const fn is_declared(&self) -> bool {
        matches!(self, Self::Declared)
    }
}

impl Start {
    /// A start of that machine with that state and all else left out.
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
        }
    }

    /// Whether nothing is left to the machine's declaration.
    pub fn is_complete(&self) -> bool {
        self.kind.is_some()
            && self.version.is_some()
            && self.step.is_some()
            && self.queue.is_some()
            && self.history.is_some()
            && self.contract != Contracted::Declared
    }
}

/// When an instance is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// At that moment, or at once when it has passed.
    At(Timestamp),
    /// That long after the start is committed.
    After(Duration),
}

impl When {
    /// The moment that is meant, seen from `now`.
    pub fn due(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(moment) => moment,
            Self::After(delay) => now + delay,
        }
    }
}

/// The row that a start becomes: nothing left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    /// Which front runs it.
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
    /// Why it runs when it first does.
    pub cause: Cause,
    /// The business identity.
    pub key: Option<Key>,
    /// In which statuses the key is taken.
    pub scope: Scope,
    /// A second identity.
    pub unique_key: Option<UniqueKey>,
    /// In which statuses that one is taken.
    pub unique_scope: Scope,
    /// The queue.
    pub queue: Name,
    /// How urgent.
    pub priority: Priority,
    /// When it is due, or became so.
    pub due_at: Timestamp,
    /// Its partition.
    pub partition_key: Option<Key>,
    /// Whether it stands behind another of its partition.
    pub behind: bool,
    /// Whose child it is.
    pub parent: Option<InstanceId>,
    /// Of which of the parent's barriers.
    pub parent_barrier: BarrierNumber,
    /// Whether it keeps a history.
    pub history: bool,
    /// What its signals and updates must look like.
    pub contract: Option<ContractId>,
    /// Which run of its chain it is.
    pub run: Run,
    /// The messages it begins with.
    pub inbox: Inbox,
    /// When it was made.
    pub created_at: Timestamp,
}

impl NewRow {
    /// In which statuses it will hold its keys.
    pub fn scopes(&self) -> Scopes {
        let of = |has: bool, scope| if has { scope } else { Scope::NEVER };
        Scopes {
            key: of(self.key.is_some(), self.scope),
            unique_key: of(self.unique_key.is_some(), self.unique_scope),
        }
    }
}

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Started {
    /// A new instance.
    New(InstanceId),
    /// Its key, or its unique key, is taken by that one; nothing was started.
    Duplicate(InstanceId),
}

impl Started {
    /// The instance that now holds the key: the new one or the one that was there.
    pub const fn id(self) -> InstanceId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }
}
