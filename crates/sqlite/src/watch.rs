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
        Self { log: log.into(), writer, stop }
    }

    /// Watches until it is stopped, or the writer is gone.
    pub fn serve(self) {
        let mut seen = None;
        let mut again = false;
        while !self.stop.load(Ordering::Acquire) {
            let Some(writer) = self.writer.upgrade() else { return };
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
