//! The reasons why a command is refused.

use serde::{Deserialize, Serialize};

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
