//! Why an operation did not come to what it was to come to.

use abide_core::model::{InstanceId, Status};

/// Why an operation of a workflow did not come to what it was to come to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// A step failed, as often as it was tried.
    #[error("step {step:?} failed: {error}")]
    Step {
        /// The step.
        step: String,
        /// What it failed of, the last time.
        error: String,
    },
    /// A child did not end well.
    #[error("child {id} ({machine}) is {status}{}", .error.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    Child {
        /// The child.
        id: InstanceId,
        /// Its machine.
        machine: String,
        /// How it ended.
        status: Status,
        /// What it failed of.
        error: Option<String>,
    },
    /// A child was not started.
    #[error("a child was not started: {problem}")]
    NotStarted {
        /// Why.
        problem: String,
    },
    /// The wait for an event was refused: there are too many waits for its type.
    #[error("the wait was refused: {problem}")]
    Wait {
        /// Why.
        problem: String,
    },
    /// The workflow is cancelled: clean up, and return. Operations that are begun from now on run as always.
    #[error("the workflow is cancelled: {reason}")]
    Cancelled {
        /// Why.
        reason: String,
    },
}

impl OperationError {
    /// Whether the workflow is cancelled.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled { .. })
    }
}
