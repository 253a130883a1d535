//! The write-ahead log, and when it is carried over into the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::hooks::Wal;
use rusqlite::{Connection, Result};

/// By how many pages the log may grow before it is carried over into the database while nobody waits.
const LOG_PAGES_IDLE: i32 = 1000;

/// By how many it may grow before it is carried over though somebody waits: as many as SQLite finds its way in by one
/// table, so that reading stays as fast.
const LOG_PAGES_MAX: i32 = 4000;

/// The write-ahead log: how long it is, and when it is to be carried over.
///
/// Carrying it over takes a few milliseconds, in which nothing is written. So it is left for a moment in which nobody
/// asks for anything but to look for others' commits, which the watch does soon after each of ours; unless the log has
/// grown long before such a moment comes.
pub(crate) struct Log {
    /// Its length in pages as of the last commit.
    pages: Arc<AtomicI32>,
    /// Its length when it was last asked about.
    last: i32,
    /// Its length when it was last carried over; 0 when it has begun anew since.
    carried: i32,
}

impl Log {
    /// The log of a connection, which from now on leaves the carrying over to us.
    pub fn of(conn: &mut Connection) -> Result<Self> {
        let pages = Arc::new(AtomicI32::new(0));
        let told = Arc::clone(&pages);
        conn.wal_hook(Some(move |_: &mut Wal, length| {
            told.store(length, Ordering::Relaxed);
            Ok(())
        }))?;
        let (last, carried) = (0, 0);
        Ok(Self {
            pages,
            last,
            carried,
        })
    }

    /// Whether it has grown enough to be carried over now. A reader of old data keeps it from beginning anew; then it is
    /// carried over as often, and not after every commit.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_carried_over_when_nobody_waits_or_it_is_very_long() {
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
        // A reader holds on to it: again when it has grown as much again.
        assert!(!is_long(1600, true) && !is_long(2400, true) && is_long(2500, true));
        assert!(!is_long(6400, false) && is_long(6500, false));
        // It has begun anew.
        assert!(!is_long(10, true) && is_long(1000, true));
    }
}
