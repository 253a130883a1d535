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
    match error.code() {
        Some(code) => by_code(code.code(), fate, text),
        None if is_lost_connection(error) => lost(fate, text),
        None => Error::Broken(text),
    }
}

/// The class of an SQLSTATE.
fn by_code(code: &str, fate: Fate, text: String) -> Error {
    match (code, code.get(..2)) {
        // A unique violation is a guard, of a key or of a partition's front, that another transaction was faster at. A
        // statement that was cancelled ran for too long, or waited for too long: for this transaction, not for others.
        ("40001" | "40P01" | "55P03" | "57014" | "23505", _) => Error::Conflict(text),
        ("40003", _) => Error::Unknown(text),
        // A server that has become a standby; one that has no room.
        ("25006", _) | (_, Some("53")) => Error::Unavailable(text),
        // The server ended a transaction in the middle of which this process was silent: it never got the COMMIT.
        ("25P03", _) => Error::Unavailable(text),
        // The server ends the connection. It may say so at any moment, also when it has just committed.
        ("25P04", _) | (_, Some("08" | "57")) => lost(fate, text),
        _ => Error::Broken(text),
    }
}

fn lost(fate: Fate, text: String) -> Error {
    match fate {
        Fate::Open => Error::Unavailable(text),
        Fate::Committing => Error::Unknown(text),
    }
}

/// Whether the connection is gone, rather than something said over it wrong.
fn is_lost_connection(error: &DriverError) -> bool {
    if error.is_closed() {
        return true;
    }
    let io = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>());
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

    fn class(code: &str, fate: Fate) -> &'static str {
        match by_code(code, fate, String::new()) {
            Error::Conflict(_) => "conflict",
            Error::Unavailable(_) => "unavailable",
            Error::Unknown(_) => "unknown",
            _ => "broken",
        }
    }

    #[test]
    fn a_code_is_classed_by_what_the_caller_must_do() {
        for fate in [Fate::Open, Fate::Committing] {
            for again in ["40001", "40P01", "55P03", "57014", "23505"] {
                assert_eq!(class(again, fate), "conflict", "{again}");
            }
            for later in ["53300", "53100", "25006", "25P03"] {
                assert_eq!(class(later, fate), "unavailable", "{later}");
            }
            for stop in ["42P01", "XX001", "22021", "25P02", "23502"] {
                assert_eq!(class(stop, fate), "broken", "{stop}");
            }
        }
    }

    #[test]
    fn a_connection_that_ends_during_the_commit_leaves_it_unknown() {
        for ended in ["57P01", "57P02", "57P03", "08006", "25P04"] {
            assert_eq!(class(ended, Fate::Open), "unavailable", "{ended}");
            assert_eq!(class(ended, Fate::Committing), "unknown", "{ended}");
        }
    }
}
