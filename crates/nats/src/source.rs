//! A running source: reads messages, publishes them, and acknowledges them after the commit.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use abide::Abide;
use abide::store::Backoff;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{AckKind, Message};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::builder::{Consumer, SourceBuilder};
use crate::message::{NewEvent, Received, TypeOf};
use crate::publish::{Closed, Verdict, publish};
use crate::pull::{BYTES, Pull};

/// Time limit for the server's confirmation of an acknowledgement.
const ANSWER: Duration = Duration::from_secs(5);
/// Delay until a message that could not be written for a reason of its own is delivered again.
const AGAIN: Duration = Duration::from_secs(30);

/// A running source of events. If dropped, it ends at once, as in a crash: nothing is lost.
#[derive(Debug)]
pub struct Source {
    counts: Arc<Counts>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Counters of a source since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that became events.
    pub published: u64,
    /// Messages that had become events before, and changed nothing.
    pub duplicates: u64,
    /// Messages that can never become events, and are not delivered again.
    pub terminated: u64,
    /// Messages that were returned to the server, to be delivered again.
    pub returned: u64,
}

#[derive(Debug, Default)]
struct Counts {
    published: AtomicU64,
    duplicates: AtomicU64,
    terminated: AtomicU64,
    returned: AtomicU64,
}

impl Source {
    /// Creates a source that publishes events to this abide, from the NATS server at a URL (`nats://host:4222`,
    /// `tls://…`; several servers of a cluster are separated by commas).
    pub fn of(abide: Abide, url: &str) -> SourceBuilder {
        SourceBuilder::new(abide, url)
    }

    pub(crate) fn begin(reader: Reader, consumer: PullConsumer) -> Self {
        let counts = Arc::<Counts>::default();
        let stop = CancellationToken::new();
        let task = reader.run(consumer, counts.clone(), stop.clone());
        Self {
            task: tokio::spawn(task),
            counts,
            stop,
        }
    }

    /// Counters since it was started.
    pub fn stats(&self) -> Stats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            published: read(&self.counts.published),
            duplicates: read(&self.counts.duplicates),
            terminated: read(&self.counts.terminated),
            returned: read(&self.counts.returned),
        }
    }

    /// `true` while it reads, or tries to. It ends by itself only if its [`Abide`] was closed.
    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Stops reading, lets the running transaction end, acknowledges what it committed and returns the rest, so that
    /// others can read it at once. This takes about a second, or the patience of an [`Abide`] whose database is
    /// unavailable.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // A panic of the task was reported already.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The reason why reading ended.
enum End {
    /// It was stopped, or abide was closed.
    Stopped,
    /// The connection or the consumer failed.
    Failed(String),
}

/// The task of a source.
pub(crate) struct Reader {
    pub abide: Abide,
    pub client: async_nats::Client,
    pub consumer: Consumer,
    pub type_of: Arc<TypeOf>,
    pub batch: usize,
}

impl Reader {
    /// Reads until it is stopped, and starts again whenever reading fails.
    async fn run(self, first: PullConsumer, counts: Arc<Counts>, stop: CancellationToken) {
        let mut backoff = Backoff::reconnect();
        let mut opened = Some(Ok(first));
        loop {
            let consumer = match opened.take() {
                Some(consumer) => Some(consumer),
                None => stop.run_until_cancelled(self.consumer.open()).await,
            };
            let problem = match consumer {
                None => return,
                Some(Err(error)) => error.to_string(),
                Some(Ok(consumer)) => {
                    let before = counts.total();
                    let end = self.read(consumer, &counts, &stop).await;
                    if counts.total() > before {
                        backoff.reset();
                    }
                    match end {
                        End::Stopped => return,
                        End::Failed(problem) => problem,
                    }
                }
            };
            tracing::warn!(problem, "cannot read from NATS: trying again");
            if stop.run_until_cancelled(backoff.pause()).await.is_none() {
                return;
            }
        }
    }

    async fn read(&self, consumer: PullConsumer, counts: &Counts, stop: &CancellationToken) -> End {
        let ack_wait = consumer.cached_info().config.ack_wait;
        let mut messages = match Pull::begin(&self.client, consumer, self.batch).await {
            Ok(messages) => messages,
            Err(problem) => return End::Failed(problem),
        };
        loop {
            let first = match stop.run_until_cancelled(messages.next()).await {
                None => {
                    self.give_back(&messages.end().await, counts).await;
                    return End::Stopped;
                }
                Some(Err(problem)) => return End::Failed(problem),
                Some(Ok(message)) => message,
            };
            let (received, mut problem) = self.gather(first, &mut messages).await;
            // The next messages arrive while these are published.
            if problem.is_none() && !stop.is_cancelled() {
                problem = messages.request_batch().await.err();
            }
            let verdicts = match self.publish(&received, ack_wait, stop).await {
                Ok(verdicts) => verdicts,
                Err(Closed) => {
                    tracing::error!("abide was closed: no more messages become events");
                    return End::Stopped;
                }
            };
            if stop.is_cancelled() {
                // No more messages may arrive, or the returned ones would be delivered here again.
                let rest = messages.end().await;
                self.answer_all(&received, &verdicts, counts, true).await;
                self.give_back(&rest, counts).await;
                return End::Stopped;
            }
            self.answer_all(&received, &verdicts, counts, false).await;
            if let Some(problem) = problem {
                return End::Failed(problem);
            }
        }
    }

    /// Takes the first message and those that have arrived already; also returns the problem if there can be no more.
    /// Never waits for a clock.
    async fn gather(&self, first: Message, messages: &mut Pull) -> (Vec<Received>, Option<String>) {
        let mut received = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        let mut is_rested = false;
        loop {
            match next.take() {
                Some(message) => {
                    bytes += message.payload.len();
                    received.extend(Received::of(&message, &*self.type_of));
                    is_rested = false;
                }
                // The connection may be about to deliver more.
                None if !is_rested => {
                    is_rested = true;
                    tokio::task::yield_now().await;
                }
                None => return (received, None),
            }
            if received.len() >= self.batch || bytes >= BYTES {
                return (received, None);
            }
            match messages.ready() {
                Ok(message) => next = message,
                Err(problem) => return (received, Some(problem)),
            }
        }
    }

    /// Publishes, and returns the result for each message after the commit.
    async fn publish(
        &self,
        received: &[Received],
        ack_wait: Duration,
        stop: &CancellationToken,
    ) -> Result<Vec<Verdict>, Closed> {
        let events: Vec<&NewEvent> = received
            .iter()
            .filter_map(|one| one.event.as_ref().ok())
            .collect();
        let published = match events.is_empty() {
            true => Vec::new(),
            false => tokio::select! {
                verdicts = publish(&self.abide, &events, stop) => verdicts?,
                never = self.hold(received, ack_wait) => match never {},
            },
        };
        let mut published = published.into_iter();
        let verdicts = received.iter().map(|one| match &one.event {
            Ok(_) => published
                .next()
                .unwrap_or_else(|| Verdict::Later("it was not answered for".to_owned())),
            Err(problem) => Verdict::Hopeless(problem.clone()),
        });
        Ok(verdicts.collect())
    }

    /// Acknowledges and counts each message.
    async fn answer_all(
        &self,
        received: &[Received],
        verdicts: &[Verdict],
        counts: &Counts,
        is_stopping: bool,
    ) {
        let answers = received.iter().zip(verdicts).map(|(one, verdict)| {
            let kind = counts.note(one, verdict, is_stopping);
            self.answer(one, kind)
        });
        join_all(answers).await;
    }

    /// Reports to the server, until cancelled, that these messages are in progress.
    async fn hold(&self, received: &[Received], ack_wait: Duration) -> Infallible {
        loop {
            tokio::time::sleep(ack_wait / 3).await;
            for one in received {
                let progress = AckKind::Progress.into();
                // If the server does not receive this, it delivers the message again, which changes nothing.
                let _ = self.client.publish(one.reply.clone(), progress).await;
            }
        }
    }

    /// Acknowledges a message, and waits for the server's confirmation. Without it the message is delivered again, and
    /// is then a duplicate.
    async fn answer(&self, received: &Received, kind: AckKind) {
        let answer = self.client.request(received.reply.clone(), kind.into());
        let problem = match tokio::time::timeout(ANSWER, answer).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {ANSWER:?}"),
        };
        tracing::debug!(
            message = received.position,
            problem,
            "it may be handed out again"
        );
    }

    /// Returns messages to the server that have arrived and were not processed.
    async fn give_back(&self, messages: &[Message], counts: &Counts) {
        let received = messages
            .iter()
            .filter_map(|message| Received::of(message, &*self.type_of));
        let received: Vec<Received> = received.collect();
        let count = &counts.returned;
        count.fetch_add(received.len() as u64, Ordering::Relaxed);
        let answers = received
            .iter()
            .map(|one| self.answer(one, AckKind::Nak(None)));
        join_all(answers).await;
    }
}

impl Counts {
    /// Counts the result for a message, and returns its acknowledgement.
    fn note(&self, received: &Received, verdict: &Verdict, is_stopping: bool) -> AckKind {
        let (count, kind) = match verdict {
            Verdict::Published { duplicate: false } => (&self.published, AckKind::Ack),
            Verdict::Published { duplicate: true } => (&self.duplicates, AckKind::Ack),
            Verdict::Hopeless(problem) => {
                tracing::error!(
                    message = received.position,
                    problem,
                    "it can never be an event"
                );
                (&self.terminated, AckKind::Term)
            }
            Verdict::Later(problem) => {
                tracing::warn!(message = received.position, problem, "it is given back");
                (
                    &self.returned,
                    AckKind::Nak((!is_stopping).then_some(AGAIN)),
                )
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        kind
    }

    fn total(&self) -> u64 {
        let counts = [&self.published, &self.duplicates, &self.terminated];
        counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }
}
