//! What can go wrong, classed by what the caller must do about it.

use abide_core::model::Refusal;

use crate::judge::Unjudged;

/// A result of the kernel or of a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, classed by what the caller must do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's mistake; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database would not take the transaction now, though it is there: a deadlock, a lock or a statement that took
    /// too long, a busy file. Nothing was written; it may be the transaction's own fault, so try it again alone, a few
    /// times, with back-off.
    #[error("the database could not take the transaction this time: {0}")]
    Conflict(String),
    /// The database cannot be reached. Nothing was written; try again later.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// The answer to a commit got lost: it may have been written or not. A claim's epoch or a key settles which.
    #[error(
        "the connection broke while the transaction was being committed, so it is unknown whether it was: {0}"
    )]
    Unknown(String),
    /// The database is not what it should be. Stop, and keep the evidence.
    #[error("the store is broken: {0}")]
    Broken(String),
    /// A held signal takes longer to validate than a transaction may wait for (rule 8.5). Nothing was written; the store
    /// validates it outside and tries again.
    #[error("validation of held signals took too long, and was not finished; try again")]
    Unjudged(Unjudged),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

impl Error {
    /// The same error once more, for another who waits for the same transaction.
    #[must_use]
    pub fn again(&self) -> Self {
        match self {
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
            Self::Conflict(text) => Self::Conflict(text.clone()),
            Self::Unavailable(text) => Self::Unavailable(text.clone()),
            Self::Unknown(text) => Self::Unknown(text.clone()),
            Self::Broken(text) => Self::Broken(text.clone()),
            Self::Unjudged(cases) => Self::Unjudged(cases.clone()),
            Self::Closed => Self::Closed,
        }
    }

    /// The error of an attempt that follows one whose outcome is unknown: that nothing was written this time does not say that
    /// nothing was written.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Conflict(text) | Self::Unavailable(text) => Self::Unknown(text),
            other => other,
        }
    }

    /// Whether nothing was written and the same request may succeed later.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Unavailable(_))
    }
}
