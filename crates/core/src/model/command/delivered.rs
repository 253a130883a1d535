//! The answer to the sender of a command.

use serde::{Deserialize, Serialize};

use super::{Command, Rejection};
use crate::model::{InstanceId, Name, Offer};

/// The answer to a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The decision.
    pub verdict: Verdict,
    /// The record. `None` if there is no target.
    pub record: Option<Box<Command>>,
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
