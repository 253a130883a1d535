//! The end of all writing after a commit that failed to reach the disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_kernel::{Error, Result};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::error::of_commit;

/// The reason if nothing may be written to the file any more, shared by all connections of a store that write: that of
/// its thread, and those of steps with transactions of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Poison(Arc<Mutex<Option<String>>>);

impl Poison {
    /// Commits the open transaction of a connection.
    ///
    /// If it failed to reach the disk, nothing is committed after it: the others wait for the result of this commit
    /// before they commit themselves, although they may begin as soon as SQLite has released the file.
    ///
    /// Errors: those of the commit; [`Broken`](Error::Broken) if nothing may be written any more. The transaction is
    /// then still to be rolled back, unless SQLite has ended it already.
    pub fn commit(&self, conn: &Connection) -> Result<()> {
        let mut why = self.why();
        refuse(why.as_ref())?;
        let committed = conn
            .prepare_cached("commit")
            .and_then(|mut commit| commit.execute([]));
        committed.map(drop).map_err(|error| {
            let failed = of_commit(error);
            if let Some(text) = failed.poison {
                stop(&mut why, text);
                keep_log(conn);
            }
            failed.error
        })
    }

    /// Returns the error for a caller if nothing may be written any more.
    pub fn check(&self) -> Result<()> {
        refuse(self.why().as_ref())
    }

    /// Stops all writing.
    pub fn set(&self, text: String) {
        stop(&mut self.why(), text);
    }

    fn why(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the log when a connection closes: it is the evidence.
pub(crate) fn keep_log(conn: &Connection) {
    let kept = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    if let Err(error) = kept {
        tracing::warn!(%error, "the log may be carried over when the store closes");
    }
}

fn stop(why: &mut Option<String>, text: String) {
    tracing::error!("{text}");
    why.get_or_insert(text);
}

fn refuse(why: Option<&String>) -> Result<()> {
    match why {
        None => Ok(()),
        Some(text) => Err(Error::Broken(text.clone())),
    }
}
