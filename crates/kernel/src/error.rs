//! The errors of the kernel, classed by what the caller must do.

use abide_core::model::Refusal;

use crate::judge::Unjudged;

/// A result of the kernel or of a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the kernel or of a store, classed by what the caller must do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's mistake; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database is available, but did not accept the transaction: a deadlock, a lock or a statement that took too
    /// long, a busy file. Nothing was written. The transaction itself may be the cause, so retry it alone, a few times,
    /// with back-off.
    #[error("the database could not take the transaction this time: {0}")]
    Conflict(String),
    /// The database cannot be reached. Nothing was written; try again later.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// The answer to a commit was lost: it may have been written or not. A claim's epoch or a key tells which.
    #[error(
        "the connection broke while the transaction was being committed, so it is unknown whether it was: {0}"
    )]
    Unknown(String),
    /// The database refuses abide because of its setup: a database, a role or a permission is missing. Nothing was
    /// written; the text says what to do.
    #[error("{0}")]
    NotSetUp(String),
    /// The database is in a state that it must never be in. Stop, and keep the evidence.
    #[error("the store is broken: {0}")]
    Broken(String),
    /// A held signal takes longer to validate than a transaction may wait for (rule 8.5). Nothing was written. The
    /// store validates the signal outside the transaction and tries again.
    #[error("validation of held signals took too long, and was not finished; try again")]
    Unjudged(Unjudged),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

abide_core::debug_is_display!(Error);

impl Error {
    /// Returns the error for an answer of another kind than the operation or the query has.
    #[must_use]
    pub fn unexpected_answer() -> Self {
        Self::Broken(
            "the store sent an unexpected answer; if it is a server, run the same release on both sides".into(),
        )
    }

    /// Returns a copy of the error, for another caller that waits for the same transaction.
    #[must_use]
    pub fn again(&self) -> Self {
        match self {
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
            Self::Conflict(text) => Self::Conflict(text.clone()),
            Self::Unavailable(text) => Self::Unavailable(text.clone()),
            Self::Unknown(text) => Self::Unknown(text.clone()),
            Self::NotSetUp(text) => Self::NotSetUp(text.clone()),
            Self::Broken(text) => Self::Broken(text.clone()),
            Self::Unjudged(cases) => Self::Unjudged(cases.clone()),
            Self::Closed => Self::Closed,
        }
    }

    /// Returns the error for an attempt that follows one whose outcome is unknown. This attempt wrote nothing, but the
    /// earlier one may have.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Conflict(text) | Self::Unavailable(text) => Self::Unknown(text),
            other => other,
        }
    }

    /// `true` if nothing was written and the same request may succeed later.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Unavailable(_))
    }
}
