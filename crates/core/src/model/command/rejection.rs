//! The reasons why a command is refused.

use crate::model::coded::coded;

coded! {
    /// The reason why a command was refused although its target exists: the lines of the decision table (rule 7.3).
    pub enum Rejection {
        /// Its dedup key was used for something else.
        ConflictingDuplicate = 1, "dedup_conflict";
        /// The instance is reserved and was not started.
        NotStarted = 2, "instance_not_started";
        /// The run that was addressed is not the newest of its chain.
        NotCurrent = 3, "run_not_current";
        /// The instance has ended.
        NotActive = 4, "run_not_active";
        /// The machine declares signals, but not this one.
        UnknownSignal = 5, "unknown_signal";
        /// The machine declares no such update.
        UnknownUpdate = 6, "unknown_update";
        /// The arguments of a signal break its contract.
        InvalidSignal = 7, "invalid_signal_arguments";
        /// The arguments of an update break its contract.
        InvalidUpdate = 8, "invalid_update_arguments";
        /// Too many commands are pending.
        InboxFull = 9, "inbox_full";
        /// The arguments are too large.
        PayloadTooLarge = 10, "payload_too_large";
    }
}

impl Rejection {
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

    /// A stable reason code for programs: its name.
    pub const fn reason(self) -> &'static str {
        self.name()
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
