//! Entries that run alone, because a batch with them has failed or because they are suspected.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
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

/// The time for which an instance is suspected after its last failure. Entries for it run alone.
const SUSPECTED: Duration = Duration::from_secs(60);
/// The number of failures in a row after which an entry that runs alone is suspected. Fewer are normal when
/// transactions compete for a lock.
const SUSPICIOUS: u32 = 3;
/// The maximum number of suspected instances. Later ones share batches again, at the cost of one failed attempt each
/// time.
const SUSPECTS_MAX: usize = 10_000;

/// The limits on the attempts of an entry.
#[derive(Clone, Debug)]
pub struct Patience {
    /// The deadline; `None` means forever. There is at least one attempt, however late it is.
    pub until: Option<Instant>,
    /// `true` if an entry that may have been committed is sent again.
    pub repeatable: bool,
    /// The number and delays of attempts for an entry that may itself be the cause of its failure.
    pub backoff: Backoff,
}

impl Patience {
    /// Sets a deadline, with the usual bounded number of attempts.
    pub const fn until(until: Option<Instant>, repeatable: bool) -> Self {
        Self {
            until,
            repeatable,
            backoff: Backoff::conflict(),
        }
    }

    /// Sets a time limit from now. An entry that may have been committed is not repeated.
    pub fn lasting(patience: Duration) -> Self {
        Self::until(Some(patient_until(patience)), false)
    }

    /// `true` if there is time for another attempt after this delay.
    fn allows(&self, delay: Duration) -> bool {
        let next = Instant::now() + delay;
        self.until.is_none_or(|until| next < until)
    }
}

impl Committer {
    /// Tries an entry in its own transactions, until it is committed, fails permanently, or its patience ends.
    ///
    /// Repeatable items are separated from each other too, because each has its own answer. Items under one claim stay
    /// together.
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
        let (positions, groups) = by_claim::<K>(items);
        let group = |items| self.together(kind, items, patience.clone());
        let answers = join_all(groups.into_iter().map(group)).await;
        let answers: Result<Vec<Vec<K::Each>>> = answers.into_iter().collect();
        let in_order = |each: Vec<Vec<K::Each>>| {
            let placed = positions.into_iter().zip(each.into_iter().flatten());
            let each: BTreeMap<usize, K::Each> = placed.collect();
            each.into_values().collect()
        };
        (waiter, answers.map(in_order))
    }

    /// Tries items in one transaction that no other entry shares.
    async fn together<K: Folded>(
        &self,
        kind: &K,
        items: Vec<K::Item>,
        patience: Patience,
    ) -> Result<Vec<K::Each>> {
        let subjects = Subjects::of::<K>(&items);
        let permits = match self.suspects.any(&subjects) {
            true => &self.again,
            false => &self.first,
        };
        let count = items.len();
        let ops: Arc<[Op]> = Arc::from([kind.op(items)]);
        match self.insist(&ops, &subjects, Some(permits), patience).await {
            Ok(answers) => each::<K>(answers.into_iter().next()),
            Err(Ended::Hopeless(error)) => {
                metrics::counter!("abide_given_up_total").increment(1);
                tracing::error!(%error, about = %subjects, "an entry fails for good and is answered so");
                let refused: Option<Vec<_>> = (0..count).map(|_| K::refused(&error)).collect();
                refused.ok_or(error)
            }
            Err(Ended::Impatient(error)) => Err(error),
        }
    }

    /// Runs operations in their own transaction, until it is committed, fails permanently, or the patience ends.
    ///
    /// Errors: the error of the last attempt.
    pub async fn run(&self, ops: &Arc<[Op]>, patience: Patience) -> Result<Vec<Answer>> {
        let ran = self.insist(ops, &Subjects::default(), None, patience).await;
        ran.map_err(|(Ended::Hopeless(error) | Ended::Impatient(error))| error)
    }

    /// The only retry loop: one attempt after the other, with back-off. It holds no permit while it waits.
    async fn insist(
        &self,
        ops: &Arc<[Op]>,
        subjects: &Subjects,
        mut permits: Option<&Arc<Semaphore>>,
        mut patience: Patience,
    ) -> Result<Vec<Answer>, Ended> {
        let mut away = Backoff::away();
        let mut doubted = false;
        loop {
            let attempted = match permits {
                // The semaphore is never closed.
                Some(permits) => {
                    let permit = permits.acquire().await;
                    let _permit = permit.map_err(|_| Ended::Impatient(Error::Closed))?;
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
                    permits = Some(&self.again);
                    patience.backoff.failed()
                }
                Error::Unavailable(_) => away.failed(),
                Error::Unknown(_) if patience.repeatable => away.failed(),
                Error::Refused(_)
                | Error::NotSetUp(_)
                | Error::Broken(_)
                | Error::Unknown(_)
                | Error::Closed => None,
            };
            doubted |= matches!(error, Error::Unknown(_));
            let own_fault = error.fault() == Fault::Entry;
            if own_fault && (delay.is_none() || patience.backoff.failures() >= SUSPICIOUS) {
                self.suspects.add(subjects);
            }
            let delay = match delay {
                Some(delay) if patience.allows(delay) => delay,
                None if own_fault => return Err(Ended::Hopeless(error)),
                // An earlier attempt may have been committed; a later failure does not change that.
                _ if doubted => return Err(Ended::Impatient(error.in_doubt())),
                _ => return Err(Ended::Impatient(error)),
            };
            tracing::debug!(%error, about = %subjects, ?delay, "an entry is tried again");
            tokio::time::sleep(delay).await;
        }
    }
}

/// Groups items: those under one claim together, every other item in its own group. Also returns the original position
/// of each item, group by group.
fn by_claim<K: Folded>(items: Vec<K::Item>) -> (Vec<usize>, Vec<Vec<K::Item>>) {
    let mut groups: Vec<Vec<(usize, K::Item)>> = Vec::with_capacity(items.len());
    let mut known = HashMap::new();
    for (position, item) in items.into_iter().enumerate() {
        let next = groups.len();
        let group = K::claim(&item).map_or(next, |claim| *known.entry(claim).or_insert(next));
        match groups.get_mut(group) {
            Some(group) => group.push((position, item)),
            None => groups.push(vec![(position, item)]),
        }
    }
    let positions = groups.iter().flatten().map(|(position, _)| *position);
    let positions = positions.collect();
    let items = |group: Vec<(usize, K::Item)>| group.into_iter().map(|(_, item)| item).collect();
    (positions, groups.into_iter().map(items).collect())
}

/// The reason why an entry is not tried any more.
enum Ended {
    /// It failed as often as it may, and may itself be the cause.
    Hopeless(Error),
    /// The patience is over, or no attempt is possible.
    Impatient(Error),
}

/// The instances that entries of one kind concern.
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

/// The instances whose entries have failed alone, and until when they are suspected.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// The number of suspects, so that the common case of none needs no lookup.
    count: AtomicUsize,
    until: Mutex<Remembered>,
}

/// The end of each suspicion, by kind of entry and instance.
type Remembered = HashMap<(Option<TypeId>, Target), Instant>;

impl Suspects {
    /// `true` if one of them is suspected.
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
