//! Folds requests that come at the same time into one transaction.
//!
//! [`Submit`] is where they are handed in, one for each kind of request: [`Starts`], [`Mail`], [`Events`], [`Commits`] and
//! [`Extensions`].

mod batch;
mod kinds;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::{Answer, Error, Op, Result, Store};

pub use batch::Batch;
pub use kinds::{Commits, Events, Extensions, Mail, Starts};

/// A kind of request that can be folded: many of its items are one operation.
pub trait Folded: Send + Sync + 'static {
    /// What is asked for.
    type Item: Send + Sync;
    /// What became of it.
    type Each: Send;
    /// Whether an item that was done is answered in the same way when it is asked for again: then one whose answer got
    /// lost is.
    const REPEATABLE: bool;

    /// The operation for all of these.
    fn op(items: Vec<Self::Item>) -> Op;
    /// The items of such an operation.
    fn items(op: &Op) -> &[Self::Item];
    /// The item once more, for a transaction that is tried again.
    fn again(item: &Self::Item) -> Self::Item;
    /// What became of each, in order; nothing when it answers something else.
    fn answers(answer: Answer) -> Option<Vec<Self::Each>>;
}

/// What one caller asks for.
pub struct Request<K: Folded> {
    items: Vec<K::Item>,
    /// Until when it waits for a database that is away.
    until: Instant,
    reply: oneshot::Sender<Result<Vec<K::Each>>>,
}

impl<K: Folded> std::fmt::Debug for Request<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({} items)", self.items.len())
    }
}

/// The most items folded into one transaction; a request that is larger goes alone.
const BATCH: usize = 500;
/// How long to wait before a database that cannot be reached is tried again.
const BACKOFF: Duration = Duration::from_millis(50);
/// What a patience that no clock can count comes to.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A hand-over to the task that folds, or to an engine that does it better.
pub struct Submit<K: Folded> {
    requests: mpsc::UnboundedSender<Request<K>>,
    patience: Duration,
    engines: Arc<Mutex<Vec<mpsc::UnboundedSender<Request<K>>>>>,
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

impl<K: Folded> Submit<K> {
    /// Begins to fold. Requests wait for a database that is away for as long as `patience`.
    pub fn begin(store: Arc<dyn Store>, patience: Duration) -> Self {
        let (requests, received) = mpsc::unbounded_channel();
        tokio::spawn(fold(store, received));
        Self {
            requests,
            patience,
            engines: Arc::default(),
        }
    }

    /// Asks for all of these; durable when the answer comes.
    pub async fn ask(&self, items: Vec<K::Item>) -> Result<Vec<K::Each>> {
        let (reply, answer) = oneshot::channel();
        let now = Instant::now();
        let request = Request {
            items,
            until: now.checked_add(self.patience).unwrap_or(now + FOREVER),
            reply,
        };
        self.hand_over(request)?;
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
        self.fold(request)
    }

    /// Has the folding task do it, which waits for a database that is away.
    pub fn fold(&self, request: Request<K>) -> Result<()> {
        self.requests.send(request).map_err(|_| Error::Closed)
    }
}

/// Folds what comes while a transaction is under way into the next one. A second one is opened beside the first only when
/// a full batch waits: a smaller one would just be split.
async fn fold<K: Folded>(store: Arc<dyn Store>, mut requests: mpsc::UnboundedReceiver<Request<K>>) {
    let mut waiting: VecDeque<Request<K>> = VecDeque::new();
    let mut under_way = FuturesUnordered::new();
    let mut open = true;
    while open || !waiting.is_empty() || !under_way.is_empty() {
        let size: usize = waiting.iter().map(|request| request.items.len()).sum();
        let worth_it = under_way.is_empty() || size >= BATCH;
        if !waiting.is_empty() && worth_it && under_way.len() < store.writers() {
            under_way.push(send(&store, take(&mut waiting, BATCH)));
            continue;
        }
        tokio::select! {
            request = requests.recv(), if open => match request {
                Some(request) => {
                    waiting.push_back(request);
                    gather(&mut requests, &mut waiting).await;
                }
                None => open = false,
            },
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
        }
    }
}

/// Takes what has come. Whoever is about to ask is let ask; nobody waits for a clock.
async fn gather<K: Folded>(
    requests: &mut mpsc::UnboundedReceiver<Request<K>>,
    waiting: &mut VecDeque<Request<K>>,
) {
    let mut before = 0;
    while waiting.len() > before && waiting.len() < BATCH {
        before = waiting.len();
        tokio::task::yield_now().await;
        while let Ok(request) = requests.try_recv() {
            waiting.push_back(request);
        }
    }
}

/// The requests of the next transaction: as many as fit, and one at least.
pub fn take<K: Folded>(waiting: &mut VecDeque<Request<K>>, most: usize) -> Vec<Request<K>> {
    let mut batch = Vec::new();
    let mut size = 0;
    while let Some(request) = waiting.front()
        && (batch.is_empty() || size + request.items.len() <= most)
    {
        size += request.items.len();
        batch.extend(waiting.pop_front());
    }
    batch
}

/// Runs a batch, again and again while nothing was written or nothing can be done twice; whose patience is spent leaves it.
/// When the database refuses it as a whole, its members go one by one.
async fn send<K: Folded>(store: &Arc<dyn Store>, batch: Vec<Request<K>>) {
    let mut batch = Batch::of(batch);
    loop {
        let error = match batch.run(store).await {
            Ok(answers) => return batch.answer(answers),
            Err(error) => error,
        };
        let unknown = matches!(error, Error::Unknown(_));
        if error.is_passing() || (unknown && K::REPEATABLE) {
            let now = Instant::now();
            if batch.is_spent(now) {
                let (spent, patient) = batch.apart().partition(|one| one.until <= now);
                Batch::of(spent).fail(&error);
                batch = Batch::of(patient);
            }
            if batch.len() == 0 {
                return;
            }
            tokio::time::sleep(BACKOFF).await;
        } else if batch.len() == 1 || unknown {
            return batch.fail(&error);
        } else {
            for one in batch.apart() {
                Box::pin(send(store, vec![one])).await;
            }
            return;
        }
    }
}
