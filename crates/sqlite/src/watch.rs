//! Notices commits of others: another process, or a connection of the host. Also writes the time for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use abide_kernel::Clock;
use tokio::sync::mpsc;

use crate::exclusive::Lone;
use crate::writer::Request;

/// Interval between checks of the log file.
const INTERVAL: Duration = Duration::from_millis(20);

/// Number of checks between two writes of the time: once a second.
const NOTED: u32 = 50;

/// Checks the log file, without opening it and without a statement, and asks the writer to check for commits of others
/// if it has changed.
///
/// The writer's own commits change the file too; only its connection can distinguish them from those of others. The
/// timestamp of a file is coarse: a write in the same tick after the check does not change it. So a file that has
/// changed is checked once more the next time.
pub(crate) struct Watch {
    log: PathBuf,
    writer: mpsc::WeakSender<Request>,
    stop: Arc<AtomicBool>,
    /// The clock whose time is written beside the database; `None` if it is not the computer's.
    clock: Option<Arc<dyn Clock>>,
    lone: Arc<Lone>,
}

impl Watch {
    pub fn new(
        path: &Path,
        writer: mpsc::WeakSender<Request>,
        stop: Arc<AtomicBool>,
        clock: Option<Arc<dyn Clock>>,
        lone: Arc<Lone>,
    ) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Self {
            log: log.into(),
            writer,
            stop,
            clock,
            lone,
        }
    }

    /// Watches until it is stopped, or the writer is gone.
    pub fn serve(self) {
        let mut seen = None;
        let mut again = false;
        let mut polls = 0_u32;
        while !self.stop.load(Ordering::Acquire) {
            let Some(writer) = self.writer.upgrade() else {
                return;
            };
            let found = self.signs();
            let changed = found != seen;
            if changed || again {
                // If the writer's queue is full, it is asked again the next time.
                let sent = writer.try_send(Request::CheckForChanges).is_ok();
                again = changed || !sent;
                seen = found;
            }
            drop(writer);
            if let Some(clock) = &self.clock
                && polls.is_multiple_of(NOTED)
            {
                self.lone.note(|| clock.now());
            }
            polls = polls.wrapping_add(1);
            thread::park_timeout(INTERVAL);
        }
    }

    /// The signs of a write: the file's time and length.
    fn signs(&self) -> Option<(SystemTime, u64)> {
        let file = fs::metadata(&self.log).ok()?;
        Some((file.modified().ok()?, file.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_requested(requests: &mut mpsc::Receiver<Request>, within: Duration) -> bool {
        let request = tokio::time::timeout(within, requests.recv()).await;
        matches!(request, Ok(Some(Request::CheckForChanges)))
    }

    #[tokio::test]
    async fn the_writer_is_asked_when_the_log_has_changed_and_once_more_and_not_while_it_is_idle() {
        // rule 6.6
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.db");
        let (writer, mut requests) = mpsc::channel(8);
        let lone = Arc::new(Lone::beside(&path));
        let watch = Watch::new(&path, writer.downgrade(), Arc::default(), None, lone);
        let watching = thread::spawn(move || watch.serve());
        assert!(!is_requested(&mut requests, INTERVAL * 5).await);
        for _ in 0..2 {
            let log = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(dir.path().join("abide.db-wal"));
            std::io::Write::write_all(&mut log.unwrap(), b"a commit").unwrap();
            for _ in 0..2 {
                assert!(is_requested(&mut requests, Duration::from_secs(20)).await);
            }
            assert!(!is_requested(&mut requests, INTERVAL * 5).await);
        }
        drop(writer);
        watching.join().unwrap();
    }
}
