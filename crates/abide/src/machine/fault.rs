//! The reason why a step failed.

use std::any::Any;
use std::fmt;

use crate::BoxError;

/// The reason why a step failed, as passed to its error handler.
#[derive(Debug)]
pub struct Fault {
    kind: FaultKind,
    message: String,
    source: Option<BoxError>,
}

/// The kind of failure of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The step returned an error.
    Error,
    /// The step panicked.
    Panic,
    /// The step ran longer than its time limit.
    TimeLimit,
    /// The outcome cannot be stored: it is too large, cannot be serialised, or contradicts itself.
    Outcome,
    /// This code cannot read what is stored: the step is unknown, or the state has another shape. The error handler is
    /// not called: the instance is blocked until a build that can read it is deployed.
    Unreadable,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn error(source: BoxError) -> Self {
        Self {
            kind: FaultKind::Error,
            message: Self::text(&source),
            source: Some(source),
        }
    }

    /// Formats an error and its causes.
    pub(crate) fn text(error: &BoxError) -> String {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        message
    }

    pub(crate) fn panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::new(
            FaultKind::Panic,
            format!(
                "panicked: {}",
                text.unwrap_or("with something that is not a text")
            ),
        )
    }

    /// `true` if this code cannot read what is stored, so that another build must run the step (rule 12.4). A step may
    /// have returned that as the cause of an error of its own.
    pub(crate) fn is_unreadable(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = match &self.source {
            Some(source) => Some(&**source),
            None => None,
        };
        while let Some(error) = cause {
            if let Some(crate::Error::Unreadable { .. }) = error.downcast_ref() {
                return true;
            }
            cause = error.source();
        }
        self.kind == FaultKind::Unreadable
    }

    /// The kind of failure.
    pub const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The error that the step returned, if it is of that type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.source.as_deref()?.downcast_ref()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
