//! Detects that two processes run workers on one file, and makes their clocks agree.
//!
//! That is safe, but slower than expected: their writers wait for each other, and each learns of the other's commits by
//! checking the log. It is nearly always a mistake, so the second process logs a warning.
//!
//! The wall clock may have been set since the first process began, whose clock follows it slowly (rule 6.9). So every
//! process that runs workers writes its time to a file beside the database, and a store starts with that time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_core::model::Timestamp;
use abide_kernel::SystemClock;

/// Maximum age of the time that others have written. They write it every second; the leases of a process that has just
/// died continue.
const RECENT: Duration = Duration::from_secs(30);

/// A lock beside the database, held by the first store that runs workers. The system releases it when the process ends,
/// in any way. It is a separate file, because closing a database file that SQLite has open would release SQLite's own
/// locks.
pub(crate) struct Lone {
    path: PathBuf,
    held: Mutex<Held>,
}

/// State of the lock.
enum Held {
    /// No worker of this store has registered yet.
    Unasked,
    /// This store has it.
    Own { _lock: File },
    /// This store does not have it: another store has it, it could not be taken, or it was released.
    No,
}

impl Lone {
    pub fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-workers");
        Self {
            path: path.into(),
            held: Mutex::new(Held::Unasked),
        }
    }

    /// Takes the lock when the first worker of this store registers, and logs a warning if another store has it.
    pub fn worker_registers(&self, database: &Path) {
        let mut held = self.held();
        if !matches!(*held, Held::Unasked) {
            return;
        }
        *held = match self.take() {
            Ok(Some(lock)) => Held::Own { _lock: lock },
            Ok(None) => {
                tracing::warn!(
                    file = %database.display(),
                    "another process runs workers on this SQLite file: that is safe, and slow, as they wait for each other; run all \
                     engines in one process and on one `Abide`, or use PostgreSQL or `abide serve`"
                );
                Held::No
            }
            Err(error) => {
                tracing::debug!(file = %self.path.display(), %error, "cannot see whether another process runs workers");
                Held::No
            }
        };
    }

    /// Releases the lock, and removes the time from the file: the store is closed, and if no other is open, the next
    /// one uses the wall clock. Other stores that run workers write their time again within a second.
    pub fn let_go(&self) {
        let was = std::mem::replace(&mut *self.held(), Held::No);
        if !matches!(was, Held::Unasked) {
            let _ = OpenOptions::new()
                .write(true)
                .open(&self.path)
                .and_then(|file| file.set_len(0));
        }
    }

    /// Writes the time of this store to the file, if it has workers.
    pub fn note(&self, time: impl FnOnce() -> Timestamp) {
        if matches!(*self.held(), Held::Unasked) {
            return;
        }
        let Some(boot) = Boot::now() else { return };
        let mut options = OpenOptions::new();
        let opened = options.write(true).open(&self.path);
        let noted = opened.and_then(|mut file| file.write_all(boot.noted(time()).as_bytes()));
        if let Err(error) = noted {
            tracing::debug!(file = %self.path.display(), %error, "cannot note the time");
        }
    }

    /// The time of the stores that run workers, or did a moment ago. Returns `None` if there are none.
    pub fn time(&self) -> Option<Timestamp> {
        let noted = fs::read_to_string(&self.path).ok()?;
        Boot::now()?.time(&noted)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock. Returns `None` if another store has it.
    fn take(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&self.path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Identifies this boot of the computer, and the time since: it cannot be set, and is the same for all processes.
struct Boot {
    id: String,
    uptime: Duration,
}

impl Boot {
    /// Returns `None` if the system does not provide it.
    fn now() -> Option<Self> {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let uptime = SystemClock::uptime()?;
        let id = id.trim().to_owned();
        Some(Self { id, uptime })
    }

    /// A line with the current time. All lines have the same length, because the next one overwrites it.
    fn noted(&self, time: Timestamp) -> String {
        let (id, uptime, time) = (&self.id, self.uptime.as_micros(), time.as_micros());
        format!("{id} {uptime:020} {time:020}\n")
    }

    /// The current time, computed from a recent line.
    fn time(&self, noted: &str) -> Option<Timestamp> {
        let line = noted.strip_suffix('\n')?;
        let [id, uptime, time] = *line.split(' ').collect::<Vec<_>>() else {
            return None;
        };
        let time = Timestamp::from_micros(time.parse().ok()?);
        let uptime = Duration::from_micros(uptime.parse().ok()?);
        let passed = self.uptime.checked_sub(uptime)?;
        (id == self.id && passed <= RECENT).then(|| time + passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(lone: &Lone) -> bool {
        matches!(*lone.held.lock().unwrap(), Held::Own { .. })
    }

    #[test]
    fn one_store_has_the_lock_until_it_goes() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("größe 1.db");
        let (first, second) = (Lone::beside(&database), Lone::beside(&database));
        first.worker_registers(&database);
        // A second worker of the same store changes nothing.
        first.worker_registers(&database);
        assert!(has(&first));
        second.worker_registers(&database);
        assert!(!has(&second) && second.take().unwrap().is_none());
        first.let_go();
        let third = Lone::beside(&database);
        third.worker_registers(&database);
        assert!(has(&third));
        drop(third);
        assert!(second.take().unwrap().is_some());
    }

    #[test]
    fn the_time_that_was_noted_goes_on_until_it_is_old() {
        // rule 6.9
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let boot = |id: &str, seconds| Boot {
            id: id.to_owned(),
            uptime: Duration::from_secs(seconds),
        };
        let noted = boot("a", 100).noted(at(5_000));
        assert_eq!(boot("a", 100).time(&noted), Some(at(5_000)));
        assert_eq!(boot("a", 130).time(&noted), Some(at(5_030)));
        // The line is too old; the computer was rebooted; the line is incomplete.
        assert_eq!(boot("a", 131).time(&noted), None);
        assert_eq!(boot("a", 99).time(&noted), None);
        assert_eq!(boot("b", 101).time(&noted), None);
        assert_eq!(boot("a", 101).time(noted.trim_end()), None);
        assert_eq!(boot("a", 101).time(""), None);
        let early = boot("a", 3).noted(at(-7));
        assert_eq!(early.len(), noted.len());
        assert_eq!(boot("a", 4).time(&early), Some(at(-6)));
    }

    #[test]
    fn only_a_store_with_workers_notes_the_time() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("abide.db");
        let (first, second) = (Lone::beside(&database), Lone::beside(&database));
        let time = Timestamp::from_micros(1_000_000_000);
        first.note(|| time);
        assert_eq!(second.time(), None);
        first.worker_registers(&database);
        first.note(|| time);
        let read = second.time().unwrap();
        assert!(read >= time && read.since(time) < RECENT, "{read}");
        // The second store writes the time too, because the first may end.
        second.worker_registers(&database);
        second.note(|| time + Duration::from_secs(500));
        assert!(first.time().unwrap() >= time + Duration::from_secs(500));
        first.let_go();
        assert_eq!(second.time(), None);
    }

    #[test]
    fn where_no_file_can_be_written_nothing_is_said() {
        let nowhere = Path::new("/no/such/directory/orders.db");
        let lone = Lone::beside(nowhere);
        lone.worker_registers(nowhere);
        assert!(!has(&lone));
    }
}
