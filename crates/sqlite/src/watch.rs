//! Notices what others commit: another process, or a connection of the host's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use crate::writer::Request;

/// How often the log file is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// Looks at the log file, without opening it and without a statement, and asks the writer to see who has committed when
/// it has changed.
///
/// The writer's own commits change the file as well; only its connection can tell them from those of others. A file's
/// time is coarse: what was written in the same tick after we looked leaves it as it is, so a file that has changed is
/// looked into once more the next time.
pub(crate) struct Watch {
    log: PathBuf,
    writer: mpsc::WeakSender<Request>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    pub fn new(path: &Path, writer: mpsc::WeakSender<Request>, stop: Arc<AtomicBool>) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Self {
            log: log.into(),
            writer,
            stop,
        }
    }

    /// Watches until it is stopped, or the writer is gone.
    pub fn serve(self) {
        let mut seen = None;
        let mut again = false;
        while !self.stop.load(Ordering::Acquire) {
            let Some(writer) = self.writer.upgrade() else {
                return;
            };
            let found = self.signs();
            let changed = found != seen;
            if changed || again {
                // A writer with so much to do that it cannot be asked is asked the next time.
                let asked = writer.try_send(Request::Look).is_ok();
                again = changed || !asked;
                seen = found;
            }
            drop(writer);
            thread::park_timeout(INTERVAL);
        }
    }

    /// What gives a write away: the file's time and length.
    fn signs(&self) -> Option<(SystemTime, u64)> {
        let file = fs::metadata(&self.log).ok()?;
        Some((file.modified().ok()?, file.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_asked(requests: &mut mpsc::Receiver<Request>, within: Duration) -> bool {
        let asked = tokio::time::timeout(within, requests.recv()).await;
        matches!(asked, Ok(Some(Request::Look)))
    }

    #[tokio::test]
    async fn the_writer_is_asked_when_the_log_has_changed_and_once_more_and_not_while_it_is_idle() {
        // rule 6.6
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.db");
        let (writer, mut requests) = mpsc::channel(8);
        let watch = Watch::new(&path, writer.downgrade(), Arc::default());
        let watching = thread::spawn(move || watch.serve());
        assert!(!is_asked(&mut requests, INTERVAL * 5).await);
        for _ in 0..2 {
            let log = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(dir.path().join("abide.db-wal"));
            std::io::Write::write_all(&mut log.unwrap(), b"a commit").unwrap();
            for _ in 0..2 {
                assert!(is_asked(&mut requests, Duration::from_secs(20)).await);
            }
            assert!(!is_asked(&mut requests, INTERVAL * 5).await);
        }
        drop(writer);
        watching.join().unwrap();
    }
}
