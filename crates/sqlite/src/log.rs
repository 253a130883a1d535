//! The write-ahead log, and when it is checkpointed (copied into the database).

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::{Connection, Result};

/// Pages by which the log may grow before it is checkpointed while no request waits.
const LOG_PAGES_IDLE: i32 = 1000;

/// Pages by which it may grow before it is checkpointed although requests wait: as many as one index table of SQLite
/// covers, so that reading stays fast.
const LOG_PAGES_MAX: i32 = 4000;

/// The write-ahead log: its length, and when it is to be checkpointed.
///
/// A checkpoint takes a few milliseconds, in which nothing is written. So it waits for a moment without requests, other
/// than the watch's check for commits of others, which follows soon after each of our commits; unless the log has grown
/// long before such a moment comes.
pub(crate) struct Log {
    /// Its length in pages after the last commit.
    pages: Arc<AtomicI32>,
    /// Its length at the last check.
    last: i32,
    /// Its length at the last checkpoint; 0 if it has restarted since.
    carried: i32,
}

impl Log {
    /// Takes over the checkpoints of a connection. A release of rusqlite without a hook leaves them to SQLite, which
    /// runs them within a commit, every thousand pages.
    pub fn of(conn: &mut Connection) -> Result<Self> {
        let pages = Arc::new(AtomicI32::new(0));
        hook(conn, &pages)?;
        let (last, carried) = (0, 0);
        Ok(Self {
            pages,
            last,
            carried,
        })
    }

    /// `true` if it has grown enough to be checkpointed now. A reader of old data keeps the log from restarting; then
    /// it is checkpointed as often as otherwise, and not after every commit.
    pub fn is_long(&mut self, idle: bool) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.last {
            self.carried = 0;
        }
        self.last = pages;
        let most = if idle { LOG_PAGES_IDLE } else { LOG_PAGES_MAX };
        let long = pages - self.carried >= most;
        if long {
            self.carried = pages;
        }
        long
    }
}

/// Records the length of the log after each commit.
#[cfg(wal_hook)]
fn hook(conn: &mut Connection, pages: &Arc<AtomicI32>) -> Result<()> {
    let recorded = Arc::clone(pages);
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, length| {
        recorded.store(length, Ordering::Relaxed);
        Ok(())
    }))
}

#[cfg(not(wal_hook))]
fn hook(_: &mut Connection, _: &Arc<AtomicI32>) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_carried_over_when_no_request_waits_or_it_is_very_long() {
        let pages = Arc::new(AtomicI32::new(0));
        let mut log = Log {
            pages: Arc::clone(&pages),
            last: 0,
            carried: 0,
        };
        let mut is_long = |length, idle| {
            pages.store(length, Ordering::Relaxed);
            log.is_long(idle)
        };
        assert!(!is_long(1500, false) && is_long(1500, true));
        // A reader keeps the log from restarting: checkpoint again after the same growth.
        assert!(!is_long(1600, true) && !is_long(2400, true) && is_long(2500, true));
        assert!(!is_long(6400, false) && is_long(6500, false));
        // The log has restarted.
        assert!(!is_long(10, true) && is_long(1000, true));
    }
}
