//! Folds single requests that come at the same time into one transaction.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{Refusal, Start, Started};
use abide_kernel::{Answer, Error, Op, Result, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// What became of each start of a request.
pub(crate) type StartAnswers = Vec<Result<Started, Refusal>>;

struct Request {
    starts: Vec<Start>,
    /// Until when it waits for a database that is away.
    until: Instant,
    reply: oneshot::Sender<Result<StartAnswers>>,
}

/// The most starts folded into one transaction; a request that is larger goes alone.
const BATCH: usize = 1_000;
/// How long to wait before a database that cannot be reached is tried again.
const BACKOFF: Duration = Duration::from_millis(50);
/// What a patience that no clock can count comes to.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A hand-over to the task that folds.
#[derive(Clone)]
pub(crate) struct Submit {
    requests: mpsc::UnboundedSender<Request>,
    patience: Duration,
}

impl Submit {
    /// Begins to fold. Requests wait for a database that is away for as long as `patience`.
    pub fn begin(store: Arc<dyn Store>, patience: Duration) -> Self {
        let (requests, received) = mpsc::unbounded_channel();
        tokio::spawn(fold(store, received));
        Self { requests, patience }
    }

    /// Starts instances; durable when the answer comes.
    pub async fn start(&self, starts: Vec<Start>) -> Result<StartAnswers> {
        let (reply, answer) = oneshot::channel();
        let now = Instant::now();
        let request = Request {
            starts,
            until: now.checked_add(self.patience).unwrap_or(now + FOREVER),
            reply,
        };
        self.requests.send(request).map_err(|_| Error::Closed)?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

async fn fold(store: Arc<dyn Store>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut left_over = None;
    loop {
        let first = match left_over.take() {
            Some(request) => request,
            None => match requests.recv().await {
                Some(request) => request,
                None => return,
            },
        };
        let mut size = first.starts.len();
        let mut batch = vec![first];
        // Whoever is about to ask is let ask; nobody waits for a clock.
        let mut grown = true;
        while grown && size < BATCH && left_over.is_none() {
            grown = false;
            tokio::task::yield_now().await;
            while size < BATCH
                && let Ok(request) = requests.try_recv()
            {
                if size + request.starts.len() > BATCH {
                    left_over = Some(request);
                    break;
                }
                size += request.starts.len();
                batch.push(request);
                grown = true;
            }
        }
        send(&store, batch).await;
    }
}

/// Runs a batch, again and again while nothing was written; whose patience is spent leaves it. When the database refuses
/// it as a whole, its members go one by one.
async fn send(store: &Arc<dyn Store>, batch: Vec<Request>) {
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
struct Batch {
    ops: Arc<[Op]>,
    members: Vec<Member>,
}

/// One request of a batch.
struct Member {
    starts: usize,
    until: Instant,
    reply: oneshot::Sender<Result<StartAnswers>>,
}

impl Batch {
    fn of(requests: Vec<Request>) -> Self {
        let mut starts = Vec::with_capacity(requests.iter().map(|one| one.starts.len()).sum());
        let members = requests.into_iter().map(|request| {
            let member = Member {
                starts: request.starts.len(),
                until: request.until,
                reply: request.reply,
            };
            starts.extend(request.starts);
            member
        });
        let members = members.collect();
        Self {
            ops: Arc::from([Op::Start(starts)]),
            members,
        }
    }

    /// The requests it was made of.
    fn apart(self) -> impl Iterator<Item = Request> {
        let mut starts = match self.ops.first() {
            Some(Op::Start(starts)) => starts.clone(),
            _ => Vec::new(),
        }
        .into_iter();
        self.members.into_iter().map(move |member| Request {
            starts: starts.by_ref().take(member.starts).collect(),
            until: member.until,
            reply: member.reply,
        })
    }

    async fn run(&self, store: &Arc<dyn Store>) -> Result<StartAnswers> {
        match store.run(self.ops.clone()).await?.into_iter().next() {
            Some(Answer::Started(answers)) => Ok(answers),
            _ => Err(Error::Broken(
                "a start was answered with something else".into(),
            )),
        }
    }

    /// Gives each request its own of the answers. Who has stopped waiting is not told; what was started is started all
    /// the same.
    fn answer(self, answers: StartAnswers) {
        let mut answers = answers.into_iter();
        for member in self.members {
            let own = answers.by_ref().take(member.starts).collect();
            let _ = member.reply.send(Ok(own));
        }
    }

    fn fail(self, error: &Error) {
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
