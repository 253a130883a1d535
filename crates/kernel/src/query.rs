//! Filters, pages and other types of the read side of a store.

use abide_core::model::{
    CommandId, CommandKind, CommandStatus, ContractId, Inbox, Instance, InstanceId, Json, Key,
    Lane, Name, Status, Timestamp, WaitKind,
};
use abide_core::rules::liveness::{Around, Siblings, UnmatchedEvent};
use serde::{Deserialize, Serialize};

/// Selects instances to list: those that meet all given conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Only instances with this status.
    pub status: Option<Status>,
    /// Only instances of this machine.
    pub machine: Option<Name>,
    /// Only instances in this queue.
    pub queue: Option<Name>,
    /// Only instances whose key begins with this text.
    pub key_prefix: Option<String>,
    /// Only the children of this instance.
    pub parent: Option<InstanceId>,
    /// Only the runs of this chain, which is named by its first run.
    pub chain: Option<InstanceId>,
    /// Only instances with this kind of wait.
    pub wait_kind: Option<WaitKind>,
    /// Only instances that wait for the signal of this name, for an event of this type, or for the condition of this
    /// key.
    pub waiting_for: Option<Name>,
}

/// Selects records of signals and updates to list: those that meet all given conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandFilter {
    /// Only records of this chain, which is named by its first run.
    pub chain: Option<InstanceId>,
    /// Only records that belong to this run.
    pub instance: Option<InstanceId>,
    /// Only records that were sent to this key.
    pub key: Option<Key>,
    /// Only signals, or only updates.
    pub kind: Option<CommandKind>,
    /// Only records with this name.
    pub name: Option<Name>,
    /// Only records with this status.
    pub status: Option<CommandStatus>,
}

/// Selects events to list: those that meet all given conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventFilter {
    /// Only events of this type.
    pub event_type: Option<Name>,
}

/// Selects waits for events to list: those that meet all given conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WaiterFilter {
    /// Only waits for events of this type.
    pub event_type: Option<Name>,
    /// Only waits of this instance.
    pub instance: Option<InstanceId>,
}

/// A page of events, newest first.
pub type EventPage = Page<abide_core::model::Event, abide_core::model::EventSequence>;

/// A page of waits for events, by instance and position.
pub type WaiterPage = Page<abide_core::model::Waiter, (InstanceId, u32)>;

/// A page of declarations, by machine and version.
pub type MachinePage = Page<abide_core::model::Declared, Lane>;

/// A page of documents of one kind, by name.
pub type DocumentPage = Page<abide_core::model::Document, Name>;

/// One page of a list, newest first, and the position where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T, C = InstanceId> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The position where the next page begins; `None` if there are no more items.
    pub next: Option<C>,
}

/// An item of a list, with the size that it takes on a page.
pub trait Listed {
    /// Returns its size in bytes: the parts whose size varies.
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

impl Listed for abide_core::model::Declared {
    fn bytes(&self) -> usize {
        let names = [&self.machine, &self.first_step, &self.queue];
        names.into_iter().map(|name| name.as_str().len()).sum()
    }
}

impl Listed for abide_core::model::Document {
    fn bytes(&self) -> usize {
        self.body.size()
    }
}

impl Listed for abide_core::model::HistoryRow {
    fn bytes(&self) -> usize {
        self.events.len()
    }
}

/// The maximum number of bytes that one read of a history returns, not counting its last rows.
pub const HISTORY_BYTES: usize = 4 << 20;

/// `true` if a read of a history reached its limit. Then there may be more rows.
pub fn is_full(rows: &[abide_core::model::HistoryRow], limit: usize) -> bool {
    let bytes: usize = rows.iter().map(Listed::bytes).sum();
    rows.len() >= limit || bytes > HISTORY_BYTES
}

/// Collects items until they exceed the size of a page, and reads no further (rule 16.4).
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
        // The first item is on the page whatever its size; the second shows that there is more.
        if bytes > most && items.len() > 1 {
            break;
        }
    }
    Ok(items)
}

impl<T: Listed, C> Page<T, C> {
    /// Makes a page of at most `limit` items and `most` bytes. The items are one more than the limit if another page
    /// follows.
    pub fn of(mut items: Vec<T>, limit: usize, most: usize, position: impl Fn(&T) -> C) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().map(&position).filter(|_| more);
        Self { items, next }.within(most, position)
    }

    /// Truncates the page to at most `most` bytes, but at least one item. The rest goes on the next page (rule 16.4).
    #[must_use]
    pub fn within(mut self, most: usize, position: impl Fn(&T) -> C) -> Self {
        let mut bytes = 0;
        let fits = self.items.iter().take_while(|item| {
            bytes += item.bytes();
            bytes <= most
        });
        let fitting = fits.count().max(1);
        if fitting < self.items.len() {
            self.items.truncate(fitting);
            self.next = self.items.last().map(position);
        }
        self
    }
}

/// A page of records.
pub type CommandPage = Page<abide_core::model::Command, CommandId>;

/// The end of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Ending {
    /// The instance.
    pub id: InstanceId,
    /// The status in which it ended.
    pub status: Status,
    /// Its result.
    pub result: Option<Json>,
    /// The error with which it failed.
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
        // A `done` instance always has a result, which may be `null`.
        if ending.status == Status::Done && ending.result.is_none() {
            ending.result = Some(Json::null());
        }
        Ok(ending)
    }
}

/// The endings of some of the requested instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endings {
    /// The instances that have ended.
    pub ended: Vec<Ending>,
    /// The instances that do not exist.
    pub missing: Vec<InstanceId>,
    /// The instances that were not read, because the page was full (rule 16.4).
    pub rest: Vec<InstanceId>,
}

/// Some of the requested records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The records that exist.
    pub found: Vec<abide_core::model::Command>,
    /// The records that were not read, because the page was full (rule 16.4).
    pub rest: Vec<CommandId>,
}

/// Some of the requested contracts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contracts {
    /// The contracts that exist.
    pub found: Vec<(ContractId, Json)>,
    /// The contracts that were not read, because the page was full (rule 16.4).
    pub rest: Vec<ContractId>,
}

impl Listed for (ContractId, Json) {
    fn bytes(&self) -> usize {
        self.1.size()
    }
}

/// The surroundings of an instance, with the state of its own row at the same moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The instance.
    pub id: InstanceId,
    /// The state of its row.
    pub stamp: Stamp,
    /// Its surroundings.
    pub around: Around,
}

/// Parses groups of equal children, as the databases count them: a JSON list of lists of status, 1 if they have a due
/// time or else 0, queue, machine and version of those that are runnable, and their number. The error says what cannot
/// be parsed.
pub fn read_siblings(text: &str) -> Result<Vec<Siblings>, String> {
    type Counted = (i16, u8, Option<Name>, Option<Name>, Option<u32>, u32);
    let counted: Vec<Counted> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let read = |(status, is_due, queue, machine, version, count): Counted| {
        let lane = machine
            .zip(version)
            .map(|(machine, version)| Lane { machine, version });
        Ok(Siblings {
            status: Status::from_code(status).ok_or_else(|| format!("{status} is not a status"))?,
            is_due: is_due != 0,
            runs_on: queue.zip(lane),
            count,
        })
    };
    counted.into_iter().map(read).collect()
}

/// Parses the names of pending signals as the databases collect them: a list of name and id.
pub fn read_pending_names(text: &str) -> Result<Vec<(Name, CommandId)>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Parses an event that did not match as the databases collect it: its sequence, type and id.
pub fn read_unmatched(text: &str) -> Result<UnmatchedEvent, String> {
    let (sequence, event_type, event_id) =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(UnmatchedEvent {
        sequence,
        event_type,
        event_id,
    })
}

/// The state of an instance's row, as far as it matters for its surroundings. If two stamps are equal, nothing was
/// written to the row in between that would change the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Its status.
    pub status: Status,
    /// The number of its step.
    pub step_seq: u32,
    /// The number of earlier attempts of that step.
    pub attempt: u32,
    /// The counters of its inbox.
    pub inbox: Inbox,
    /// The number of its children that must still end.
    pub children_needed: u32,
    /// When it was last written.
    pub updated_at: Timestamp,
}

impl From<&Instance> for Stamp {
    fn from(instance: &Instance) -> Self {
        Self {
            status: instance.status,
            step_seq: instance.step_seq,
            attempt: instance.attempt,
            inbox: instance.inbox,
            children_needed: instance.family.needed,
            updated_at: instance.updated_at,
        }
    }
}

/// Looks up ids in order until the results no longer fit on a page, and returns the ids that are left (rule 16.4). The
/// first result fits whatever its size.
pub fn look_up<I: Copy, T: Listed, E>(
    ids: &[I],
    most: usize,
    mut find: impl FnMut(I) -> std::result::Result<Option<T>, E>,
    mut found: impl FnMut(T),
) -> std::result::Result<Vec<I>, E> {
    let (mut bytes, mut is_first) = (0_usize, true);
    for (at, id) in ids.iter().enumerate() {
        let Some(one) = find(*id)? else {
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

/// The number of instances of a queue with one status and one kind of wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDepth {
    /// The queue.
    pub queue: Name,
    /// Their status; never a terminal one.
    pub status: Status,
    /// Their kind of wait, if they wait.
    pub wait_kind: Option<WaitKind>,
    /// The number of instances.
    pub count: u64,
    /// The number of them that are blocked: scheduled without a due time (rule 12.4).
    #[serde(default)]
    pub blocked: u64,
    /// When the oldest of those that a worker can claim became ready; `None` for other statuses.
    pub oldest: Option<Timestamp>,
}
