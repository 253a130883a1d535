//! Entries that go alone, because a batch that they were in has failed or because of what is known of them.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_core::model::Target;
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::batch::each;
use super::submit::patient_until;
use super::{Committer, Entry, Fault, Folded, Waiter};
use crate::{Answer, Backoff, Error, Op, Result};

/// For how long after its last failure an instance is suspected: entries about it go alone.
const SUSPECTED: Duration = Duration::from_secs(60);
/// After how many failures in a row an entry that goes alone is suspected: fewer are what rivals for a lock meet with.
const SUSPICIOUS: u32 = 3;
/// The most instances that are suspected at once; those that come later share batches again, at the cost of one failed
/// attempt each time.
const SUSPECTS_MAX: usize = 10_000;

/// How long an entry is tried.
#[derive(Clone, Debug)]
pub struct Patience {
    /// Until when; for ever when `None`. It is tried once, however late it is.
    pub until: Option<Instant>,
    /// Whether one that may have been committed is sent again.
    pub repeatable: bool,
    /// How often one that fails by what may be its own fault is tried, and how soon.
    pub backoff: Backoff,
}

impl Patience {
    /// Until then, with the bounded number of attempts that everybody has.
    pub const fn until(until: Option<Instant>, repeatable: bool) -> Self {
        Self {
            until,
            repeatable,
            backoff: Backoff::conflict(),
        }
    }

    /// For that long, and never what may have been committed.
    pub fn lasting(patience: Duration) -> Self {
        Self::until(Some(patient_until(patience)), false)
    }

    /// Whether there is time for another attempt after that delay.
    fn allows(&self, delay: Duration) -> bool {
        let next = Instant::now() + delay;
        self.until.is_none_or(|until| next < until)
    }
}

impl Committer {
    /// Tries an entry in transactions of its own, until it is committed, fails for good or its patience is over.
    ///
    /// Items that may be repeated are separated from each other, too, since each has its own answer.
    pub async fn alone<K: Folded, W: Waiter>(
        &self,
        kind: &K,
        entry: Entry<K, W>,
    ) -> (W, Result<Vec<K::Each>>) {
        let Entry { items, waiter } = entry;
        let patience = Patience::until(waiter.until(), K::REPEATABLE);
        if !K::REPEATABLE || items.len() == 1 {
            let answer = self.together(kind, items, patience).await;
            return (waiter, answer);
        }
        let one = |item| self.together(kind, vec![item], patience.clone());
        let answers = join_all(items.into_iter().map(one)).await;
        let answers: Result<Vec<Vec<K::Each>>> = answers.into_iter().collect();
        (
            waiter,
            answers.map(|each| each.into_iter().flatten().collect()),
        )
    }

    /// Tries items in one transaction that nobody else shares.
    async fn together<K: Folded>(
        &self,
        kind: &K,
        items: Vec<K::Item>,
        patience: Patience,
    ) -> Result<Vec<K::Each>> {
        let subjects = Subjects::of::<K>(&items);
        let places = match self.suspects.any(&subjects) {
            true => &self.again,
            false => &self.first,
        };
        let count = items.len();
        let ops: Arc<[Op]> = Arc::from([kind.op(items)]);
        match self.insist(&ops, &subjects, Some(places), patience).await {
            Ok(answers) => each::<K>(answers.into_iter().next()),
            Err(Ended::Hopeless(error)) => {
                metrics::counter!("abide_given_up_total").increment(1);
                tracing::error!(%error, about = %subjects, "an entry fails for good and is answered so");
                match K::refused(&error) {
                    Some(each) if count == 1 => Ok(vec![each]),
                    _ => Err(error),
                }
            }
            Err(Ended::Impatient(error)) => Err(error),
        }
    }

    /// Runs operations in a transaction of their own, until it is committed, fails for good or the patience is over.
    ///
    /// Errors: that of the last attempt.
    pub async fn run(&self, ops: &Arc<[Op]>, patience: Patience) -> Result<Vec<Answer>> {
        let ran = self.insist(ops, &Subjects::default(), None, patience).await;
        ran.map_err(|(Ended::Hopeless(error) | Ended::Impatient(error))| error)
    }

    /// The retry loop, which there is no other of: one attempt after the other, with back-off, and without a place
    /// while it waits.
    async fn insist(
        &self,
        ops: &Arc<[Op]>,
        subjects: &Subjects,
        mut places: Option<&Arc<Semaphore>>,
        mut patience: Patience,
    ) -> Result<Vec<Answer>, Ended> {
        let mut away = Backoff::away();
        let mut doubted = false;
        loop {
            let attempted = match places {
                // The semaphore is never closed.
                Some(places) => {
                    let place = places.acquire().await;
                    let _place = place.map_err(|_| Ended::Impatient(Error::Closed))?;
                    self.store.run(ops.clone()).await
                }
                None => self.store.run(ops.clone()).await,
            };
            let error = match attempted {
                Ok(answers) => {
                    self.suspects.clear(subjects);
                    return Ok(answers);
                }
                Err(error) => error,
            };
            let delay = match &error {
                Error::Conflict(_) | Error::Unjudged(_) => {
                    places = Some(&self.again);
                    patience.backoff.failed()
                }
                Error::Unavailable(_) => away.failed(),
                Error::Unknown(_) if patience.repeatable => away.failed(),
                Error::Refused(_) | Error::Broken(_) | Error::Unknown(_) | Error::Closed => None,
            };
            doubted |= matches!(error, Error::Unknown(_));
            let own_fault = error.fault() == Fault::Entry;
            if own_fault && (delay.is_none() || patience.backoff.failures() >= SUSPICIOUS) {
                self.suspects.add(subjects);
            }
            let delay = match delay {
                Some(delay) if patience.allows(delay) => delay,
                None if own_fault => return Err(Ended::Hopeless(error)),
                // What one attempt may have written is not unwritten by the next that fails.
                _ if doubted => return Err(Ended::Impatient(error.in_doubt())),
                _ => return Err(Ended::Impatient(error)),
            };
            tracing::debug!(%error, about = %subjects, ?delay, "an entry is tried again");
            tokio::time::sleep(delay).await;
        }
    }
}

/// Why an entry is not tried any more.
enum Ended {
    /// It failed by what may be its own fault as often as it is tried.
    Hopeless(Error),
    /// Nobody waits any longer, or nothing can be tried.
    Impatient(Error),
}

/// The instances that entries of one kind are about.
#[derive(Debug, Default)]
pub(super) struct Subjects(Vec<(Option<TypeId>, Target)>);

impl Subjects {
    pub fn of<K: Folded>(items: &[K::Item]) -> Self {
        let kind = Some(TypeId::of::<K>());
        let subjects = items.iter().filter_map(K::subject);
        Self(subjects.map(|subject| (kind, subject)).collect())
    }
}

impl std::fmt::Display for Subjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.first() {
            Some((_, Target::Id(id))) => write!(f, "instance {id}"),
            Some((_, Target::Key(key))) => write!(f, "key {key}"),
            None => f.write_str("no instance"),
        }
    }
}

/// The instances whose entries have failed alone, and until when that is remembered.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// How many there are, so that nobody looks while there are none.
    count: AtomicUsize,
    until: Mutex<Remembered>,
}

/// Until when each is suspected, by kind of entry and instance.
type Remembered = HashMap<(Option<TypeId>, Target), Instant>;

impl Suspects {
    /// Whether one of them is suspected.
    pub fn any(&self, subjects: &Subjects) -> bool {
        if self.is_empty() || subjects.0.is_empty() {
            return false;
        }
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut subjects = subjects.0.iter();
        subjects.any(|subject| until.get(subject).is_some_and(|until| *until > now))
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn add(&self, subjects: &Subjects) {
        self.change(|until| {
            let now = Instant::now();
            if until.len() >= SUSPECTS_MAX {
                until.retain(|_, until| *until > now);
            }
            for subject in &subjects.0 {
                if until.len() < SUSPECTS_MAX || until.contains_key(subject) {
                    until.insert(subject.clone(), now + SUSPECTED);
                }
            }
        });
    }

    fn clear(&self, subjects: &Subjects) {
        if self.is_empty() {
            return;
        }
        self.change(|until| {
            for subject in &subjects.0 {
                until.remove(subject);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Remembered)) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut until);
        self.count.store(until.len(), Ordering::Relaxed);
    }
}
