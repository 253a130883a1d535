//! What SQLite's errors ask of the caller: the classes of [`abide_kernel::Error`], without a driver type in them.

use abide_kernel::Error;
use rusqlite::{ErrorCode, ffi};

/// The class of an error that a statement met before the commit; its transaction is rolled back, so nothing was
/// written.
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
        // A key that was free, because its holder's scope left out the status it had, is taken now that the holder comes
        // back into its scope (rule 2.2).
        Some(ErrorCode::ConstraintViolation)
            if text.ends_with("key") && !text.contains("partition_key") =>
        {
            Error::Conflict(format!("a key would be held twice: {text}"))
        }
        _ => Error::Broken(text),
    }
}

/// What a failed COMMIT has left.
pub(crate) struct FailedCommit {
    /// What to tell those who were waiting for it.
    pub error: Error,
    /// Why nothing may be written through this connection any more, if so.
    pub poison: Option<String>,
}

/// The class of an error that COMMIT met.
///
/// A busy or a full disk: the last frame of the log, which makes it a commit, is not there, so nothing was written. Any
/// other failure to write or to sync is another matter. The frame may be in the file, and whoever opens it next may
/// find it and take it for good; and an operating system that could not sync a page may have forgotten that it has
/// to. So it is unknown what was written, and nothing may be built upon it until the file is opened anew.
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

/// Why nothing may be written any more after a checkpoint that failed, if so: when the database file could not be
/// synced. Whatever else keeps a checkpoint from its end can be tried again, since the log still has it all.
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

/// The text of an error without the words that name its class, to be set into another text.
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
    fn after_a_failed_sync_nobody_knows_and_nothing_more_is_written() {
        // rule 1.1: what is acknowledged survives; so what may not survive is not acknowledged.
        let failed = of_commit(failure(ffi::SQLITE_IOERR_FSYNC));
        assert!(matches!(failed.error, Error::Unknown(_)) && failed.poison.is_some());
        let failed = of_commit(failure(ffi::SQLITE_FULL));
        assert!(failed.error.is_passing() && failed.poison.is_none());
        assert!(of_checkpoint(&failure(ffi::SQLITE_IOERR_FSYNC)).is_some());
        assert!(of_checkpoint(&failure(ffi::SQLITE_IOERR_WRITE)).is_none());
        assert!(of_checkpoint(&failure(ffi::SQLITE_BUSY)).is_none());
    }
}
