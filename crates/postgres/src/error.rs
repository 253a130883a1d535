//! Maps failures of the driver and the server to the kernel's errors.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io::ErrorKind;

use abide_kernel::Error;
use tokio_postgres::Error as DriverError;

/// State of the transaction at the time of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing of it can have been committed.
    Open,
    /// COMMIT, or a statement that commits itself, was sent: if the connection breaks, the outcome is unknown.
    Committing,
}

/// Classifies a failure by what the caller must do.
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
        // A unique violation comes from a guard (of a key or of a partition's front): another transaction was first. A
        // cancelled statement ran or waited too long; that concerns this transaction, not others.
        ("40001" | "40P01" | "55P03" | "57014" | "23505", _) => Error::Conflict(text),
        ("40003", _) => Error::Unknown(text),
        // The server has become a standby, or has no space left.
        ("25006", _) | (_, Some("53")) => Error::Unavailable(text),
        // The server ended a transaction because this process was idle in it: it never received the COMMIT.
        ("25P03", _) => Error::Unavailable(text),
        // The server ends the connection. It may report that at any time, also just after a commit.
        ("25P04", _) | (_, Some("08" | "57")) => lost(fate, text),
        ("3D000", _) => Error::NotSetUp(format!(
            "{text}: create it with `createdb NAME`, or correct the database's name in the URL"
        )),
        ("28P01", _) => Error::NotSetUp(format!("{text}: correct the password in the URL")),
        ("28000", _) => Error::NotSetUp(format!(
            "{text}: create the role with `createuser NAME`, or allow it in pg_hba.conf"
        )),
        ("42501", _) => Error::NotSetUp(format!(
            "{text}: as an owner of the database, run `grant create on database NAME to ROLE` before the first start, or let \
             the role own the schema abide"
        )),
        _ => Error::Broken(text),
    }
}

fn lost(fate: Fate, text: String) -> Error {
    match fate {
        Fate::Open => Error::Unavailable(text),
        Fate::Committing => Error::Unknown(text),
    }
}

/// `true` if the connection is lost; `false` if a message was invalid.
fn is_lost_connection(error: &DriverError) -> bool {
    if error.is_closed() {
        return true;
    }
    let source = error.source();
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    #[cfg(feature = "tls")]
    let io = io.or_else(|| {
        let failed = source?.downcast_ref::<crate::tls::HandshakeFailed>();
        failed.map(|failed| &failed.0)
    });
    // A message that cannot be encoded or decoded has one of these kinds; every other error comes from the network.
    io.is_some_and(|io| !matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData))
}

/// Describes the failure in one line: the driver alone only says "db error".
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
            Error::NotSetUp(_) => "not set up",
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
            for missing in ["3D000", "28P01", "28000", "42501"] {
                assert_eq!(class(missing, fate), "not set up", "{missing}");
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
