//! Signals, updates and cancellations: the request to deliver one, the answer to its sender, and the stored record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::null_is_a_result;
use super::{
    Arguments, CommandId, InstanceId, Json, Key, Name, Offer, Sequence, Start, Status, Timestamp,
    WaitId,
};

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

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum CommandKind {
    /// A signal: handed to a step that waits for it.
    Signal = 0,
    /// An update: handled and answered.
    Update = 1,
    /// A cancellation: reaches the code of a workflow, which may clean up.
    Cancel = 2,
}

impl CommandKind {
    /// The number that the databases store for it.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Converts the stored number back; an unknown number, written by a newer release, becomes a signal.
    pub const fn from_code(code: i16) -> Self {
        match code {
            1 => Self::Update,
            2 => Self::Cancel,
            _ => Self::Signal,
        }
    }
}

/// The status of a command's record (rules 7.6 and 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = MessageStatus))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum CommandStatus {
    /// A signal that is kept for a key that no instance holds yet.
    Held = 0,
    /// A signal in an inbox.
    Received = 1,
    /// An update that is to be handled.
    Accepted = 2,
    /// A signal that a step has consumed.
    Applied = 3,
    /// A signal that was still pending when its instance ended.
    Discarded = 4,
    /// A signal that was held too long.
    Expired = 5,
    /// An update that was handled.
    Completed = 6,
    /// An update whose handler failed, or that was not answered when its instance ended.
    Failed = 7,
    /// It was refused.
    Rejected = 8,
}

impl CommandStatus {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::Held,
        Self::Received,
        Self::Accepted,
        Self::Applied,
        Self::Discarded,
        Self::Expired,
        Self::Completed,
        Self::Failed,
        Self::Rejected,
    ];

    /// The number that the databases store for it.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Converts the stored number back. Returns `None` if it is unknown.
    pub fn from_code(code: i16) -> Option<Self> {
        usize::try_from(code)
            .ok()
            .and_then(|at| Self::ALL.get(at).copied())
    }

    /// `true` if it is in an inbox and not consumed yet.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Received | Self::Accepted)
    }

    /// Its name, the same in every interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Received => "received",
            Self::Accepted => "accepted",
            Self::Applied => "applied",
            Self::Discarded => "discarded",
            Self::Expired => "expired",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
        }
    }
}

impl std::fmt::Display for CommandStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason why a command was refused although its target exists: the lines of the decision table (rule 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rejection {
    /// Its dedup key was used for something else.
    ConflictingDuplicate = 1,
    /// The instance is reserved and was not started.
    NotStarted = 2,
    /// The run that was addressed is not the newest of its chain.
    NotCurrent = 3,
    /// The instance has ended.
    NotActive = 4,
    /// The machine declares signals, but not this one.
    UnknownSignal = 5,
    /// The machine declares no such update.
    UnknownUpdate = 6,
    /// The arguments of a signal break its contract.
    InvalidSignal = 7,
    /// The arguments of an update break its contract.
    InvalidUpdate = 8,
    /// Too many commands are pending.
    InboxFull = 9,
    /// The arguments are too large.
    PayloadTooLarge = 10,
}

impl Rejection {
    /// All of them, in the order of their codes, which begin at 1.
    pub const ALL: [Self; 10] = [
        Self::ConflictingDuplicate,
        Self::NotStarted,
        Self::NotCurrent,
        Self::NotActive,
        Self::UnknownSignal,
        Self::UnknownUpdate,
        Self::InvalidSignal,
        Self::InvalidUpdate,
        Self::InboxFull,
        Self::PayloadTooLarge,
    ];

    /// The number that the databases store for it.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Converts the stored number back. Returns `None` if it is unknown.
    pub fn from_code(code: i16) -> Option<Self> {
        usize::try_from(code)
            .ok()
            .and_then(|at| Self::ALL.get(at.checked_sub(1)?).copied())
    }

    /// The outcome that the sender gets.
    pub const fn outcome(self) -> &'static str {
        match self {
            Self::ConflictingDuplicate => "rejected_conflicting_duplicate",
            Self::NotStarted => "rejected_not_started",
            Self::NotCurrent => "rejected_not_current",
            Self::NotActive => "rejected_not_active",
            Self::UnknownSignal => "rejected_unknown_signal",
            Self::UnknownUpdate => "rejected_unknown_update",
            Self::InvalidSignal | Self::InvalidUpdate => "rejected_invalid_arguments",
            Self::InboxFull | Self::PayloadTooLarge => "rejected_limit_exceeded",
        }
    }

    /// A stable reason code for programs.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ConflictingDuplicate => "dedup_conflict",
            Self::NotStarted => "instance_not_started",
            Self::NotCurrent => "run_not_current",
            Self::NotActive => "run_not_active",
            Self::UnknownSignal => "unknown_signal",
            Self::UnknownUpdate => "unknown_update",
            Self::InvalidSignal => "invalid_signal_arguments",
            Self::InvalidUpdate => "invalid_update_arguments",
            Self::InboxFull => "inbox_full",
            Self::PayloadTooLarge => "payload_too_large",
        }
    }
}

impl Serialize for Rejection {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.reason())
    }
}

impl<'de> Deserialize<'de> for Rejection {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let reason = std::borrow::Cow::<str>::deserialize(from)?;
        let found = Self::ALL.into_iter().find(|one| one.reason() == reason);
        found.ok_or_else(|| {
            serde::de::Error::custom(format_args!(
                "{reason:?} is not a reason to refuse a command"
            ))
        })
    }
}

impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ConflictingDuplicate => {
                "its dedup key was used for another name or other arguments: give each message its own"
            }
            Self::NotStarted => "the instance is reserved and was not started: start it first",
            Self::NotCurrent => "the run is not the newest of its chain: address that, or the key",
            Self::NotActive => "the instance has ended",
            Self::UnknownSignal => "the machine declares no signal of that name",
            Self::UnknownUpdate => "the machine declares no update of that name",
            Self::InvalidSignal | Self::InvalidUpdate => "the arguments break the contract",
            Self::InboxFull => "too many messages are pending: wait until some are consumed, or raise the limit",
            Self::PayloadTooLarge => "the arguments are too large: make them smaller, or raise `payload_bytes`",
        })
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

/// The answer to a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The decision.
    pub verdict: Verdict,
    /// The record. `None` if there is no target.
    pub record: Option<Command>,
    /// `true` if the same command was accepted before; `record` is then the earlier one.
    pub duplicate: bool,
    /// `true` if an instance was started for it.
    pub started: bool,
    /// The newest run of the chain, if another run was addressed.
    pub current: Option<InstanceId>,
    /// The declared names, if this name is not declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
    /// The limit that it would exceed, if it does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Exceeded>,
    /// The signal that the target waits for, if this one was accepted under a similar name and wakes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similar: Option<Name>,
}

/// A limit, and the value that would exceed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceeded {
    /// The limit's name in the configuration.
    pub limit: std::borrow::Cow<'static, str>,
    /// The largest value that it allows.
    pub most: usize,
    /// The size or number that was found.
    pub met: usize,
}

impl Exceeded {
    pub(crate) fn new(limit: &'static str, most: usize, met: usize) -> Self {
        Self {
            limit: limit.into(),
            most,
            met,
        }
    }
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, most, met } = self;
        write!(f, "{met} is over the limit {limit} of {most}")
    }
}

/// The decision about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No instance has that id or key.
    NoTarget,
    /// It is kept for the next instance that starts with the key.
    Held,
    /// It is in the inbox.
    Received,
    /// The update will be handled, or was already.
    Accepted,
    /// It was refused.
    Rejected(Rejection),
}

impl Verdict {
    /// The outcome that the sender gets.
    pub const fn outcome(self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::Held => "signal_held",
            Self::Received => "signal_received",
            Self::Accepted => "update_accepted",
            Self::Rejected(rejection) => rejection.outcome(),
        }
    }

    /// Returns the reason if it was refused.
    pub const fn rejection(self) -> Option<Rejection> {
        match self {
            Self::Rejected(rejection) => Some(rejection),
            _ => None,
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

/// A request to cancel an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The instance.
    pub target: Target,
    /// The reason.
    pub reason: String,
    /// The effect on its children.
    pub children: Children,
    /// `true` if a workflow is ended at once, without running its code.
    pub force: bool,
    /// The caller, as known to the program or the server that opened the store.
    pub source: Option<String>,
    /// The caller, as the caller of a server claimed it (rule 7.3): at most 255 bytes without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_source: Option<String>,
}

/// The effect of a cancellation on the children of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Children {
    /// They are cancelled too, and so are their children.
    #[default]
    Cascade,
    /// They continue.
    Leave,
}

/// The answer to a request to cancel, restart or repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operated {
    /// No instance has that id or key.
    NoTarget,
    /// It was cancelled, together with this number of its children.
    Cancelled {
        /// The instance.
        id: InstanceId,
        /// Number of children.
        children: usize,
    },
    /// A workflow will be cancelled when its code has cleaned up. This number of its children is cancelled too.
    Cancelling {
        /// The instance.
        id: InstanceId,
        /// Number of children.
        children: usize,
    },
    /// A new run was opened.
    Restarted {
        /// The new run.
        id: InstanceId,
        /// Its number.
        run_number: u32,
    },
    /// Nothing was wrong with it.
    RepairNotNeeded,
    /// A problem was repaired.
    RepairDispatched,
    /// It has ended (rules 11.2 and 11.3).
    NotActive(Status),
    /// It is neither failed nor cancelled.
    NotRestartable(Status),
    /// It is reserved and was not started.
    NotStarted,
    /// The run is not the newest of its chain.
    NotCurrent(InstanceId),
    /// Another instance has taken its key meanwhile.
    KeyTaken(InstanceId),
}

impl Operated {
    /// The outcome that the caller gets.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::Cancelled { .. } => "cancelled",
            Self::Cancelling { .. } => "cancelling",
            Self::Restarted { .. } => "restarted",
            Self::RepairNotNeeded => "repair_not_needed",
            Self::RepairDispatched => "repair_dispatched",
            Self::NotActive(_) => "rejected_not_active",
            Self::NotRestartable(_) => "rejected_not_restartable",
            Self::NotStarted => "rejected_not_started",
            Self::NotCurrent(_) => "rejected_not_current",
            Self::KeyTaken(_) => "duplicate",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_back() {
        for status in CommandStatus::ALL {
            assert_eq!(CommandStatus::from_code(status.code()), Some(status));
        }
        for rejection in Rejection::ALL {
            assert_eq!(Rejection::from_code(rejection.code()), Some(rejection));
        }
        assert!(CommandStatus::from_code(9).is_none() && Rejection::from_code(0).is_none());
    }
}
