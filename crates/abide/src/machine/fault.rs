//! Why a step failed.

use std::any::Any;
use std::fmt;

use crate::BoxError;

/// Why a step failed, as its error handler sees it.
#[derive(Debug)]
pub struct Fault {
    kind: FaultKind,
    message: String,
    source: Option<BoxError>,
}

/// In which way a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// It returned an error.
    Error,
    /// It panicked.
    Panic,
    /// It ran longer than its time limit.
    TimeLimit,
    /// Its outcome cannot be stored: too large, not serialisable, or contradicting itself.
    Outcome,
    /// What is stored cannot be read by this code: an unknown step, or a state of another shape.
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

    /// An error and its causes, in words.
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

    /// In which way.
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
