//! Folds the outcomes and heartbeats that come at the same time into one transaction.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use abide::Store;
use abide_kernel::model::{Claim, Commit, Committed, Heartbeat};
use abide_kernel::{Answer, Error, Op, Result};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::text::copy;

/// The most entries folded into one transaction; a request that is larger goes alone.
const BATCH: usize = 500;
/// How long to wait before a database that cannot be reached is tried again.
const BACKOFF: Duration = Duration::from_millis(50);
/// How long a request waits for a database that is away.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a request asks for.
#[derive(Debug)]
enum Work {
    /// Outcomes to commit.
    Commit(Vec<Commit>),
    /// Claims that are still held, and for how long they are to be believed.
    Extend(Duration, Vec<Claim>),
}

impl Work {
    fn len(&self) -> usize {
        match self {
            Self::Commit(commits) => commits.len(),
            Self::Extend(_, claims) => claims.len(),
        }
    }
}

/// What became of it, in order.
enum Became {
    Committed(Vec<Committed>),
    Extended(Vec<Heartbeat>),
}

struct Ask {
    work: Work,
    until: Instant,
    reply: oneshot::Sender<Result<Became>>,
}

/// Where outcomes and heartbeats are handed in. Cheap to clone.
#[derive(Clone)]
pub struct Fold(mpsc::UnboundedSender<Ask>);

impl Fold {
    /// Begins to fold.
    pub fn begin(store: Arc<dyn Store>) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        tokio::spawn(fold(store, asked));
        Self(asks)
    }

    /// Commits outcomes; each has its own answer.
    pub async fn commit(&self, commits: Vec<Commit>) -> Result<Vec<Committed>> {
        match self.ask(Work::Commit(commits)).await? {
            Became::Committed(each) => Ok(each),
            Became::Extended(_) => Err(other()),
        }
    }

    /// Extends claims; each has its own answer.
    pub async fn extend(&self, lease: Duration, claims: Vec<Claim>) -> Result<Vec<Heartbeat>> {
        match self.ask(Work::Extend(lease, claims)).await? {
            Became::Extended(each) => Ok(each),
            Became::Committed(_) => Err(other()),
        }
    }

    async fn ask(&self, work: Work) -> Result<Became> {
        let (reply, answer) = oneshot::channel();
        let until = Instant::now() + PATIENCE;
        self.0
            .send(Ask { work, until, reply })
            .map_err(|_| Error::Closed)?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

fn other() -> Error {
    Error::Broken("a worker's request was answered with something else".into())
}

/// Folds what comes while a transaction is under way into the next one. A second one is opened beside the first only when
/// a full batch waits: a smaller one would just be split.
async fn fold(store: Arc<dyn Store>, mut asks: mpsc::UnboundedReceiver<Ask>) {
    let mut waiting: VecDeque<Ask> = VecDeque::new();
    let mut under_way = FuturesUnordered::new();
    let mut open = true;
    while open || !waiting.is_empty() || !under_way.is_empty() {
        let size: usize = waiting.iter().map(|ask| ask.work.len()).sum();
        let worth_it = under_way.is_empty() || size >= BATCH;
        if !waiting.is_empty() && worth_it && under_way.len() < store.writers() {
            under_way.push(send(&store, next_batch(&mut waiting)));
            continue;
        }
        tokio::select! {
            ask = asks.recv(), if open => match ask {
                Some(ask) => {
                    waiting.push_back(ask);
                    gather(&mut asks, &mut waiting).await;
                }
                None => open = false,
            },
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
        }
    }
}

/// Takes what has come. Whoever is about to ask is let ask; nobody waits for a clock.
async fn gather(asks: &mut mpsc::UnboundedReceiver<Ask>, waiting: &mut VecDeque<Ask>) {
    let mut before = 0;
    while waiting.len() > before && waiting.len() < BATCH {
        before = waiting.len();
        tokio::task::yield_now().await;
        while let Ok(ask) = asks.try_recv() {
            waiting.push_back(ask);
        }
    }
}

/// The requests of the next transaction: as many as fit, and one at least.
fn next_batch(waiting: &mut VecDeque<Ask>) -> Vec<Ask> {
    let mut batch = Vec::new();
    let mut size = 0;
    while let Some(ask) = waiting.front()
        && (batch.is_empty() || size + ask.work.len() <= BATCH)
    {
        size += ask.work.len();
        batch.extend(waiting.pop_front());
    }
    batch
}

/// Runs a batch, again and again while it may succeed; whose patience is spent leaves it. When the database refuses it as a
/// whole, its members go one by one. An answer that got lost is asked for again: what was committed answers as before.
async fn send(store: &Arc<dyn Store>, asks: Vec<Ask>) {
    let mut batch = Batch::of(asks);
    loop {
        let error = match batch.run(store).await {
            Ok(answers) => return batch.answer(answers),
            Err(error) => error,
        };
        if error.is_passing() || matches!(error, Error::Unknown(_)) {
            let now = Instant::now();
            if batch.members.iter().any(|member| member.until <= now) {
                let (spent, patient): (Vec<Ask>, Vec<Ask>) =
                    batch.apart().into_iter().partition(|ask| ask.until <= now);
                spent.into_iter().for_each(|ask| fail(ask, &error));
                batch = Batch::of(patient);
            }
            if batch.members.is_empty() {
                return;
            }
            tokio::time::sleep(BACKOFF).await;
        } else if batch.members.len() == 1 {
            return batch.apart().into_iter().for_each(|ask| fail(ask, &error));
        } else {
            for one in batch.apart() {
                Box::pin(send(store, vec![one])).await;
            }
            return;
        }
    }
}

fn fail(ask: Ask, error: &Error) {
    let error = match error {
        Error::Refused(refusal) => Error::Refused(refusal.clone()),
        Error::Conflict(text) => Error::Conflict(text.clone()),
        Error::Unavailable(text) => Error::Unavailable(text.clone()),
        Error::Unknown(text) => Error::Unknown(text.clone()),
        Error::Closed => Error::Closed,
        other => Error::Broken(other.to_string()),
    };
    // Who has stopped waiting is not told.
    let _ = ask.reply.send(Err(error));
}

/// Requests that share a transaction: one operation for all outcomes, and one for the heartbeats of each lease, so that
/// rows are locked together and by id.
struct Batch {
    ops: Arc<[Op]>,
    members: Vec<Member>,
}

/// One request of a batch: which of the operations it is in, and where.
struct Member {
    op: usize,
    place: Range<usize>,
    until: Instant,
    reply: oneshot::Sender<Result<Became>>,
}

impl Batch {
    fn of(asks: Vec<Ask>) -> Self {
        let mut ops: Vec<Op> = Vec::new();
        let mut of_lease: BTreeMap<Option<Duration>, usize> = BTreeMap::new();
        let mut members = Vec::with_capacity(asks.len());
        for Ask { work, until, reply } in asks {
            let kind = match &work {
                Work::Commit(_) => None,
                Work::Extend(lease, _) => Some(*lease),
            };
            let op = *of_lease.entry(kind).or_insert_with(|| {
                ops.push(match kind {
                    None => Op::Commit {
                        commits: Vec::new(),
                        serves: Vec::new(),
                    },
                    Some(lease) => Op::Extend {
                        claims: Vec::new(),
                        lease,
                    },
                });
                ops.len() - 1
            });
            let added = work.len();
            let end = match (ops.get_mut(op), work) {
                (Some(Op::Commit { commits, .. }), Work::Commit(more)) => {
                    commits.extend(more);
                    commits.len()
                }
                (Some(Op::Extend { claims, .. }), Work::Extend(_, more)) => {
                    claims.extend(more);
                    claims.len()
                }
                // Each kind has its own operation.
                _ => continue,
            };
            members.push(Member {
                op,
                place: end - added..end,
                until,
                reply,
            });
        }
        Self {
            ops: ops.into(),
            members,
        }
    }

    async fn run(&self, store: &Arc<dyn Store>) -> Result<Vec<Answer>> {
        store.run(self.ops.clone()).await
    }

    /// The requests it was made of.
    fn apart(self) -> Vec<Ask> {
        let ops = self.ops;
        let ask = |member: Member| {
            let work = match ops.get(member.op)? {
                Op::Commit { commits, .. } => {
                    Work::Commit(commits.get(member.place)?.iter().map(again).collect())
                }
                Op::Extend { claims, lease } => {
                    Work::Extend(*lease, claims.get(member.place)?.iter().map(copy).collect())
                }
                _ => return None,
            };
            Some(Ask {
                work,
                until: member.until,
                reply: member.reply,
            })
        };
        self.members.into_iter().filter_map(ask).collect()
    }

    /// Gives each request its own of the answers. Who has stopped waiting is not told; what was done is done all the same.
    fn answer(self, answers: Vec<Answer>) {
        let mut each: Vec<VecDeque<Each>> = answers.into_iter().map(Each::of).collect();
        for member in self.members {
            let own = each
                .get_mut(member.op)
                .map(|op| op.drain(..member.place.len().min(op.len())));
            let mut committed = Vec::new();
            let mut extended = Vec::new();
            for one in own.into_iter().flatten() {
                match one {
                    Each::Committed(one) => committed.push(one),
                    Each::Extended(one) => extended.push(one),
                }
            }
            let became = match self.ops.get(member.op) {
                Some(Op::Commit { .. }) if committed.len() == member.place.len() => {
                    Ok(Became::Committed(committed))
                }
                Some(Op::Extend { .. }) if extended.len() == member.place.len() => {
                    Ok(Became::Extended(extended))
                }
                _ => Err(other()),
            };
            let _ = member.reply.send(became);
        }
    }
}

/// The answer to one entry.
enum Each {
    Committed(Committed),
    Extended(Heartbeat),
}

impl Each {
    fn of(answer: Answer) -> VecDeque<Self> {
        match answer {
            Answer::Committed(each) => each.into_iter().map(Self::Committed).collect(),
            Answer::Extended(each) => each.into_iter().map(Self::Extended).collect(),
            _ => VecDeque::new(),
        }
    }
}

fn again(commit: &Commit) -> Commit {
    Commit {
        claim: copy(&commit.claim),
        outcome: commit.outcome.clone(),
        keep: commit.keep,
        took: commit.took,
        error: commit.error.clone(),
    }
}
