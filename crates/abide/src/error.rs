//! What can go wrong for an application, classed by what it must do.

use abide_core::model::Refusal;
use abide_kernel as kernel;

/// Any error that a step may return with `?`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What can go wrong for an application, classed by what it must do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A mistake in the request; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database cannot be reached, or would not take the transaction. Nothing was written; try again later.
    #[error("{0}; nothing was written, so try again")]
    Unavailable(String),
    /// The connection broke during the commit: it may have been written or not. A start with a key is safe to repeat.
    #[error("{0}; look whether it was, or repeat it if it has a key")]
    Unknown(String),
    /// The database is not what it should be.
    #[error("{0}")]
    Broken(String),
    /// What is stored is not of the type asked for, or a value cannot be written as JSON.
    #[error("{what} does not fit its type: {problem}")]
    Mismatch {
        /// What was read or written.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The `Abide` was closed.
    #[error("abide was closed: open it again")]
    Closed,
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
