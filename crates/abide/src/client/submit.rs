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
    reply: oneshot::Sender<Result<StartAnswers>>,
}

/// The most starts folded into one transaction; a request that is larger goes alone.
const BATCH: usize = 1_000;
/// How long to wait before a database that cannot be reached is tried again.
const BACKOFF: Duration = Duration::from_millis(50);

/// A hand-over to the task that folds.
#[derive(Clone)]
pub(crate) struct Submit(mpsc::UnboundedSender<Request>);

impl Submit {
    /// Begins to fold. Requests wait for a database that is away for as long as `patience`.
    pub fn begin(store: Arc<dyn Store>, patience: Duration) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(fold(store, requests, patience));
        Self(sender)
    }

    /// Starts instances; durable when the answer comes.
    pub async fn start(&self, starts: Vec<Start>) -> Result<StartAnswers> {
        let (reply, answer) = oneshot::channel();
        self.0
            .send(Request { starts, reply })
            .map_err(|_| Error::Closed)?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

async fn fold(
    store: Arc<dyn Store>,
    mut requests: mpsc::UnboundedReceiver<Request>,
    patience: Duration,
) {
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
        send(&store, batch, patience).await;
    }
}

/// Runs a batch; when the database refuses it as a whole, its members one by one.
async fn send(store: &Arc<dyn Store>, batch: Vec<Request>, patience: Duration) {
    let sizes: Vec<usize> = batch.iter().map(|request| request.starts.len()).collect();
    let (starts, replies): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|one| (one.starts, one.reply)).unzip();
    if let [_] = sizes.as_slice() {
        let answer = run(store, starts.into_iter().flatten().collect(), patience).await;
        reply(replies, vec![answer]);
        return;
    }
    let all: Vec<Start> = starts.iter().flatten().cloned().collect();
    match run(store, all, patience).await {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            let split = sizes
                .into_iter()
                .map(|size| Ok(answers.by_ref().take(size).collect()));
            reply(replies, split.collect());
        }
        Err(Error::Unknown(text)) => {
            let answers = sizes.iter().map(|_| Err(Error::Unknown(text.clone())));
            reply(replies, answers.collect());
        }
        Err(Error::Unavailable(text)) => {
            let answers = sizes.iter().map(|_| Err(Error::Unavailable(text.clone())));
            reply(replies, answers.collect());
        }
        Err(_) => {
            let mut answers = Vec::with_capacity(sizes.len());
            for starts in starts {
                answers.push(run(store, starts, patience).await);
            }
            reply(replies, answers);
        }
    }
}

fn reply(replies: Vec<oneshot::Sender<Result<StartAnswers>>>, answers: Vec<Result<StartAnswers>>) {
    for (reply, answer) in replies.into_iter().zip(answers) {
        // Who has stopped waiting is not told; what was started is started all the same.
        let _ = reply.send(answer);
    }
}

/// Runs one transaction, again and again while nothing was written and there is patience left.
async fn run(
    store: &Arc<dyn Store>,
    starts: Vec<Start>,
    patience: Duration,
) -> Result<StartAnswers> {
    let until = Instant::now() + patience;
    let ops: Arc<[Op]> = Arc::from([Op::Start(starts)]);
    loop {
        match store.run(ops.clone()).await {
            Ok(answers) => {
                return match answers.into_iter().next() {
                    Some(Answer::Started(answers)) => Ok(answers),
                    _ => Err(Error::Broken(
                        "a start was answered with something else".into(),
                    )),
                };
            }
            Err(error) if error.is_passing() && Instant::now() < until => {
                tokio::time::sleep(BACKOFF).await
            }
            Err(error) => return Err(error),
        }
    }
}
