//! The changes on the whole server, for all listeners: one task receives the store's notifications, and a ring buffer
//! keeps the last ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use abide::store::Store;
use abide_kernel::Effects;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Number of changes that are kept for listeners that reconnect.
const KEPT: usize = 4_096;

/// The kinds of changes.
pub const KINDS: [&str; 7] = [
    "ready",
    "ended",
    "answered",
    "cancelled",
    "received",
    "due",
    "reset",
];

/// One change.
#[derive(Debug)]
pub struct Change {
    /// Its number.
    pub number: u64,
    /// Its kind.
    pub kind: &'static str,
    /// Its data.
    pub data: Value,
}

/// The changes on the whole server. The task starts with the first listener.
pub struct Feed {
    ring: Arc<Ring>,
    started: Mutex<bool>,
}

struct Ring {
    boot: String,
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    next: u64,
    changes: VecDeque<Arc<Change>>,
}

/// The position of one listener.
pub struct Listening {
    ring: Arc<Ring>,
    latest: watch::Receiver<u64>,
    /// The number of the last change that it got.
    at: u64,
    /// `true` if it has missed changes and must get a reset.
    reset: bool,
}

impl Feed {
    /// Makes a feed without listeners.
    pub fn new() -> Self {
        // Distinguishes its numbers from those of another process.
        let boot = crate::auth::random::<8>().map_or(0, u64::from_le_bytes);
        let boot = format!("{boot:016x}");
        let ring = Ring {
            boot,
            kept: Mutex::default(),
            newest: watch::Sender::new(0),
        };
        Self {
            ring: Arc::new(ring),
            started: Mutex::new(false),
        }
    }

    /// Adds a listener: from now on, or from after the change with the id `after`.
    pub fn listen(&self, store: &Arc<dyn Store>, after: Option<&str>) -> Listening {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if !*started {
            *started = true;
            tokio::spawn(receive(Arc::downgrade(&self.ring), store.listen()));
        }
        drop(started);
        let latest = self.ring.newest.subscribe();
        let newest = *latest.borrow();
        let (at, reset) = match after {
            None => (newest, false),
            Some(id) => match self.ring.number(id).filter(|at| *at <= newest) {
                Some(at) => (at, false),
                // The id is of another process, or invalid.
                None => (newest, true),
            },
        };
        Listening {
            ring: self.ring.clone(),
            latest,
            at,
            reset,
        }
    }
}

impl Ring {
    /// Returns the number in an id that this process issued.
    fn number(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&self.boot)?.strip_prefix('-')?.parse().ok()
    }

    fn keep(&self, changes: Vec<(&'static str, Value)>) {
        if changes.is_empty() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, data) in changes {
            kept.next += 1;
            let number = kept.next;
            if kept.changes.len() == KEPT {
                kept.changes.pop_front();
            }
            kept.changes
                .push_back(Arc::new(Change { number, kind, data }));
        }
        self.newest.send_replace(kept.next);
    }

    /// Returns the changes after a number, or `None` if some of them are no longer kept.
    fn after(&self, at: u64) -> Option<Vec<Arc<Change>>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = kept
            .changes
            .front()
            .map_or(kept.next + 1, |first| first.number);
        if at + 1 < oldest {
            return None;
        }
        Some(
            kept.changes
                .iter()
                .filter(|change| change.number > at)
                .cloned()
                .collect(),
        )
    }
}

/// A message to a listener.
pub enum FeedItem {
    /// The changes, in order; never empty.
    Changes(Vec<Arc<Change>>),
    /// The listener has missed changes, and must read everything again.
    Reset,
}

impl Listening {
    /// The id of a change, or of the last one that this listener got.
    pub fn id(&self, number: Option<u64>) -> String {
        format!("{}-{}", self.ring.boot, number.unwrap_or(self.at))
    }

    /// Waits for the next changes. Returns `None` if the store is closed.
    pub async fn next(&mut self) -> Option<FeedItem> {
        loop {
            if std::mem::take(&mut self.reset) {
                return Some(FeedItem::Reset);
            }
            let newest = *self.latest.borrow_and_update();
            if newest > self.at {
                match self.ring.after(self.at) {
                    Some(changes) => {
                        self.at = changes.last().map_or(newest, |last| last.number);
                        return Some(FeedItem::Changes(changes));
                    }
                    None => {
                        // The listener is slower than the server: the changes that it missed are gone.
                        self.at = newest;
                        self.reset = true;
                        continue;
                    }
                }
            }
            self.latest.changed().await.ok()?;
        }
    }
}

/// Receives the store's notifications as long as the feed exists.
async fn receive(ring: Weak<Ring>, mut listener: abide_kernel::Listener) {
    while let Some(effects) = listener.next().await {
        let Some(ring) = ring.upgrade() else {
            return;
        };
        ring.keep(changes(&effects));
    }
}

/// Converts the notifications of a commit to changes.
fn changes(effects: &Effects) -> Vec<(&'static str, Value)> {
    let mut changes = Vec::new();
    if effects.anything {
        // Notifications were lost, so listeners must read everything again.
        changes.push(("reset", Value::Null));
    }
    changes.extend(
        effects
            .ready
            .iter()
            .map(|queue| ("ready", json!({ "queue": queue }))),
    );
    changes.extend(
        effects
            .ended
            .iter()
            .map(|id| ("ended", json!({ "id": id }))),
    );
    changes.extend(
        effects
            .answered
            .iter()
            .map(|id| ("answered", json!({ "update_id": id }))),
    );
    changes.extend(
        effects
            .cancelled
            .iter()
            .map(|id| ("cancelled", json!({ "id": id }))),
    );
    changes.extend(
        effects
            .received
            .iter()
            .map(|id| ("received", json!({ "id": id }))),
    );
    if let Some(due) = effects.due {
        changes.push(("due", json!({ "due_at": due })));
    }
    if effects.ended_elsewhere {
        // Another process did not report which instances ended.
        changes.push(("ended", json!({ "id": null })));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(n: usize) -> Vec<(&'static str, Value)> {
        vec![("ended", json!({ "id": n }))]
    }

    #[tokio::test]
    async fn a_listener_that_reconnects_in_time_misses_nothing_and_a_slow_one_gets_a_reset() {
        let abide = abide::Abide::open("memory:").await.unwrap();
        let feed = Feed::new();
        let mut slow = feed.listen(abide.store(), None);
        feed.ring.keep(change(1));
        let id = slow.id(Some(1));
        feed.ring.keep(change(2));
        let mut back = feed.listen(abide.store(), Some(&id));
        let Some(FeedItem::Changes(received)) = back.next().await else {
            panic!("there is a change");
        };
        assert_eq!(
            received.iter().map(|one| one.number).collect::<Vec<_>>(),
            [2],
            "the changes after it"
        );

        for n in 0..KEPT + 10 {
            feed.ring.keep(change(n));
        }
        assert!(matches!(slow.next().await, Some(FeedItem::Reset)));
        feed.ring.keep(change(0));
        let Some(FeedItem::Changes(received)) = slow.next().await else {
            panic!("there is a change");
        };
        assert_eq!(received.len(), 1, "and continues from there");
        for unknown in ["", "7", "x-7", &format!("{id}00000")] {
            let mut lost = feed.listen(abide.store(), Some(unknown));
            assert!(
                matches!(lost.next().await, Some(FeedItem::Reset)),
                "{unknown}"
            );
        }
    }
}
