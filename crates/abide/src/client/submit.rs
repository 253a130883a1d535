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

/// What a patience that no clock can count comes to.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

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
async fn send(store: &Arc<dyn Store>, mut batch: Vec<Request>) {
    let mut ops = folded(&mut batch);
    loop {
        match run(store, ops.clone()).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for request in batch {
                    let own = answers.by_ref().take(request.starts.len()).collect();
                    request.answer(Ok(own));
                }
                return;
            }
            Err(error) if error.is_passing() => {
                let now = Instant::now();
                let spent: Vec<Request> = batch.extract_if(.., |one| one.until <= now).collect();
                if batch.is_empty() || !spent.is_empty() {
                    spent.into_iter().for_each(|one| one.fail(&error));
                    ops = folded(&mut batch);
                }
                if batch.is_empty() {
                    return;
                }
                tokio::time::sleep(BACKOFF).await;
            }
            Err(error) if batch.len() == 1 || matches!(error, Error::Unknown(_)) => {
                batch.into_iter().for_each(|one| one.fail(&error));
                return;
            }
            Err(_) => {
                for one in batch {
                    Box::pin(send(store, vec![one])).await;
                }
                return;
            }
        }
    }
}
