//! The errors of calls, classed by what the caller must do.

use abide_core::model::Refusal;
use abide_kernel as kernel;

/// Any error that a step may return with `?`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a call, classed by what the caller must do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A mistake in the request; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database cannot be reached, or did not accept the transaction. Nothing was written; try again later.
    #[error("{0}; nothing was written, so try again")]
    Unavailable(String),
    /// The connection broke during the commit, so the outcome is unknown: it may or may not have been written. A start
    /// with a key is safe to repeat.
    #[error("{0}; check whether it was, or retry it if it has a key")]
    Unknown(String),
    /// The database, or an answer from it, is not as it should be.
    #[error("{0}")]
    Broken(String),
    /// A stored value does not have the requested type, or a value cannot be written as JSON.
    #[error("{what} does not match its type: {problem}")]
    Mismatch {
        /// The value that was read or written.
        what: &'static str,
        /// The problem with it.
        problem: String,
    },
    /// This code cannot read a value that a step was handed. A step that returns this error blocks its instance until a
    /// build that can read the value is deployed (rule 12.4).
    #[error("{what} does not match its type: {problem}")]
    Unreadable {
        /// The value that was read.
        what: &'static str,
        /// The problem with it.
        problem: String,
    },
    /// The `Abide` was closed.
    #[error("abide was closed: open it again")]
    Closed,
}

abide_core::debug_is_display!(
    Error,
    crate::client::NotDone,
    crate::store::OpenError,
    crate::client::OperateError,
    crate::workflow::OperationError,
    crate::client::QueryError,
    crate::client::SendError,
    crate::client::StartError,
    crate::client::UpdateError,
);

impl Error {
    /// Returns the error for an answer of another kind than the operation has.
    pub(crate) fn unexpected_answer() -> Self {
        kernel::Error::unexpected_answer().into()
    }
}

impl From<kernel::Error> for Error {
    fn from(error: kernel::Error) -> Self {
        match error {
            kernel::Error::Refused(refusal) => Self::Refused(refusal),
            kernel::Error::Unknown(_) => Self::Unknown(error.to_string()),
            kernel::Error::Closed => Self::Closed,
            error if error.is_passing() => Self::Unavailable(error.to_string()),
            error => Self::Broken(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as Trait;

    use abide_core::model::{Json, Name, NotJson, Status};
    use abide_kernel as kernel;

    use super::*;
    use crate::Graph;
    use crate::client::{NotDone, OperateError, SendError, StartError};
    use crate::graph::BadGraph;
    use crate::workflow::OperationError;

    #[test]
    fn a_main_that_returns_an_error_prints_its_text() {
        let refusal = || Name::new("").unwrap_err();
        let bad_graph: BadGraph = Graph::builder("").build().unwrap_err();
        let not_json: NotJson = Json::parse("{".to_owned()).unwrap_err();
        let cancelled = OperationError::Cancelled {
            reason: "no".to_owned(),
        };
        let errors: Vec<Box<dyn Trait>> = vec![
            refusal().into(),
            bad_graph.into(),
            not_json.into(),
            cancelled.into(),
            "sleeping".parse::<Status>().unwrap_err().into(),
            kernel::Error::Broken("rusty".to_owned()).into(),
            Error::Closed.into(),
            NotDone::Error(Error::from(refusal())).into(),
            OperateError::Error(Error::from(refusal())).into(),
            SendError::Error(Error::from(refusal())).into(),
            StartError::Error(Error::from(refusal())).into(),
        ];
        for error in errors {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }
}
