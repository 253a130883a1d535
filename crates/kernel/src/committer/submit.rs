//! The way in for callers: what they ask for at the same time is folded into one transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_core::model::{ContractId, Delivery, Target};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::batch::{Entry, Landing, land};
use super::intake::{Failed, Intake, Waiter, gather, separated};
use super::{Committer, Fault};
use crate::{Answer, Error, Op, Result, judge};

/// A kind of entry: many of its items are one operation.
pub trait Folded: Send + Sync + 'static {
    /// What is asked for.
    type Item: Send + Sync;
    /// What became of it.
    type Each: Send;
    /// Whether an item that was done is answered in the same way when it is asked for again: then one whose answer got
    /// lost is.
    const REPEATABLE: bool;

    /// The operation for all of these.
    fn op(&self, items: Vec<Self::Item>) -> Op;
    /// The items of such an operation.
    fn items(op: &Op) -> &[Self::Item];
    /// The item once more, for a transaction that is tried again.
    fn again(item: &Self::Item) -> Self::Item;
    /// What became of each, in order; nothing when it answers something else.
    fn answers(answer: Answer) -> Option<Vec<Self::Each>>;
    /// The instance that it is about.
    fn subject(item: &Self::Item) -> Option<Target>;

    /// Whether items may be left [unjudged](Self::unjudged).
    const IS_JUDGED: bool = false;
    /// The message of an item that could not be judged inside the transaction, and the contract it is to be judged by.
    fn unjudged<'i>(_: &'i Self::Item, _: &Self::Each) -> Option<(ContractId, &'i Delivery)> {
        None
    }

    /// What an item is answered that cannot be stored; nothing when that is an error for all that its caller asks for.
    fn refused(_: &Error) -> Option<Self::Each> {
        None
    }
}

/// What one caller asks for.
pub type Request<K> = Entry<K, Caller<K>>;

/// A caller that waits for answers.
#[derive(Debug)]
pub struct Caller<K: Folded> {
    /// Until when it waits for a database that is away.
    until: Instant,
    /// Whether what it asks for may have been committed.
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
    /// Answers. One that has stopped waiting is not told; what was done is done all the same.
    pub fn answer(self, answer: Result<Vec<K::Each>>) {
        let answer = answer.map_err(|error| match self.doubted {
            true => error.in_doubt(),
            false => error,
        });
        let _ = self.reply.send(answer);
    }
}

/// The most items folded into one transaction; a request that is larger goes alone.
const BATCH: usize = 500;
/// What a patience that no clock can count comes to.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The moment at which a patience that begins now is over.
pub(super) fn patient_until(patience: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(patience).unwrap_or(now + FOREVER)
}

/// A hand-over to the task that commits, or to an engine that does it better.
pub struct Submit<K: Folded> {
    requests: mpsc::UnboundedSender<Handed<K>>,
    patience: Duration,
    engines: Arc<Mutex<Vec<mpsc::UnboundedSender<Request<K>>>>>,
}

/// How a request comes to the task.
enum Handed<K: Folded> {
    /// To share a transaction.
    Together(Request<K>),
    /// To go alone: a batch that it was in has failed.
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
    /// Begins to commit. Requests wait for a database that is away for as long as `patience`.
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
    /// Asks for all of these; durable when the answer comes.
    pub async fn ask(&self, items: Vec<K::Item>) -> Result<Vec<K::Each>> {
        if !K::IS_JUDGED {
            return self.submit(items).await;
        }
        let mut answers = self.submit(items.iter().map(K::again).collect()).await?;
        judge::settle::<K, _>(&items, &mut answers, |left| self.submit(left)).await?;
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

    /// Asks for one.
    pub async fn ask_one(&self, item: K::Item) -> Result<K::Each> {
        let answers = self.ask(vec![item]).await?;
        answers.into_iter().next().ok_or(Error::Closed)
    }

    /// Has an engine of this process do what is asked from now on: it can claim in the same transaction what was woken.
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

    /// Has the task commit it, and not an engine.
    pub fn fold(&self, request: Request<K>) {
        // A caller is told that the store was closed when its request is dropped.
        let _ = self.send(Handed::Together(request));
    }

    /// Has the task try it alone.
    pub fn separate(&self, request: Request<K>) {
        let _ = self.send(Handed::Alone(request));
    }

    /// Sees to the requests of a batch of an engine's that failed: the task separates them, or waits for the database.
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

/// Commits what is asked for, until nobody is left who could ask. What comes while a transaction is under way goes into
/// the next one; a second one is opened beside it only when a full batch waits: a smaller one would just be split.
async fn serve<K: Folded + Default>(
    committer: Committer,
    mut requests: mpsc::UnboundedReceiver<Handed<K>>,
) {
    let kind = &K::default();
    let committer = &committer;
    let mut intake: Intake<K, Caller<K>> = Intake::new(BATCH);
    let mut under_way = FuturesUnordered::new();
    let mut alone = FuturesUnordered::new();
    let mut separate: Vec<Request<K>> = Vec::new();
    let mut open = true;
    while open || !intake.is_empty() || !under_way.is_empty() || !alone.is_empty() {
        for (request, error) in intake.spent(!under_way.is_empty()) {
            request.waiter.answer(Err(error));
        }
        let writers = committer.store.writers().max(1);
        if under_way.is_empty() || (under_way.len() < writers && intake.is_full()) {
            let taken = intake.take(committer);
            separate.extend(taken.alone);
            if !taken.together.is_empty() {
                under_way.push(land(&committer.store, kind, taken.together, Vec::new()));
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
            Some(landing) = under_way.next(), if !under_way.is_empty() => match landing {
                Landing::Done(answers, _) => {
                    intake.landed();
                    for (caller, each) in answers {
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
            },
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
