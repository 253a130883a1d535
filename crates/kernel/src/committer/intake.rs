//! The entries that wait for a transaction, and when the next one may be tried.

use std::collections::{HashSet, VecDeque};

use tokio::time::Instant;

use super::isolation::Subjects;
use super::{Committer, Entry, Fault, Folded};
use crate::{Backoff, Error, Pause};

/// The waiter for an entry.
pub trait Waiter: Send {
    /// Returns until when it waits for a database that is unavailable; `None` means forever.
    fn until(&self) -> Option<Instant>;

    /// Records that the entry may have been committed. A later attempt that fails does not change that.
    fn doubt(&mut self) {}
}

/// Entries that wait for a transaction, in order of arrival.
#[derive(Debug)]
pub struct Intake<K: Folded, W> {
    waiting: VecDeque<Entry<K, W>>,
    /// The maximum number of items in a transaction.
    most: usize,
    /// The current maximum number of items in a transaction. It shrinks each time the database is unavailable, because
    /// one of the items may be the cause.
    together: usize,
    pause: Pause,
    /// The error because of which nothing is tried during the pause.
    away: Option<Error>,
}

impl<K: Folded, W: Waiter> Intake<K, W> {
    /// Creates an intake for transactions of at most `most` items. A larger entry runs alone.
    pub const fn new(most: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            most,
            together: most,
            pause: Pause::new(Backoff::away()),
            away: None,
        }
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: Entry<K, W>) {
        self.waiting.push_back(entry);
    }

    /// Returns the number of waiting entries.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// `true` if no entry waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of waiting items.
    pub fn items(&self) -> usize {
        self.waiting.iter().map(|entry| entry.items.len()).sum()
    }

    /// Returns until when nothing is tried, because the database was unavailable.
    pub fn resting(&self) -> Option<Instant> {
        self.pause.until()
    }

    /// Returns when the intake needs attention by itself: at the end of the pause, or of a waiter's patience.
    pub fn wakes_at(&self) -> Option<Instant> {
        self.away.as_ref()?;
        let rest = self.resting().filter(|_| !self.is_empty());
        let patience = self.waiting.iter().filter_map(|one| one.waiter.until());
        patience.chain(rest).min()
    }

    /// Takes the entries of the next transaction: as many as fit, at least one, and none while the database is
    /// unavailable. Entries for suspected instances are returned separately, and no claim is in two entries.
    pub fn take(&mut self, committer: &Committer) -> Taken<K, W> {
        let mut taken = Taken {
            together: Vec::new(),
            alone: Vec::new(),
        };
        if self.resting().is_some() {
            return taken;
        }
        let unsuspicious = committer.suspects.is_empty();
        let mut items = 0;
        let mut claims = HashSet::with_capacity(self.waiting.len().min(self.together));
        while let Some(entry) = self.waiting.front()
            && (taken.together.is_empty() || items + entry.items.len() <= self.together)
        {
            let of_entry = || entry.items.iter().filter_map(K::claim);
            // rule 1.7: an outcome of another caller under the same claim is another request.
            if of_entry().any(|claim| claims.contains(&claim)) {
                break;
            }
            let apart = !unsuspicious
                && committer
                    .suspects
                    .any(&Subjects::of::<K>(entry.items.as_slice()));
            if apart {
                taken.alone.extend(self.waiting.pop_front());
            } else {
                items += entry.items.len();
                claims.extend(of_entry());
                taken.together.extend(self.waiting.pop_front());
            }
        }
        taken
    }

    /// Handles the entries of a failed batch.
    ///
    /// If the database is unavailable, the entries are kept here. Nothing is tried for a while; then batches are
    /// smaller, and other entries go first.
    pub fn failed(&mut self, mut entries: Vec<Entry<K, W>>, error: Error) -> Failed<K, W> {
        match error.fault() {
            Fault::Store => {
                tracing::warn!(%error, entries = entries.len(), "the database is unavailable; entries are kept until it is back");
                self.together = (self.together / 2).max(1);
                self.pause.failed();
                self.away = Some(error);
                self.waiting.extend(entries);
                return Failed::Kept;
            }
            Fault::Entry => {}
            Fault::Unknown if K::REPEATABLE => {
                entries.iter_mut().for_each(|entry| entry.waiter.doubt());
            }
            Fault::Unknown | Fault::Closed => return Failed::Over(entries, error),
        }
        separated(entries.len(), &error);
        Failed::Alone(entries)
    }

    /// Records that the database is available.
    pub fn landed(&mut self) {
        self.together = self.most;
        self.pause.reset();
        self.away = None;
    }

    /// Takes the entries whose patience with an unavailable database is over, each with the error to return. When the
    /// pause is over and no transaction is running, they are tried first; otherwise callers without any patience would
    /// never notice that the database is back.
    pub fn spent(&mut self, trying: bool) -> Vec<(Entry<K, W>, Error)> {
        let now = Instant::now();
        let away = self.away.as_ref();
        let Some(error) = away.filter(|_| trying || self.resting().is_some()) else {
            return Vec::new();
        };
        let spent = |entry: &Entry<K, W>| entry.waiter.until().is_some_and(|until| until <= now);
        if !self.waiting.iter().any(spent) {
            return Vec::new();
        }
        let (spent, patient): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(spent);
        self.waiting = patient.into();
        let answered = |entry| (entry, error.again());
        spent.into_iter().map(answered).collect()
    }

    /// Takes all waiting entries.
    pub fn drain(&mut self) -> impl Iterator<Item = Entry<K, W>> + '_ {
        self.waiting.drain(..)
    }
}

/// Logs and counts that the entries of a batch run alone.
pub(super) fn separated(entries: usize, error: &Error) {
    if entries > 1 {
        metrics::counter!("abide_separated_total").increment(entries as u64);
        tracing::warn!(%error, entries, "a transaction failed; its entries are tried one by one");
    }
}

/// The next action for the entries of a failed batch.
#[derive(Debug)]
pub enum Failed<K: Folded, W> {
    /// They wait in the intake.
    Kept,
    /// Each runs alone.
    Alone(Vec<Entry<K, W>>),
    /// They are answered with the error.
    Over(Vec<Entry<K, W>>, Error),
}

/// The entries of the next transaction, and those that run alone.
#[derive(Debug)]
pub struct Taken<K: Folded, W> {
    /// The entries that share the transaction.
    pub together: Vec<Entry<K, W>>,
    /// The entries that run alone.
    pub alone: Vec<Entry<K, W>>,
}

/// Takes arriving entries, and waits for more only while the runtime has other work. So a batch fills by itself under
/// load, and a single entry does not wait. `take` takes the entries that have arrived, and returns the total number so
/// far.
pub async fn gather(most: usize, mut take: impl FnMut() -> usize) {
    let (mut before, mut there) = (0, take());
    while there > before && there < most {
        before = there;
        tokio::task::yield_now().await;
        there = take();
    }
}
