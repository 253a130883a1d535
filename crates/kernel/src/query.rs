//! The language of reads.

use abide_core::model::{InstanceId, Json, Key, Name, Status};
use serde::{Deserialize, Serialize};

/// Which instance is meant: by its id, or by its key, which stands for the newest that has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// By id.
    Id(InstanceId),
    /// By key.
    Key(Key),
}

impl From<InstanceId> for Target {
    fn from(id: InstanceId) -> Self {
        Self::Id(id)
    }
}

impl From<Key> for Target {
    fn from(key: Key) -> Self {
        Self::Key(key)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Key(key) => write!(f, "{key}"),
        }
    }
}

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
}

/// One page of a list, newest first, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page<T> {
    /// What is on this page.
    pub items: Vec<T>,
    /// Where the next page begins; `None` when there is nothing more.
    pub next: Option<InstanceId>,
}

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
