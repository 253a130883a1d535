//! Opens connections to a file, with clear errors if that fails.

use std::path::Path;
use std::time::{Duration, Instant};

use abide_kernel::{Backoff, Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{bare, classed};
use crate::options::Options;
use crate::schema;

/// Number of prepared statements that a connection keeps: more than there are, so that none is prepared twice.
const STATEMENTS: usize = 160;

/// Bytes of the log file that are kept on disk between checkpoints.
const LOG_BYTES_KEPT: i64 = 64 << 20;

/// The longest wait that SQLite supports: it counts milliseconds in 31 bits.
const PATIENCE_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// Opens the writing connection: creates the file, turns on its write-ahead log, and migrates its tables. If the
/// options do not allow that, it only checks the tables, before it opens anything for writing.
pub(crate) fn writer(path: &Path, options: &Options) -> Result<Connection> {
    refuse_what_cannot_be(path)?;
    if options.migrate {
        create_private(path);
    } else {
        let checked = reader(path, options)
            .and_then(|conn| schema::check(&conn).map_err(|error| about(path, error)));
        checked?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = || -> Result<Connection> {
        let mut conn = Connection::open_with_flags(path, flags).map_err(classed)?;
        prepare(&conn, options).map_err(classed)?;
        turn_on_log(&conn, options.busy_timeout)?;
        conn.pragma_update(None, "synchronous", options.synchronous.pragma())
            .map_err(classed)?;
        conn.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)
            .map_err(classed)?;
        schema::migrate(&mut conn)?;
        Ok(conn)
    };
    opened().map_err(|error| about(path, error))
}

/// Creates the file with access only for its owner, whatever the umask; SQLite gives its log and its shared memory the
/// same mode. An existing file is left unchanged. Errors are ignored here, because SQLite reports them better.
fn create_private(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        let mut create = std::fs::OpenOptions::new();
        let created = create.write(true).create_new(true).mode(0o600).open(path);
        if let Ok(file) = created {
            let _ = file.set_permissions(std::fs::Permissions::from_mode(0o600));
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// Opens a reading connection. The writer's must be open.
pub(crate) fn reader(path: &Path, options: &Options) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = || -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags(path, flags)?;
        prepare(&conn, options)?;
        Ok(conn)
    };
    opened().map_err(|error| about(path, classed(error)))
}

/// Opens another writing connection. The writer's must be open, and does the checkpoints: SQLite does not report those
/// that fail within a commit.
pub(crate) fn another(path: &Path, options: &Options) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = || -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags(path, flags)?;
        prepare(&conn, options)?;
        conn.pragma_update(None, "synchronous", options.synchronous.pragma())?;
        conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
        Ok(conn)
    };
    opened().map_err(|error| about(path, classed(error)))
}

fn prepare(conn: &Connection, options: &Options) -> rusqlite::Result<()> {
    conn.busy_timeout(options.busy_timeout.min(PATIENCE_MAX))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // A plan depends on the text of a statement alone: SQLite does not prepare it again when parameters change.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "temp_store", "memory")
}

/// Turns on the write-ahead log; the setting is stored in the file. While another process does the same, SQLite reports
/// busy without waiting, so this function waits.
fn turn_on_log(conn: &Connection, patience: Duration) -> Result<()> {
    let (begun, mut backoff) = (Instant::now(), Backoff::away());
    loop {
        let mode = conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0));
        let mode: Result<String> = mode.map_err(classed);
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                return Err(Error::Unavailable(format!(
                    "it cannot have a write-ahead log (its journal stays {mode}): is it on a file system without \
                     shared memory, such as a network drive?"
                )));
            }
            Err(Error::Conflict(_)) if begun.elapsed() < patience => {
                std::thread::sleep(backoff.failed().unwrap_or_default());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Refuses a path for which SQLite would only say that it cannot open it.
fn refuse_what_cannot_be(path: &Path) -> Result<()> {
    let problem = match path.parent() {
        _ if path.is_dir() => "it is a directory: name a file in it".to_owned(),
        Some(parent) if !parent.is_dir() => {
            format!(
                "there is no directory {}: create it first",
                parent.display()
            )
        }
        _ => return Ok(()),
    };
    Err(about(path, Error::Unavailable(problem)))
}

/// Adds the file name to an error, and what to do if SQLite's own text does not say.
fn about(path: &Path, error: Error) -> Error {
    let path = path.display();
    match error {
        Error::Unavailable(text) if text.starts_with("unable to open database file") => {
            Error::Unavailable(format!(
                "cannot open {path}: {text}; are it and its directory there and writable?"
            ))
        }
        Error::Unavailable(text) => Error::Unavailable(format!("cannot open {path}: {text}")),
        Error::Conflict(text) => Error::Conflict(format!("cannot open {path} now: {text}")),
        Error::NotSetUp(text) => Error::NotSetUp(format!("cannot use {path}: {text}")),
        Error::Broken(text) if text.starts_with("file is not a database") => Error::Broken(
            format!("{path} is not an SQLite database: name another file, or move this one away"),
        ),
        other => Error::Broken(format!("cannot use {path}: {}", bare(other))),
    }
}
