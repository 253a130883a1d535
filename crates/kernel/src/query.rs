//! The language of reads.

use abide_core::model::{
    CommandId, CommandKind, CommandStatus, InstanceId, Json, Key, Name, Status, Timestamp, WaitKind,
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
    /// Those that wait for that kind of thing.
    pub wait_kind: Option<WaitKind>,
    /// Those that wait for the signal of that name, for an event of that type, or for the condition of that key.
    pub waiting_for: Option<Name>,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T, C = InstanceId> {
    /// What is on this page.
    pub items: Vec<T>,
    /// Where the next page begins; `None` when there is nothing more.
    pub next: Option<C>,
}

/// Something that is listed, and how much of a page it takes.
pub trait Listed {
    /// Its size in bytes, as far as it varies.
    fn bytes(&self) -> usize;
}

impl Listed for abide_core::model::Instance {
    fn bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, Json::size);
        self.state.size() + result + self.last_error.as_ref().map_or(0, String::len)
    }
}

impl Listed for abide_core::model::Command {
    fn bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, Json::size);
        let errors = self.validation_errors.as_ref().map_or(0, Json::size);
        self.arguments.size() + result + errors + self.error.as_ref().map_or(0, String::len)
    }
}

impl Listed for abide_core::model::Child {
    fn bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, Json::size);
        self.state.size() + result + self.last_error.as_ref().map_or(0, String::len)
    }
}

impl Listed for Ending {
    fn bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, Json::size);
        result + self.last_error.as_ref().map_or(0, String::len)
    }
}

impl Listed for abide_core::model::Event {
    fn bytes(&self) -> usize {
        self.payload.size()
    }
}

impl Listed for abide_core::model::Waiter {
    fn bytes(&self) -> usize {
        self.conditions.iter().map(|one| one.right.size()).sum()
    }
}

impl Listed for abide_core::model::HistoryRow {
    fn bytes(&self) -> usize {
        self.events.len()
    }
}

/// The most bytes that one read of a history brings, but for its last rows.
pub const HISTORY_BYTES: usize = 4 << 20;

/// Whether a read of a history brought as much as it may: then there may be more.
pub fn is_full(rows: &[abide_core::model::HistoryRow], limit: usize) -> bool {
    let bytes: usize = rows.iter().map(Listed::bytes).sum();
    rows.len() >= limit || bytes > HISTORY_BYTES
}

/// Takes what is listed until it is more than a page has room for, and reads no further (rule 16.4).
pub fn gather<T: Listed, E>(
    found: impl Iterator<Item = std::result::Result<T, E>>,
    most: usize,
) -> std::result::Result<Vec<T>, E> {
    let mut items = Vec::new();
    let mut bytes = 0;
    for item in found {
        let item = item?;
        bytes += item.bytes();
        items.push(item);
        // The first is on the page however large it is, and the second tells that there is more.
        if bytes > most && items.len() > 1 {
            break;
        }
    }
    Ok(items)
}

impl<T: Listed, C> Page<T, C> {
    /// The page, of no more bytes than that, but of one entry at least; the rest is on the next one (rule 16.4).
    #[must_use]
    pub fn within(mut self, most: usize, place: impl Fn(&T) -> C) -> Self {
        let mut bytes = 0;
        let fits = self.items.iter().take_while(|item| {
            bytes += item.bytes();
            bytes <= most
        });
        let fitting = fits.count().max(1);
        if fitting < self.items.len() {
            self.items.truncate(fitting);
            self.next = self.items.last().map(place);
        }
        self
    }
}

/// A page of records.
pub type CommandPage = Page<abide_core::model::Command, CommandId>;

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
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

impl Serialize for Ending {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for Ending {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut ending = Self::deserialize(from)?;
        // What is done has come to something, and that may be `null`.
        if ending.status == Status::Done && ending.result.is_none() {
            ending.result = Some(Json::null());
        }
        Ok(ending)
    }
}

/// How some of the instances that were asked for ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endings {
    /// Those that have.
    pub ended: Vec<Ending>,
    /// Those that are not there.
    pub missing: Vec<InstanceId>,
    /// Those that nothing is said of: the page was full before (rule 16.4).
    pub rest: Vec<InstanceId>,
}

/// Some of the records that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Those that are there.
    pub found: Vec<abide_core::model::Command>,
    /// Those that nothing is said of: the page was full before (rule 16.4).
    pub rest: Vec<CommandId>,
}

/// Looks ids up in order as long as what is found fits on a page; the ids that are left (rule 16.4). The first that is found
/// fits however large it is.
pub fn look_up<I: Copy, T: Listed, E>(
    ids: &[I],
    most: usize,
    mut look: impl FnMut(I) -> std::result::Result<Option<T>, E>,
    mut found: impl FnMut(T),
) -> std::result::Result<Vec<I>, E> {
    let (mut bytes, mut is_first) = (0_usize, true);
    for (at, id) in ids.iter().enumerate() {
        let Some(one) = look(*id)? else {
            continue;
        };
        bytes = bytes.saturating_add(one.bytes());
        if bytes > most && !is_first {
            return Ok(ids.get(at..).unwrap_or_default().to_vec());
        }
        is_first = false;
        found(one);
    }
    Ok(Vec::new())
}

/// How many instances of a queue stand where, and wait for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDepth {
    /// The queue.
    pub queue: Name,
    /// Where they stand; none of them terminal.
    pub status: Status,
    /// What kind of thing they wait for, when they wait.
    pub wait_kind: Option<WaitKind>,
    /// How many.
    pub count: u64,
    /// Since when the oldest of those is ready that a worker could have; of no others.
    pub oldest: Option<Timestamp>,
}
