//! What waits for a transaction, and when the next may be tried.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::alone::Subjects;
use super::{Committer, Entry, Fault, Folded};
use crate::{Backoff, Error};

/// Who waits for an entry.
pub trait Waiter: Send {
    /// Until when it waits for a database that is away; `None`: for ever.
    fn until(&self) -> Option<Instant>;

    /// Notes that what it waits for may have been committed: a later attempt that fails does not change that.
    fn doubt(&mut self) {}
}

/// Entries that wait for a transaction, in the order in which they came.
#[derive(Debug)]
pub struct Intake<K: Folded, W> {
    waiting: VecDeque<Entry<K, W>>,
    /// The most items of a transaction.
    most: usize,
    /// The most items that may go together now: fewer each time that the database is away, one of them may be why.
    together: usize,
    backoff: Backoff,
    /// Why nothing is tried before that moment.
    away: Option<(Error, Instant)>,
}

impl<K: Folded, W: Waiter> Intake<K, W> {
    /// For transactions of at most that many items; an entry that is larger goes alone.
    pub const fn new(most: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            most,
            together: most,
            backoff: Backoff::away(),
            away: None,
        }
    }

    /// Takes an entry.
    pub fn push(&mut self, entry: Entry<K, W>) {
        self.waiting.push_back(entry);
    }

    /// How many entries wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether enough wait to fill a transaction.
    pub fn is_full(&self) -> bool {
        let items: usize = self.waiting.iter().map(|entry| entry.items.len()).sum();
        items >= self.most
    }

    /// Until when nothing is tried, because the database was away.
    pub fn resting(&self) -> Option<Instant> {
        self.away.as_ref().map(|(_, until)| *until)
    }

    /// When there is something to do without anybody asking for it: the rest is over, or somebody's patience.
    pub fn wakes_at(&self) -> Option<Instant> {
        let until = self.resting()?;
        let rest = (until > Instant::now() && !self.is_empty()).then_some(until);
        let patience = self.waiting.iter().filter_map(|one| one.waiter.until());
        patience.chain(rest).min()
    }

    /// The entries of the next transaction: as many as fit, one at least, none while the database is away. Those that
    /// are known to fail come apart.
    pub fn take(&mut self, committer: &Committer) -> Taken<K, W> {
        let mut taken = Taken {
            together: Vec::new(),
            alone: Vec::new(),
        };
        if self.resting().is_some_and(|until| until > Instant::now()) {
            return taken;
        }
        let unsuspicious = committer.suspects.is_empty();
        let mut items = 0;
        while let Some(entry) = self.waiting.front()
            && (taken.together.is_empty() || items + entry.items.len() <= self.together)
        {
            let apart = !unsuspicious
                && committer
                    .suspects
                    .any(&Subjects::of::<K>(entry.items.as_slice()));
            if apart {
                taken.alone.extend(self.waiting.pop_front());
            } else {
                items += entry.items.len();
                taken.together.extend(self.waiting.pop_front());
            }
        }
        taken
    }

    /// Sees to the entries of a batch that failed.
    ///
    /// When the database is away they wait here: nothing is tried for a while, then fewer at once, and others first.
    pub fn failed(&mut self, mut entries: Vec<Entry<K, W>>, error: Error) -> Failed<K, W> {
        match error.fault() {
            Fault::Store => {
                tracing::warn!(%error, entries = entries.len(), "the database is away; entries are kept until it is back");
                self.together = (self.together / 2).max(1);
                let delay = self.backoff.failed().unwrap_or_default();
                self.away = Some((error, Instant::now() + delay));
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

    /// Notes that the database is there.
    pub fn landed(&mut self) {
        self.together = self.most;
        self.backoff.reset();
        self.away = None;
    }

    /// Those whose patience with a database that is away is over, and what to tell them. When the rest is over and nothing
    /// is being tried, they are tried first: or those without any patience would never find out that it is back.
    pub fn spent(&mut self, trying: bool) -> Vec<(Entry<K, W>, Error)> {
        let now = Instant::now();
        let away = self.away.as_ref();
        let Some((error, _)) = away.filter(|(_, until)| trying || *until > now) else {
            return Vec::new();
        };
        let spent = |entry: &Entry<K, W>| entry.waiter.until().is_some_and(|until| until <= now);
        if !self.waiting.iter().any(spent) {
            return Vec::new();
        }
        let (spent, patient): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(spent);
        self.waiting = patient.into();
        let told = |entry| (entry, error.again());
        spent.into_iter().map(told).collect()
    }

    /// Takes all that wait.
    pub fn drain(&mut self) -> impl Iterator<Item = Entry<K, W>> + '_ {
        self.waiting.drain(..)
    }
}

/// Tells that the entries of a batch go alone.
pub(super) fn separated(entries: usize, error: &Error) {
    if entries > 1 {
        metrics::counter!("abide_separated_total").increment(entries as u64);
        tracing::warn!(%error, entries, "a transaction failed; its entries are tried one by one");
    }
}

/// What becomes of the entries of a batch that failed.
#[derive(Debug)]
pub enum Failed<K: Folded, W> {
    /// They wait.
    Kept,
    /// Each goes alone.
    Alone(Vec<Entry<K, W>>),
    /// They are answered with the error.
    Over(Vec<Entry<K, W>>, Error),
}

/// The entries of the next transaction, and those that go alone.
#[derive(Debug)]
pub struct Taken<K: Folded, W> {
    /// These share it.
    pub together: Vec<Entry<K, W>>,
    /// These do not.
    pub alone: Vec<Entry<K, W>>,
}

/// Takes what comes, and waits for more only as long as the runtime has something else to do: so a batch fills by itself
/// under load, and a single entry waits for nobody. `take` takes what has come, and answers how many there are by then.
pub async fn gather(most: usize, mut take: impl FnMut() -> usize) {
    let (mut before, mut there) = (0, take());
    while there > before && there < most {
        before = there;
        tokio::task::yield_now().await;
        there = take();
    }
}
