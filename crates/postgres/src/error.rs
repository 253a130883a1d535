//! Which of the kernel's errors a failure of the driver or the server is.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io::ErrorKind;

use abide_kernel::Error;
use tokio_postgres::Error as DriverError;

/// What is known of the transaction in which a failure was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing of it can have been committed.
    Open,
    /// COMMIT, or a statement that commits itself, is on its way: if the connection breaks, nobody knows.
    Committing,
}

/// Classes a failure by what the caller must do about it.
pub(crate) fn classify(error: &DriverError, fate: Fate) -> Error {
    let text = describe(error);
    if let Some(code) = error.code() {
        return by_code(code.code(), text);
    }
    match (is_lost_connection(error), fate) {
        (true, Fate::Committing) => Error::Unknown(text),
        (true, Fate::Open) => Error::Unavailable(text),
        (false, _) => Error::Broken(text),
    }
}

/// The class of an SQLSTATE. When the server itself ends a connection (class 57), the transaction was rolled back: it
/// says so before it looks at a COMMIT.
fn by_code(code: &str, text: String) -> Error {
    match code {
        // A unique violation is a guard, of a key or of a partition's front, that another transaction was faster at.
        "40001" | "40P01" | "55P03" | "23505" => Error::Conflict(text),
        "40003" => Error::Unknown(text),
        // Read-only: the server has become a standby, and another one takes over.
        "25006" | "57014" => Error::Unavailable(text),
        _ => match code.get(..2) {
            // The connection; the server's resources; the operator; a connection ended for idling.
            Some("08" | "53" | "57") => Error::Unavailable(text),
            _ if code == "25P03" => Error::Unavailable(text),
            _ => Error::Broken(text),
        },
    }
}

/// Whether the connection is gone, rather than something said over it wrong.
fn is_lost_connection(error: &DriverError) -> bool {
    if error.is_closed() {
        return true;
    }
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    // What cannot be written or read as a message is said to be invalid; all else is the network's doing.
    io.is_some_and(|io| !matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData))
}

/// Says what happened in one line: the driver alone says no more than "db error".
pub(crate) fn describe(error: &DriverError) -> String {
    if let Some(server) = error.as_db_error() {
        let mut text = format!("{} (SQLSTATE {})", server.message(), server.code().code());
        for more in [server.detail(), server.hint()].into_iter().flatten() {
            let _ = write!(text, "; {more}");
        }
        return text;
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(code: &str) -> &'static str {
        match by_code(code, String::new()) {
            Error::Conflict(_) => "conflict",
            Error::Unavailable(_) => "unavailable",
            Error::Unknown(_) => "unknown",
            _ => "broken",
        }
    }

    #[test]
    fn a_code_is_classed_by_what_the_caller_must_do() {
        for again in ["40001", "40P01", "55P03", "23505"] {
            assert_eq!(class(again), "conflict", "{again}");
        }
        for later in ["57P01", "57P02", "57P03", "08006", "53300", "25006", "25P03", "57014"] {
            assert_eq!(class(later), "unavailable", "{later}");
        }
        assert_eq!(class("40003"), "unknown");
        for stop in ["42P01", "XX001", "22021", "25P02", "23502"] {
            assert_eq!(class(stop), "broken", "{stop}");
        }
    }
}
