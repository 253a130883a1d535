//! The entry point for callers: requests that arrive at the same time are folded into one transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_core::model::{ContractId, Epoch, InstanceId, NewCommand, Target};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::batch::{Entry, Landing, land};
use super::intake::{Failed, Intake, Waiter, gather, separated};
use super::{Committer, Fault};
use crate::{Answer, Error, Op, Result, judge};

/// A kind of entry whose items can be folded into one operation.
pub trait Folded: Send + Sync + 'static {
    /// An item of a request.
    type Item: Send + Sync;
    /// The answer to an item.
    type Each: Send;
    /// `true` if a repeated item that was already done gets the same answer. Then an item whose answer was lost is sent
    /// again.
    const REPEATABLE: bool;

    /// Returns one operation for all these items.
    fn op(&self, items: Vec<Self::Item>) -> Op;
    /// Returns the items of such an operation.
    fn items(op: &Op) -> &[Self::Item];
    /// Returns a copy of the item, for a transaction that is retried.
    fn again(item: &Self::Item) -> Self::Item;
    /// Returns the answer to each item, in order; `None` if the operation was answered with something else.
    fn answers(answer: Answer) -> Option<Vec<Self::Each>>;
    /// Returns the instance that the item concerns.
    fn subject(item: &Self::Item) -> Option<Target>;

    /// Returns the claim under which the item is committed. Items of one caller under one claim share a transaction;
    /// items of different callers do not, because each caller's items are judged as a whole (rule 1.7).
    fn claim(_: &Self::Item) -> Option<(InstanceId, Epoch)> {
        None
    }

    /// `true` if items may be left [unjudged](Self::unjudged).
    const IS_JUDGED: bool = false;
    /// Returns the command of an item that could not be judged inside the transaction, and the contract to judge it by.
    fn unjudged<'i>(_: &'i Self::Item, _: &Self::Each) -> Option<(ContractId, &'i NewCommand)> {
        None
    }

    /// Returns the answer for an item that cannot be stored; `None` if that is an error for the caller's whole request.
    fn refused(_: &Error) -> Option<Self::Each> {
        None
    }
}

/// The request of one caller.
pub type Request<K> = Entry<K, Caller<K>>;

/// A caller that waits for answers.
#[derive(Debug)]
pub struct Caller<K: Folded> {
    /// Until when it waits for a database that is unavailable.
    until: Instant,
    /// `true` if its request may have been committed.
    doubted: bool,
    reply: oneshot::Sender<Result<Vec<K::Each>>>,
}

impl<K: Folded> Waiter for Caller<K> {
    fn until(&self) -> Option<Instant> {
        Some(self.until)
    }

    fn doubt(&mut self) {
        self.doubted = true;
    }
}

impl<K: Folded> Caller<K> {
    /// Sends the answer. A caller that has stopped waiting does not get it; the request stays committed.
    pub fn answer(self, answer: Result<Vec<K::Each>>) {
        let answer = answer.map_err(|error| match self.doubted {
            true => error.in_doubt(),
            false => error,
        });
        let _ = self.reply.send(answer);
    }
}

/// The maximum number of items in one transaction. A larger request runs alone.
const BATCH: usize = 500;
/// The patience used when the given one is too long for a clock.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Returns the moment at which a patience that begins now ends.
pub(super) fn patient_until(patience: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(patience).unwrap_or(now + FOREVER)
}

/// A handle to the task that commits requests, or to an engine that can do it better.
pub struct Submit<K: Folded> {
    requests: mpsc::UnboundedSender<Handed<K>>,
    patience: Duration,
    engines: Arc<Mutex<Vec<mpsc::UnboundedSender<Request<K>>>>>,
}

/// A request on its way to the task.
enum Handed<K: Folded> {
    /// It may share a transaction.
    Together(Request<K>),
    /// It runs alone, because a batch with it has failed.
    Alone(Request<K>),
}

impl<K: Folded> Clone for Submit<K> {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            patience: self.patience,
            engines: self.engines.clone(),
        }
    }
}

impl<K: Folded> std::fmt::Debug for Submit<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submit").finish_non_exhaustive()
    }
}

impl<K: Folded + Default> Submit<K> {
    /// Starts the task that commits requests. A request waits for an unavailable database as long as `patience`.
    pub fn begin(committer: &Committer, patience: Duration) -> Self {
        let (requests, received) = mpsc::unbounded_channel();
        tokio::spawn(serve::<K>(committer.clone(), received));
        Self {
            requests,
            patience,
            engines: Arc::default(),
        }
    }
}

impl<K: Folded> Submit<K> {
    /// Submits these items. They are durable when the answers arrive.
    pub async fn ask(&self, items: Vec<K::Item>) -> Result<Vec<K::Each>> {
        if !K::IS_JUDGED {
            return self.submit(items).await;
        }
        let mut answers = self.submit(items.iter().map(K::again).collect()).await?;
        let mut each = items.iter().zip(&answers);
        if each.any(|(item, answer)| K::unjudged(item, answer).is_some()) {
            // In a box: hardly any request comes here, and each would be larger for it.
            let send = |left| self.submit(left);
            Box::pin(judge::settle::<K, _>(&items, &mut answers, send)).await?;
        }
        Ok(answers)
    }

    async fn submit(&self, items: Vec<K::Item>) -> Result<Vec<K::Each>> {
        let (reply, answer) = oneshot::channel();
        let until = patient_until(self.patience);
        let waiter = Caller {
            until,
            doubted: false,
            reply,
        };
        self.hand_over(Entry { items, waiter })?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Submits one item.
    pub async fn ask_one(&self, item: K::Item) -> Result<K::Each> {
        let answers = self.ask(vec![item]).await?;
        answers.into_iter().next().ok_or(Error::Closed)
    }

    /// Sends all further requests to an engine of this process, which can claim the woken instances in the same
    /// transaction.
    pub fn engage(&self) -> mpsc::UnboundedReceiver<Request<K>> {
        let (engine, requests) = mpsc::unbounded_channel();
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.push(engine);
        requests
    }

    fn hand_over(&self, mut request: Request<K>) -> Result<()> {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(engine) = engines.first() {
            match engine.send(request) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(back)) => {
                    request = back;
                    engines.remove(0);
                }
            }
        }
        drop(engines);
        self.send(Handed::Together(request))
    }

    /// Sends a request to the task, not to an engine.
    pub fn fold(&self, request: Request<K>) {
        // Dropping the request tells its caller that the store was closed.
        let _ = self.send(Handed::Together(request));
    }

    /// Makes the task run a request alone.
    pub fn separate(&self, request: Request<K>) {
        let _ = self.send(Handed::Alone(request));
    }

    /// Handles the requests of an engine's failed batch: the task separates them, or waits for the database.
    pub fn failed(&self, requests: Vec<Request<K>>, error: &Error) {
        let fault = error.fault();
        if fault == Fault::Entry {
            separated(requests.len(), error);
        }
        for mut request in requests {
            if fault == Fault::Unknown {
                request.waiter.doubt();
            }
            match fault {
                Fault::Entry => self.separate(request),
                Fault::Store => self.fold(request),
                Fault::Unknown if K::REPEATABLE => self.separate(request),
                Fault::Unknown | Fault::Closed => request.waiter.answer(Err(error.again())),
            }
        }
    }

    fn send(&self, request: Handed<K>) -> Result<()> {
        self.requests.send(request).map_err(|_| Error::Closed)
    }
}

/// Commits requests until all senders are gone. Requests that arrive during a transaction go into the next one. That
/// one runs in parallel if at least as many items wait as are under way: with fewer, a batch would only be split.
async fn serve<K: Folded + Default>(
    committer: Committer,
    mut requests: mpsc::UnboundedReceiver<Handed<K>>,
) {
    let kind = &K::default();
    let committer = &committer;
    let mut intake: Intake<K, Caller<K>> = Intake::new(BATCH);
    let mut under_way = FuturesUnordered::new();
    let mut items_under_way = 0;
    let mut alone = FuturesUnordered::new();
    let mut separate: Vec<Request<K>> = Vec::new();
    let mut open = true;
    while open || !intake.is_empty() || !under_way.is_empty() || !alone.is_empty() {
        for (request, error) in intake.spent(!under_way.is_empty()) {
            request.waiter.answer(Err(error));
        }
        let writers = committer.store.writers().max(1);
        let is_worth_it = under_way.len() < writers && intake.items() >= items_under_way;
        if under_way.is_empty() || is_worth_it {
            let taken = intake.take(committer);
            separate.extend(taken.alone);
            if !taken.together.is_empty() {
                let items: usize = taken.together.iter().map(|one| one.items.len()).sum();
                let landing = land(&committer.store, kind, taken.together, Vec::new());
                items_under_way += items;
                under_way.push(async move { (items, landing.await) });
            }
        }
        for request in separate.drain(..) {
            alone.push(committer.alone(kind, request));
        }
        let wakes_at = intake.wakes_at();
        tokio::select! {
            request = requests.recv(), if open => match request {
                Some(request) => {
                    sort(request, &mut intake, &mut separate);
                    gather(BATCH, || {
                        while let Ok(request) = requests.try_recv() {
                            sort(request, &mut intake, &mut separate);
                        }
                        intake.len()
                    })
                    .await;
                }
                None => open = false,
            },
            Some((items, landing)) = under_way.next(), if !under_way.is_empty() => {
                items_under_way -= items;
                match landing {
                    Landing::Done(answers, _) => {
                        intake.landed();
                        for (caller, each) in answers.by_entry() {
                            caller.answer(Ok(each));
                        }
                    }
                    Landing::Failed(requests, error) => match intake.failed(requests, error) {
                        Failed::Kept => {}
                        Failed::Alone(requests) => separate = requests,
                        Failed::Over(requests, error) => {
                            for request in requests {
                                request.waiter.answer(Err(error.again()));
                            }
                        }
                    },
                }
            }
            Some((caller, answer)) = alone.next(), if !alone.is_empty() => caller.answer(answer),
            () = tokio::time::sleep_until(wakes_at.unwrap_or_else(Instant::now)), if wakes_at.is_some() => {}
        }
    }
}

fn sort<K: Folded>(
    handed: Handed<K>,
    intake: &mut Intake<K, Caller<K>>,
    separate: &mut Vec<Request<K>>,
) {
    match handed {
        Handed::Together(request) => intake.push(request),
        Handed::Alone(request) => separate.push(request),
    }
}
