//! Folds single requests that come at the same time into one transaction.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_core::model::{Delivered, Delivery, Publish, Published, Refusal, Start, Started};
use abide_kernel::{Answer, Error, Op, Result, Store};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// A kind of request that can be folded: many of its items are one operation.
pub(crate) trait Folded: Send + Sync + 'static {
    /// What is asked for.
    type Item: Clone + Send + Sync;
    /// What became of it.
    type Each: Send;

    fn op(items: Vec<Self::Item>) -> Op;
    fn items(op: &Op) -> &[Self::Item];
    fn answers(answer: Answer) -> Option<Vec<Self::Each>>;
}

/// Starts of instances.
pub(crate) struct Starts;

impl Folded for Starts {
    type Item = Start;
    type Each = Result<Started, Refusal>;

    fn op(items: Vec<Start>) -> Op {
        Op::Start(items)
    }

    fn items(op: &Op) -> &[Start] {
        match op {
            Op::Start(items) => items,
            _ => &[],
        }
    }

    fn answers(answer: Answer) -> Option<Vec<Self::Each>> {
        match answer {
            Answer::Started(each) => Some(each),
            _ => None,
        }
    }
}

/// Signals and updates.
pub(crate) struct Mail;

impl Folded for Mail {
    type Item = Delivery;
    type Each = Result<Delivered, Refusal>;

    fn op(items: Vec<Delivery>) -> Op {
        Op::Deliver(items)
    }

    fn items(op: &Op) -> &[Delivery] {
        match op {
            Op::Deliver(items) => items,
            _ => &[],
        }
    }

    fn answers(answer: Answer) -> Option<Vec<Self::Each>> {
        match answer {
            Answer::Delivered(each) => Some(each),
            _ => None,
        }
    }
}

/// Events.
pub(crate) struct Events;

impl Folded for Events {
    type Item = Publish;
    type Each = Result<Published, Refusal>;

    fn op(items: Vec<Publish>) -> Op {
        Op::Publish(items)
    }

    fn items(op: &Op) -> &[Publish] {
        match op {
            Op::Publish(items) => items,
            _ => &[],
        }
    }

    fn answers(answer: Answer) -> Option<Vec<Self::Each>> {
        match answer {
            Answer::Published(each) => Some(each),
            _ => None,
        }
    }
}

/// What one caller asks for.
pub(crate) struct Request<K: Folded> {
    pub items: Vec<K::Item>,
    /// Until when it waits for a database that is away.
    pub until: Instant,
    pub reply: oneshot::Sender<Result<Vec<K::Each>>>,
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
pub(crate) struct Submit<K: Folded> {
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
            under_way.push(send(&store, next_batch(&mut waiting)));
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
fn next_batch<K: Folded>(waiting: &mut VecDeque<Request<K>>) -> Vec<Request<K>> {
    let mut batch = Vec::new();
    let mut size = 0;
    while let Some(request) = waiting.front()
        && (batch.is_empty() || size + request.items.len() <= BATCH)
    {
        size += request.items.len();
        batch.extend(waiting.pop_front());
    }
    batch
}

/// Runs a batch, again and again while nothing was written; whose patience is spent leaves it. When the database refuses
/// it as a whole, its members go one by one.
async fn send<K: Folded>(store: &Arc<dyn Store>, batch: Vec<Request<K>>) {
    let mut batch = Batch::of(batch);
    loop {
        let error = match batch.run(store).await {
            Ok(answers) => return batch.answer(answers),
            Err(error) => error,
        };
        if error.is_passing() {
            let now = Instant::now();
            if batch.members.iter().any(|member| member.until <= now) {
                let (spent, patient) = batch.apart().partition(|one| one.until <= now);
                Batch::of(spent).fail(&error);
                batch = Batch::of(patient);
            }
            if batch.members.is_empty() {
                return;
            }
            tokio::time::sleep(BACKOFF).await;
        } else if batch.members.len() == 1 || matches!(error, Error::Unknown(_)) {
            return batch.fail(&error);
        } else {
            for one in batch.apart() {
                Box::pin(send(store, vec![one])).await;
            }
            return;
        }
    }
}

/// Requests that share a transaction.
pub(crate) struct Batch<K: Folded> {
    ops: Arc<[Op]>,
    members: Vec<Member<K>>,
}

/// One request of a batch.
struct Member<K: Folded> {
    items: usize,
    until: Instant,
    reply: oneshot::Sender<Result<Vec<K::Each>>>,
}

impl<K: Folded> Batch<K> {
    pub fn of(requests: Vec<Request<K>>) -> Self {
        Self::with(requests, Vec::new())
    }

    /// The batch, and other operations that are to follow in the same transaction.
    pub fn with(requests: Vec<Request<K>>, more: Vec<Op>) -> Self {
        let mut items = Vec::with_capacity(requests.iter().map(|one| one.items.len()).sum());
        let members = requests.into_iter().map(|request| {
            let member = Member {
                items: request.items.len(),
                until: request.until,
                reply: request.reply,
            };
            items.extend(request.items);
            member
        });
        let members = members.collect();
        let ops = std::iter::once(K::op(items)).chain(more).collect();
        Self { ops, members }
    }

    /// The operations; the batch itself is the first.
    pub fn ops(&self) -> Arc<[Op]> {
        self.ops.clone()
    }

    /// The requests it was made of.
    pub fn apart(self) -> impl Iterator<Item = Request<K>> {
        let items = self.ops.first().map(K::items).unwrap_or_default().to_vec();
        let mut items = items.into_iter();
        self.members.into_iter().map(move |member| Request {
            items: items.by_ref().take(member.items).collect(),
            until: member.until,
            reply: member.reply,
        })
    }

    async fn run(&self, store: &Arc<dyn Store>) -> Result<Vec<K::Each>> {
        let answer = store.run(self.ops.clone()).await?.into_iter().next();
        answer
            .and_then(K::answers)
            .ok_or_else(|| Error::Broken("a request was answered with something else".into()))
    }

    /// Gives each request its own of the answers. Who has stopped waiting is not told; what was done is done all the
    /// same.
    pub fn answer(self, answers: Vec<K::Each>) {
        let mut answers = answers.into_iter();
        for member in self.members {
            let own = answers.by_ref().take(member.items).collect();
            let _ = member.reply.send(Ok(own));
        }
    }

    pub fn fail(self, error: &Error) {
        for member in self.members {
            let _ = member.reply.send(Err(again(error)));
        }
    }
}

/// The same error once more, for another who waits.
fn again(error: &Error) -> Error {
    match error {
        Error::Refused(refusal) => Error::Refused(refusal.clone()),
        Error::Conflict(text) => Error::Conflict(text.clone()),
        Error::Unavailable(text) => Error::Unavailable(text.clone()),
        Error::Unknown(text) => Error::Unknown(text.clone()),
        Error::Closed => Error::Closed,
        Error::Broken(text) => Error::Broken(text.clone()),
        other => Error::Broken(other.to_string()),
    }
}
