//! Signals, updates and cancellations: the request to deliver one, the answer to its sender, and the stored record.

mod delivered;
mod rejection;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::coded::coded;
use super::json::null_is_a_result;
use super::{
    Arguments, CommandId, InstanceId, Json, Key, Name, Sequence, Start, Timestamp, WaitId,
};

pub use delivered::{Delivered, Exceeded, Verdict};
pub use rejection::Rejection;

/// The instance that a request addresses: by id, or by key, which refers to the newest run that has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

coded! {
    /// The kind of a command. An unknown number, written by a newer release, is read as a signal.
    #[derive(Default)]
    pub enum CommandKind {
        /// A signal: handed to a step that waits for it.
        #[default]
        Signal = 0, "signal";
        /// An update: handled and answered.
        Update = 1, "update";
        /// A cancellation: reaches the code of a workflow, which may clean up.
        Cancel = 2, "cancel";
    }
}

coded! {
    /// The status of a command's record (rules 7.6 and 9.2).
    #[cfg_attr(feature = "openapi", schema(as = MessageStatus))]
    pub enum CommandStatus {
        /// A signal that is kept for a key that no instance holds yet.
        Held = 0, "held";
        /// A signal in an inbox.
        Received = 1, "received";
        /// An update that is to be handled.
        Accepted = 2, "accepted";
        /// A signal that a step has consumed.
        Applied = 3, "applied";
        /// A signal that was still pending when its instance ended.
        Discarded = 4, "discarded";
        /// A signal that was held too long.
        Expired = 5, "expired";
        /// An update that was handled.
        Completed = 6, "completed";
        /// An update whose handler failed, or that was not answered when its instance ended.
        Failed = 7, "failed";
        /// It was refused.
        Rejected = 8, "rejected";
    }
}

impl CommandStatus {
    /// `true` if it is in an inbox and not consumed yet.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Received | Self::Accepted)
    }
}

impl std::fmt::Display for CommandStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A request to deliver one signal or update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewCommand {
    /// The instance to deliver it to. With a start, the key of that start.
    pub target: Target,
    /// Its kind.
    pub kind: CommandKind,
    /// Its name.
    pub name: Name,
    /// Its arguments, as the sender gave them.
    pub arguments: Arguments,
    /// Dedup key: a command that is sent again with the same key is the same command (rule 7.3).
    pub dedup_key: Option<Name>,
    /// The sender, as known to the program or the server that opened the store.
    pub source: Option<String>,
    /// The sender, as claimed by the caller of a server (rule 7.3): at most 255 bytes without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_source: Option<String>,
    /// Time to keep it for a key that no instance holds (rule 7.8).
    pub hold_for: Option<Duration>,
    /// The start to make if no live instance holds the key (rule 7.9).
    pub start: Option<Box<Start>>,
}

impl NewCommand {
    /// A signal without arguments.
    pub fn signal(target: impl Into<Target>, name: Name) -> Self {
        Self {
            target: target.into(),
            kind: CommandKind::Signal,
            name,
            arguments: Arguments::default(),
            dedup_key: None,
            source: None,
            claimed_source: None,
            hold_for: None,
            start: None,
        }
    }

    /// An update without arguments.
    pub fn update(target: impl Into<Target>, name: Name) -> Self {
        Self {
            kind: CommandKind::Update,
            ..Self::signal(target, name)
        }
    }
}

/// The record of a command: its position in the inbox, its arguments and its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Command {
    /// Its id.
    pub id: CommandId,
    /// Its kind.
    pub kind: CommandKind,
    /// Its name.
    pub name: Name,
    /// Its status.
    pub status: CommandStatus,
    /// The reason why it was refused.
    #[serde(rename = "reason")]
    pub rejection: Option<Rejection>,
    /// The run that it belongs to.
    pub instance: Option<InstanceId>,
    /// That run's chain.
    pub chain: Option<InstanceId>,
    /// The key that it was sent to, or the key of its instance.
    pub key: Option<Key>,
    /// Its position in the chain. `None` if it was refused.
    #[serde(rename = "message_sequence")]
    pub sequence: Option<Sequence>,
    /// Its position among all commands that were recorded for the run, including refused ones. `None` if it belongs to
    /// no run, and in records of earlier releases.
    #[serde(default)]
    pub command_sequence: Option<Sequence>,
    /// The normalised arguments: an object by parameter if there is a contract, otherwise a list. The arguments of a
    /// refused command are as they were given, and null if they were too large.
    pub arguments: Json,
    /// The problems of the arguments.
    pub validation_errors: Option<Json>,
    /// Its dedup key.
    pub dedup_key: Option<Name>,
    /// The sender: over HTTP, the caller as known to the server; for a matched event, the event's id.
    pub source: Option<String>,
    /// The sender, as the caller of a server claimed it (rule 7.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_source: Option<String>,
    /// The wait that takes or took it; a buffered signal has an id of its own until then.
    pub wait_id: Option<WaitId>,
    /// The step that consumed it.
    pub step_sequence: Option<u32>,
    /// The operation of the workflow's code that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// The graph step that the operation belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_step: Option<Name>,
    /// When it arrived.
    pub received_at: Timestamp,
    /// When it stops being held.
    pub hold_until: Option<Timestamp>,
    /// When it was applied, discarded, answered, or expired.
    pub closed_at: Option<Timestamp>,
    /// The result of an update.
    pub result: Option<Json>,
    /// The error of an update.
    pub error: Option<String>,
}

null_is_a_result!(Command, |one| one.status == CommandStatus::Completed);

impl Command {
    /// Creates the record of a command before anything is decided about it.
    pub fn new(of: &NewCommand, id: CommandId, now: Timestamp) -> Self {
        Self {
            id,
            kind: of.kind,
            name: of.name.clone(),
            status: CommandStatus::Rejected,
            rejection: None,
            instance: None,
            chain: None,
            key: None,
            sequence: None,
            command_sequence: None,
            arguments: Json::null(),
            validation_errors: None,
            dedup_key: of.dedup_key.clone(),
            source: of.source.clone(),
            claimed_source: of.claimed_source.clone(),
            wait_id: None,
            step_sequence: None,
            operation: None,
            graph_step: None,
            received_at: now,
            hold_until: None,
            closed_at: None,
            result: None,
            error: None,
        }
    }

    /// Returns the kind and the name that readers see: a matched event is stored as a signal with a reserved name.
    pub fn kind_and_name(&self) -> (&'static str, Name) {
        match (self.kind, self.name.event_type()) {
            (CommandKind::Signal, Some(event_type)) => ("event", Name::stored(event_type)),
            (CommandKind::Signal, None) => ("signal", self.name.clone()),
            (CommandKind::Update, _) => ("update", self.name.clone()),
            (CommandKind::Cancel, _) => ("cancel", self.name.clone()),
        }
    }

    /// The outcome that its sender got.
    pub fn outcome(&self) -> &'static str {
        match (self.rejection, self.kind, self.status) {
            (Some(rejection), _, _) => rejection.outcome(),
            (None, CommandKind::Update, _) => "update_accepted",
            (None, CommandKind::Cancel, _) => "cancelling",
            (None, CommandKind::Signal, CommandStatus::Held | CommandStatus::Expired) => {
                "signal_held"
            }
            (None, CommandKind::Signal, _) => "signal_received",
        }
    }
}

/// A command that is pending in an inbox, in the form that rules use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its record.
    pub id: CommandId,
    /// Its kind.
    pub kind: CommandKind,
    /// Its name.
    pub name: Name,
    /// Its position.
    pub sequence: Sequence,
    /// Its position among the commands of the run. `None` in records of earlier releases.
    pub command_sequence: Option<Sequence>,
    /// The wait that it was received under.
    pub wait_id: Option<WaitId>,
}

/// The end of a command's life: the changes to write to its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The record.
    pub id: CommandId,
    /// Its new status.
    pub status: CommandStatus,
    /// The wait that took it. If `None`, the record's own wait id stays.
    pub wait_id: Option<WaitId>,
    /// The step that consumed it.
    pub step_sequence: Option<u32>,
    /// The operation of a workflow that took it.
    pub operation: Option<u32>,
    /// The graph step that the operation belongs to.
    pub graph_step: Option<Name>,
    /// The result of an update.
    pub result: Option<Json>,
    /// Its error.
    pub error: Option<String>,
}

/// The answer to one update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// The update.
    pub update_id: CommandId,
    /// Its result; null if omitted.
    #[serde(default)]
    pub result: Json,
    /// Its error; an update that failed changed nothing.
    #[serde(default)]
    pub error: Option<String>,
}
