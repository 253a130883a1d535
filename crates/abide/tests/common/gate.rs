//! Communication between steps and their test: gates, logs and counts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::eventually;

/// Steps wait here until the test lets them through. Clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    open: watch::Sender<bool>,
    waiting: Arc<AtomicUsize>,
}

impl Gate {
    pub fn closed() -> Self {
        Self {
            open: watch::Sender::new(false),
            waiting: Arc::default(),
        }
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.unwrap();
    }

    /// Lets all through, from now on.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// The number of steps that have come so far.
    pub fn arrivals(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until that many have come.
    pub async fn reached_by(&self, count: usize) {
        let what = format!("{count} steps to come to the gate");
        eventually(&what, async || self.arrivals() >= count).await;
    }
}

/// The notes of steps, in order. Clones are the same log.
#[derive(Clone)]
pub struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> Log<T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn note(&self, what: T) {
        self.0.lock().unwrap().push(what);
    }

    pub fn read(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits until that much was noted.
    pub async fn grown_to(&self, count: usize) -> Vec<T> {
        let what = format!("{count} notes");
        eventually(&what, async || self.len() >= count).await;
        self.read()
    }
}

/// The number of steps that are inside at once, now and at most. Clones are the same count.
#[derive(Clone, Default)]
pub struct Most(Arc<(AtomicUsize, AtomicUsize)>);

/// One that is inside.
pub struct Inside(Most);

impl Most {
    pub fn enter(&self) -> Inside {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        Inside(self.clone())
    }

    /// The most that were inside at once.
    pub fn seen(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
