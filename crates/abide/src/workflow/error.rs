//! The error of a workflow's operation.

use abide_core::model::{InstanceId, Status};

/// The error of a workflow's operation.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// A step failed in all its attempts.
    #[error("step {step:?} failed: {error}")]
    Step {
        /// The name of the step.
        step: String,
        /// The error of the last attempt.
        error: String,
    },
    /// A child ended without success.
    #[error("child {id} ({machine}) is {status}{}", .error.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    Child {
        /// The id of the child.
        id: InstanceId,
        /// Its machine.
        machine: String,
        /// Its final status.
        status: Status,
        /// Its error.
        error: Option<String>,
    },
    /// A child was not started.
    #[error("a child was not started: {problem}")]
    NotStarted {
        /// The reason.
        problem: String,
    },
    /// The wait for an event was refused, because there are too many waits for its type.
    #[error("the wait was refused: {problem}")]
    Wait {
        /// The reason.
        problem: String,
    },
    /// The workflow is cancelled: clean up, and return. Operations that begin from now on run as usual.
    #[error("the workflow is cancelled: {reason}")]
    Cancelled {
        /// The reason.
        reason: String,
    },
}

impl OperationError {
    /// `true` if the workflow is cancelled.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled { .. })
    }
}
