//! Configures a source, and starts it: connects, and finds or creates its durable consumer.

use std::sync::Arc;
use std::time::Duration;

use abide::Abide;
use abide::model::Name;
use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{GetStreamByNameErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{self, Context};

use crate::Error;
use crate::message::{Message, TypeOf, own_id};
use crate::source::{Reader, Source};

/// Default number of messages per transaction.
const BATCH: usize = 500;
/// Maximum number of messages per transaction, because they are all held in memory.
const BATCH_MAX: usize = 10_000;
/// Default time that the server waits for an acknowledgement before it delivers a message again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Minimum of that time: progress is reported to the server three times within it.
const ACK_WAIT_MIN: Duration = Duration::from_millis(100);

/// A source to start; created by [`Source::of`].
#[must_use = "nothing is read before it is started"]
pub struct SourceBuilder {
    abide: Abide,
    url: String,
    options: ConnectOptions,
    stream: String,
    durable: String,
    subject: String,
    type_of: Arc<TypeOf>,
    batch: usize,
    ack_wait: Duration,
}

impl SourceBuilder {
    pub(crate) fn new(abide: Abide, url: &str) -> Self {
        Self {
            abide,
            url: url.to_owned(),
            options: ConnectOptions::new().name("abide"),
            stream: String::new(),
            durable: "abide".to_owned(),
            subject: String::new(),
            type_of: Arc::new(|message| message.subject().to_owned()),
            batch: BATCH,
            ack_wait: ACK_WAIT,
        }
    }

    /// Sets the stream to read, which must exist. Default: the stream that has the [subject](Self::subject).
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        self.stream = name.into();
        self
    }

    /// Sets the name of the durable consumer, in which the server stores what was acknowledged. Default: `abide`. An
    /// existing one is used if it is suitable, and refused otherwise; a missing one is created.
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.durable = name.into();
        self
    }

    /// Reads only messages of this subject, which may contain wildcards. Default: all messages of the stream.
    pub fn subject(mut self, filter: impl Into<String>) -> Self {
        self.subject = filter.into();
        self
    }

    /// Sets the function that determines the event type of a message. Default: its subject.
    pub fn event_type(
        mut self,
        type_of: impl Fn(&Message<'_>) -> String + Send + Sync + 'static,
    ) -> Self {
        self.type_of = Arc::new(type_of);
        self
    }

    /// Sets the maximum number of messages that become events in one transaction. Default: 500. At most twice as many
    /// are held.
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// Sets how long the server waits for an acknowledgement before it delivers a message again. Default: 30 s. After a
    /// crash, the messages that were held arrive that much later. It applies when the consumer is created.
    pub fn ack_wait(mut self, time: Duration) -> Self {
        self.ack_wait = time;
        self
    }

    /// Sets the connection options: passwords, tokens, certificates.
    pub fn options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// Connects, finds or creates the consumer, and starts to read, in a task.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is no such stream, or its consumer of that name is not suitable: it has another
    /// subject, or messages are not acknowledged one by one. [`Error::Certificate`] if the server requires a client
    /// certificate that it trusts. [`Error::Unavailable`] if the server does not respond.
    pub async fn start(self) -> Result<Source, Error> {
        self.check()?;
        let client = self.options.connect(&self.url).await;
        let client = client.map_err(|error| Error::unconnected(&error))?;
        let consumer = Consumer {
            context: jetstream::new(client.clone()),
            stream: self.stream,
            config: pull::Config {
                durable_name: Some(self.durable),
                description: Some("turns messages into events of abide".to_owned()),
                ack_policy: AckPolicy::Explicit,
                ack_wait: self.ack_wait,
                filter_subject: self.subject,
                max_ack_pending: i64::try_from(self.batch.saturating_mul(4)).unwrap_or(i64::MAX),
                ..pull::Config::default()
            },
        };
        let opened = consumer.open().await?;
        let reader = Reader {
            abide: self.abide,
            client,
            consumer,
            type_of: self.type_of,
            batch: self.batch,
        };
        Ok(Source::begin(reader, opened))
    }

    fn check(&self) -> Result<(), Error> {
        if self.stream.is_empty() && self.subject.is_empty() {
            return Err(Error::refused(
                "no stream to read: name one with `.stream(…)`, or a subject of it with `.subject(…)`",
            ));
        }
        if self.durable.is_empty() {
            return Err(Error::refused(
                "the durable consumer has no name: without one the server would forget what was read",
            ));
        }
        for name in [&self.stream, &self.durable] {
            let unfit = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
            if name.contains(unfit) {
                return Err(Error::refused(format!(
                    "{name:?} is not a name of a stream or consumer: names contain none of `. * > / \\` and no spaces"
                )));
            }
        }
        if self.batch == 0 || self.batch > BATCH_MAX {
            return Err(Error::refused(format!(
                "a batch of {} messages: give `.batch(…)` 1 to {BATCH_MAX}",
                self.batch
            )));
        }
        if self.ack_wait < ACK_WAIT_MIN {
            return Err(Error::refused(format!(
                "`.ack_wait(…)` must be {ACK_WAIT_MIN:?} or more"
            )));
        }
        // Every message without an id of its own gets one that contains the name of the stream.
        let longest = own_id(&self.stream, u64::MAX, &i64::MAX.to_string());
        Name::new(longest).map(drop).map_err(|refusal| {
            Error::refused(format!(
                "the stream's name cannot be part of an event id: {refusal}"
            ))
        })
    }
}

/// The required durable consumer.
pub(crate) struct Consumer {
    context: Context,
    stream: String,
    config: pull::Config,
}

impl Consumer {
    /// Finds or creates it, and checks that it is suitable.
    pub async fn open(&self) -> Result<PullConsumer, Error> {
        let named = self.stream_name().await?;
        let stream = self.context.get_stream(&named).await;
        let stream = stream.map_err(|error| match error.kind() {
            GetStreamErrorKind::Request => Error::unavailable("JetStream does not answer", &error),
            kind => Error::refused(format!("cannot read the stream {named:?}: {kind}")),
        })?;
        let name = self.config.durable_name.as_deref().unwrap_or_default();
        let consumer = stream.get_or_create_consumer(name, self.config.clone());
        let consumer = consumer.await.map_err(|error| match error.kind() {
            ConsumerErrorKind::TimedOut | ConsumerErrorKind::Request => {
                Error::unavailable("JetStream does not answer", &error)
            }
            kind => Error::refused(format!("cannot use the consumer {name:?}: {kind}")),
        })?;
        let found = &consumer.cached_info().config;
        let problem = if found.ack_policy != AckPolicy::Explicit {
            "its messages are not acknowledged one by one"
        } else if found.headers_only {
            "it hands out no bodies"
        } else if found.filter_subject != self.config.filter_subject {
            "it is of another subject"
        } else {
            if found.max_deliver > 0 {
                let most = found.max_deliver;
                tracing::warn!(
                    consumer = name,
                    most,
                    "messages handed out so often are lost"
                );
            }
            return Ok(consumer);
        };
        Err(Error::refused(format!(
            "the consumer {name:?} of {named:?} is not fit: {problem}; give another name with `.durable(…)`"
        )))
    }

    /// The name of the stream: the given one, or the one that has the subject.
    async fn stream_name(&self) -> Result<String, Error> {
        if !self.stream.is_empty() {
            return Ok(self.stream.clone());
        }
        let subject = &self.config.filter_subject;
        let found = self.context.stream_by_subject(subject).await;
        found.map_err(|error| match error.kind() {
            GetStreamByNameErrorKind::Request => {
                Error::unavailable("JetStream does not answer", &error)
            }
            GetStreamByNameErrorKind::NotFound => Error::refused(format!(
                "no stream has the subject {subject:?}: make one, or name another subject"
            )),
            kind => Error::refused(format!("cannot find the stream of {subject:?}: {kind}")),
        })
    }
}
