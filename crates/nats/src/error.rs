//! What can go wrong when a source is started, classed by what you must do.

/// What can go wrong when a source is started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be so: something about the source, the stream or the consumer must be changed first.
    #[error("{0}")]
    Refused(String),
    /// The server cannot be reached or did not answer: try again later.
    #[error("{0}; try again when the server is there")]
    Unavailable(String),
}

impl Error {
    pub(crate) fn refused(problem: impl Into<String>) -> Self {
        Self::Refused(problem.into())
    }

    pub(crate) fn unavailable(what: &str, error: &dyn std::error::Error) -> Self {
        let mut problem = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            problem.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Self::Unavailable(problem)
    }
}
