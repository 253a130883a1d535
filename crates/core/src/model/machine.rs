//! What is known of a machine to those who have no code for it.

use serde::{Deserialize, Serialize};

use super::{ContractId, Name, RetrySpec};

/// Which of the fronts runs an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Kind {
    /// Steps that answer with an outcome.
    #[default]
    Machine = 0,
    /// Straight-line code, replayed from its history.
    Workflow = 1,
}

impl Kind {
    /// The number that stands for it in the databases.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Reads the number back; what a newer release wrote reads as a machine.
    pub const fn from_code(code: i16) -> Self {
        match code {
            1 => Self::Workflow,
            _ => Self::Machine,
        }
    }
}

/// A machine as its workers declare it: what a start by its name alone needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Which front runs it.
    #[serde(default)]
    pub kind: Kind,
    /// Its name.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// The step an instance begins at.
    pub first_step: Name,
    /// The queue an instance waits in unless the start says otherwise.
    pub queue: Name,
    /// Whether its instances keep a history.
    pub history: bool,
    /// What signals and updates it takes; any signal, and no update, when there is none.
    #[serde(default)]
    pub contract: Option<ContractId>,
    /// When a step that failed runs again; never when there is none.
    #[serde(default)]
    pub retry: Option<RetrySpec>,
    /// How long a step may take that runs under a lease of its own.
    #[serde(default)]
    pub step_timeout_ms: Option<u64>,
}

impl Declared {
    /// What is declared of how its steps fail; `None` when nothing is.
    pub fn policy(&self) -> Option<Policy> {
        let policy = Policy {
            retry: self.retry.clone(),
            step_timeout_ms: self.step_timeout_ms,
        };
        (policy != Policy::default()).then_some(policy)
    }

    /// The same, with that policy.
    #[must_use]
    pub fn with_policy(self, policy: Option<Policy>) -> Self {
        let Policy {
            retry,
            step_timeout_ms,
        } = policy.unwrap_or_default();
        Self {
            retry,
            step_timeout_ms,
            ..self
        }
    }
}

/// What a machine has declared of how its steps fail.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// When a step that failed runs again; never when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// How long a step may take that runs under a lease of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_timeout_ms: Option<u64>,
}
