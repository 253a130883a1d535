//! The errors of a store in the form in which they are sent, each in its class.

use abide_core::model::Refusal;
use serde::{Deserialize, Serialize};

use crate::Error;

/// An error of a store in the form in which it is sent. The caller on the other side must do the same as for the
/// original.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// See [`Error::Refused`].
    Refused(Refusal),
    /// See [`Error::Conflict`].
    Conflict(String),
    /// See [`Error::Unavailable`].
    Unavailable(String),
    /// See [`Error::Unknown`].
    Unknown(String),
    /// See [`Error::NotSetUp`].
    NotSetUp(String),
    /// See [`Error::Broken`].
    Broken(String),
    /// See [`Error::Closed`].
    Closed,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => Self::Refused(refusal),
            Error::Conflict(why) => Self::Conflict(why),
            Error::Unavailable(why) => Self::Unavailable(why),
            Error::Unknown(why) => Self::Unknown(why),
            Error::NotSetUp(why) => Self::NotSetUp(why),
            Error::Broken(why) => Self::Broken(why),
            Error::Unjudged(_) => Self::Conflict(error.to_string()),
            Error::Closed => Self::Closed,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) => Self::Refused(refusal),
            Failure::Conflict(why) => Self::Conflict(why),
            Failure::Unavailable(why) => Self::Unavailable(why),
            Failure::Unknown(why) => Self::Unknown(why),
            Failure::NotSetUp(why) => Self::NotSetUp(why),
            Failure::Broken(why) => Self::Broken(why),
            // The client's own store is open. The server is shutting down, and nothing was written.
            Failure::Closed => Self::Unavailable("the server is shutting down".into()),
        }
    }
}

/// A text that is not a valid request.
#[derive(thiserror::Error)]
#[error(
    "not a request of this release: {0}; a request is a JSON object like {{\"get\":{{\"key\":\"order:42\"}}}}"
)]
pub struct Malformed(pub(super) serde_json::Error);

abide_core::debug_is_display!(Malformed);
