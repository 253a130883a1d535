//! Maps SQLite's errors to the classes of [`abide_kernel::Error`], without a driver type in them.

use abide_kernel::Error;
use rusqlite::{ErrorCode, ffi};

/// The class of an error of a statement before the commit; its transaction is rolled back, so nothing was written.
pub(crate) fn classed(error: rusqlite::Error) -> Error {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed,
        ) => Error::Conflict(text),
        Some(
            ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted,
        ) => Error::Unavailable(text),
        // A key was free because its holder's status was outside the holder's scope; it was taken, and now the holder
        // returns into its scope (rule 2.2).
        Some(ErrorCode::ConstraintViolation)
            if text.ends_with("key") && !text.contains("partition_key") =>
        {
            Error::Conflict(format!("a key would be held twice: {text}"))
        }
        _ => Error::Broken(text),
    }
}

/// Result of a failed COMMIT.
pub(crate) struct FailedCommit {
    /// The error for the callers that waited for it.
    pub error: Error,
    /// The reason if nothing may be written through this connection any more.
    pub poison: Option<String>,
}

/// Classifies an error of COMMIT.
///
/// If the database is busy or the disk is full, the last frame of the log, which makes it a commit, is missing, so
/// nothing was written. Any other failure to write or to sync is different. The frame may be in the file, and the next
/// process that opens it may find it and treat it as committed; and an operating system that failed to sync a page may
/// have dropped the need to do so. So it is unknown what was written, and nothing may be written on top of it until the
/// file is opened again.
pub(crate) fn of_commit(error: rusqlite::Error) -> FailedCommit {
    if error.sqlite_error_code() != Some(ErrorCode::SystemIoFailure) {
        return FailedCommit {
            error: classed(error),
            poison: None,
        };
    }
    FailedCommit {
        poison: Some(poisoned(&error)),
        error: Error::Unknown(error.to_string()),
    }
}

/// The reason why nothing may be written any more after a failed checkpoint: the database file could not be synced.
/// Returns `None` for every other failure, which can be retried, because the log still has everything.
pub(crate) fn of_checkpoint(error: &rusqlite::Error) -> Option<String> {
    let code = error
        .sqlite_error()
        .map(|error| error.extended_code)
        .unwrap_or_default();
    matches!(code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC).then(|| poisoned(error))
}

fn poisoned(error: &rusqlite::Error) -> String {
    format!(
        "the disk failed while data was made durable ({error}), so nothing more is written: look after the disk, keep \
         the -wal file with the database, and open the store again"
    )
}

/// The text of an error without the words that name its class, for use in another text.
pub(crate) fn bare(error: Error) -> String {
    match error {
        Error::Conflict(text)
        | Error::Unavailable(text)
        | Error::Unknown(text)
        | Error::Broken(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn a_busy_file_is_a_conflict_and_a_full_disk_passes() {
        assert!(matches!(
            classed(failure(ffi::SQLITE_BUSY_SNAPSHOT)),
            Error::Conflict(_)
        ));
        assert!(matches!(
            classed(failure(ffi::SQLITE_FULL)),
            Error::Unavailable(_)
        ));
        assert!(matches!(
            classed(failure(ffi::SQLITE_CORRUPT)),
            Error::Broken(_)
        ));
        assert!(matches!(
            classed(failure(ffi::SQLITE_CONSTRAINT_UNIQUE)),
            Error::Broken(_)
        ));
    }

    #[test]
    fn after_a_failed_sync_the_outcome_is_unknown_and_nothing_more_is_written() {
        // rule 1.1: acknowledged data survives, so data that may not survive is not acknowledged.
        let failed = of_commit(failure(ffi::SQLITE_IOERR_FSYNC));
        assert!(matches!(failed.error, Error::Unknown(_)) && failed.poison.is_some());
        let failed = of_commit(failure(ffi::SQLITE_FULL));
        assert!(failed.error.is_passing() && failed.poison.is_none());
        assert!(of_checkpoint(&failure(ffi::SQLITE_IOERR_FSYNC)).is_some());
        assert!(of_checkpoint(&failure(ffi::SQLITE_IOERR_WRITE)).is_none());
        assert!(of_checkpoint(&failure(ffi::SQLITE_BUSY)).is_none());
    }
}
