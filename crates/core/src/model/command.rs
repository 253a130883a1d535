//! Signals and updates: what is sent, what the sender is told, and the record that remains of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::null_is_a_result;
use super::{
    Arguments, CommandId, InstanceId, Json, Key, Name, Offer, Sequence, Start, Status, Timestamp,
    WaitId,
};

/// Which instance is meant: by its id, or by its key, which stands for the newest run that has it.
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

/// What kind of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum CommandKind {
    /// A signal: it is handed to a step that waits for it.
    Signal = 0,
    /// An update: it is handled, and answered.
    Update = 1,
    /// A cancellation: it reaches the code of a workflow, which may clean up.
    Cancel = 2,
}

impl CommandKind {
    /// The number that stands for it in the databases.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Reads the number back; what a newer release wrote reads as a signal.
    pub const fn from_code(code: i16) -> Self {
        match code {
            1 => Self::Update,
            2 => Self::Cancel,
            _ => Self::Signal,
        }
    }
}

/// The life of a record (rules 7.6 and 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum CommandStatus {
    /// A signal that is kept for a key which nobody holds yet.
    Held = 0,
    /// A signal in an inbox.
    Received = 1,
    /// An update that is to be handled.
    Accepted = 2,
    /// A signal that a step has consumed.
    Applied = 3,
    /// A signal whose instance ended first.
    Discarded = 4,
    /// A signal that was held too long.
    Expired = 5,
    /// An update that was handled.
    Completed = 6,
    /// An update whose handler failed, or whose instance ended first.
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

    /// The number that stands for it in the databases.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Reads the number back.
    pub fn from_code(code: i16) -> Option<Self> {
        usize::try_from(code)
            .ok()
            .and_then(|at| Self::ALL.get(at).copied())
    }

    /// Whether it is in an inbox and waits to be taken.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Received | Self::Accepted)
    }

    /// Its name, as everybody writes it.
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

/// Why a command was refused, though its target is there: the lines of the decision table (rule 7.3).
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
    /// The machine declares signals, and this is none of them.
    UnknownSignal = 5,
    /// The machine declares no such update.
    UnknownUpdate = 6,
    /// The arguments of a signal break its contract.
    InvalidSignal = 7,
    /// The arguments of an update do.
    InvalidUpdate = 8,
    /// Too many messages are pending.
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

    /// The number that stands for it in the databases.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Reads the number back.
    pub fn from_code(code: i16) -> Option<Self> {
        usize::try_from(code)
            .ok()
            .and_then(|at| Self::ALL.get(at.checked_sub(1)?).copied())
    }

    /// What the sender is told.
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

    /// A stable word for programs.
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
            serde::de::Error::custom(format_args!("{reason:?} is no reason to refuse a command"))
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
pub struct Delivery {
    /// Whom it is for. With a start, its key.
    pub target: Target,
    /// What it is.
    pub kind: CommandKind,
    /// Its name.
    pub name: Name,
    /// Its arguments, as the sender gives them.
    pub arguments: Arguments,
    /// Sent again with the same, it is the same message (rule 7.3).
    pub dedup_key: Option<Name>,
    /// Who sends it, as the program or the server that opened the store knows.
    pub source: Option<String>,
    /// Who sends it, as the caller of a server says (rule 7.3): at most 255 bytes without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_source: Option<String>,
    /// How long to keep it for a key that nobody holds (rule 7.8).
    pub hold_for: Option<Duration>,
    /// Start this when nobody is live under its key (rule 7.9).
    pub start: Option<Box<Start>>,
}

impl Delivery {
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

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The decision.
    pub verdict: Verdict,
    /// The record; there is none when there is no target.
    pub record: Option<Command>,
    /// Whether this very message had been accepted before, and the record is of then.
    pub duplicate: bool,
    /// Whether an instance was started for it.
    pub started: bool,
    /// The newest run of the chain, when another was addressed.
    pub current: Option<InstanceId>,
    /// The names that are declared, when this is none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
    /// The limit that it would have exceeded, when there is no room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Exceeded>,
}

/// A limit, and what would have exceeded it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceeded {
    /// The limit's name in the configuration.
    pub limit: std::borrow::Cow<'static, str>,
    /// What it allows.
    pub most: usize,
    /// What was met.
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

/// The decision over a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There is nothing at that id or key.
    NoTarget,
    /// It is kept for whoever starts under the key.
    Held,
    /// It is in the inbox.
    Received,
    /// The update will be handled, or was.
    Accepted,
    /// It was refused.
    Rejected(Rejection),
}

impl Verdict {
    /// What the sender is told.
    pub const fn outcome(self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::Held => "signal_held",
            Self::Received => "signal_received",
            Self::Accepted => "update_accepted",
            Self::Rejected(rejection) => rejection.outcome(),
        }
    }

    /// Why it was refused, if it was.
    pub const fn rejection(self) -> Option<Rejection> {
        match self {
            Self::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }
}

/// The record of a signal or an update: inbox, command and life in one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Command {
    /// Its id.
    pub id: CommandId,
    /// What it is.
    pub kind: CommandKind,
    /// Its name.
    pub name: Name,
    /// Where it stands.
    pub status: CommandStatus,
    /// Why it was refused.
    #[serde(rename = "reason")]
    pub rejection: Option<Rejection>,
    /// The run that has it.
    pub instance: Option<InstanceId>,
    /// That run's chain.
    pub chain: Option<InstanceId>,
    /// The key that it was sent to, or that its instance has.
    pub key: Option<Key>,
    /// Its place in the chain; a refused one has none.
    #[serde(rename = "message_sequence")]
    pub sequence: Option<Sequence>,
    /// The arguments, normalised: an object by parameter under a contract, else a list. Null when they were too large.
    pub arguments: Json,
    /// What was wrong with them.
    pub validation_errors: Option<Json>,
    /// What it was deduplicated by.
    pub dedup_key: Option<Name>,
    /// Who sent it: over HTTP what the server knows of the caller; of a matched event the event's id.
    pub source: Option<String>,
    /// Who sent it, as the caller of a server said (rule 7.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_source: Option<String>,
    /// The wait that takes or took it; a buffered one has its own until then.
    pub wait_id: Option<WaitId>,
    /// The step that consumed it.
    pub step_sequence: Option<u32>,
    /// When it came.
    pub received_at: Timestamp,
    /// How long it is held.
    pub hold_until: Option<Timestamp>,
    /// When it was applied, discarded, answered, or expired.
    pub closed_at: Option<Timestamp>,
    /// What an update was answered with.
    pub result: Option<Json>,
    /// What an update failed of.
    pub error: Option<String>,
}

null_is_a_result!(Command, |one| one.status == CommandStatus::Completed);

impl Command {
    /// What it is to those outside, and under which name: a matched event is a signal of a reserved name.
    pub fn kind_and_name(&self) -> (&'static str, Name) {
        match (self.kind, self.name.event_type()) {
            (CommandKind::Signal, Some(event_type)) => ("event", Name::stored(event_type)),
            (CommandKind::Signal, None) => ("signal", self.name.clone()),
            (CommandKind::Update, _) => ("update", self.name.clone()),
            (CommandKind::Cancel, _) => ("cancel", self.name.clone()),
        }
    }

    /// What its sender was told.
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

/// A message that waits in an inbox, as rules look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its record.
    pub id: CommandId,
    /// What it is.
    pub kind: CommandKind,
    /// Its name.
    pub name: Name,
    /// Its place.
    pub sequence: Sequence,
}

/// The end of a message's life: what is written to its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The record.
    pub id: CommandId,
    /// Where it stands now.
    pub status: CommandStatus,
    /// The wait that took it; the record's own stays when there is none.
    pub wait_id: Option<WaitId>,
    /// The step that consumed it.
    pub step_sequence: Option<u32>,
    /// What an update was answered with.
    pub result: Option<Json>,
    /// What it failed of.
    pub error: Option<String>,
}

/// The answer to one update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// The update.
    pub update_id: CommandId,
    /// What it came to; null when left out.
    #[serde(default)]
    pub result: Json,
    /// What it failed of; then nothing was changed.
    #[serde(default)]
    pub error: Option<String>,
}

/// A request to cancel an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Which.
    pub target: Target,
    /// Why.
    pub reason: String,
    /// Whether its children are cancelled too.
    pub children: Children,
    /// Whether a workflow is ended at once, without asking its code.
    pub force: bool,
    /// Who cancels it, as the program or the server that opened the store knows.
    pub source: Option<String>,
    /// Who cancels it, as the caller of a server says (rule 7.3): at most 255 bytes without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_source: Option<String>,
}

/// What becomes of the children of an instance that is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Children {
    /// They are cancelled too, and theirs.
    #[default]
    Cascade,
    /// They go on.
    Leave,
}

/// What became of a request to cancel, restart or repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operated {
    /// There is nothing at that id or key.
    NoTarget,
    /// It was cancelled, and so many of its children with it.
    Cancelled {
        /// The instance.
        id: InstanceId,
        /// How many children.
        children: usize,
    },
    /// A workflow will be cancelled when its code has cleaned up, and so many of its children with it.
    Cancelling {
        /// The instance.
        id: InstanceId,
        /// How many children.
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
    /// Something was put right.
    RepairDispatched,
    /// It has ended (rules 11.2 and 11.3).
    NotActive(Status),
    /// It is neither failed nor cancelled.
    NotRestartable(Status),
    /// It is reserved and was not started.
    NotStarted,
    /// The run is not the newest of its chain.
    NotCurrent(InstanceId),
    /// Its key was taken by that one meanwhile.
    KeyTaken(InstanceId),
}

impl Operated {
    /// What the caller is told.
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
