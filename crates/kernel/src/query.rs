//! The language of reads.

use abide_core::model::{
    CommandId, CommandKind, CommandStatus, InstanceId, Json, Key, Name, Status,
};
use serde::{Deserialize, Serialize};

/// Which instances to list: all that meet every condition given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Those with that status.
    pub status: Option<Status>,
    /// Those of that machine.
    pub machine: Option<Name>,
    /// Those in that queue.
    pub queue: Option<Name>,
    /// Those whose key begins so.
    pub key_prefix: Option<String>,
    /// The children of that one.
    pub parent: Option<InstanceId>,
    /// The runs of that chain, which is named by its first run.
    pub chain: Option<InstanceId>,
}

/// Which records of signals and updates to list: all that meet every condition given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandFilter {
    /// Those of that chain, which is named by its first run.
    pub chain: Option<InstanceId>,
    /// Those that this run has.
    pub instance: Option<InstanceId>,
    /// Those that were sent to that key.
    pub key: Option<Key>,
    /// Signals, or updates.
    pub kind: Option<CommandKind>,
    /// Those of that name.
    pub name: Option<Name>,
    /// Those with that status.
    pub status: Option<CommandStatus>,
}

/// Which events to list: all that meet every condition given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventFilter {
    /// Those of that type.
    pub event_type: Option<Name>,
}

/// Which waits for events to list: all that meet every condition given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WaiterFilter {
    /// Those for events of that type.
    pub event_type: Option<Name>,
    /// Those of that instance.
    pub instance: Option<InstanceId>,
}

/// A page of events, newest first.
pub type EventPage = Page<abide_core::model::Event, abide_core::model::EventSequence>;

/// A page of waits for events, by instance and place.
pub type WaiterPage = Page<abide_core::model::Waiter, (InstanceId, u32)>;

/// One page of a list, newest first, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page<T, C = InstanceId> {
    /// What is on this page.
    pub items: Vec<T>,
    /// Where the next page begins; `None` when there is nothing more.
    pub next: Option<C>,
}

/// A page of records.
pub type CommandPage = Page<abide_core::model::Command, CommandId>;

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ending {
    /// The instance.
    pub id: InstanceId,
    /// How it ended.
    pub status: Status,
    /// What it came to.
    pub result: Option<Json>,
    /// What it failed of.
    pub last_error: Option<String>,
}

/// How many instances of a queue stand where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueDepth {
    /// The queue.
    pub queue: Name,
    /// Where they stand; none of them terminal.
    pub status: Status,
    /// How many.
    pub count: u64,
}
