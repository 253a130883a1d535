//! Asks for messages, so many at a time, and hands them on as they come.
//!
//! The client's own stream of messages asks for more whenever it is looked into, so there is no moment at which all that
//! was asked for is in hand; here there is, and it can be given back.

use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, StatusCode, Subject, Subscriber};
use futures_util::StreamExt;
use futures_util::future::FutureExt;

/// How many bytes of messages are asked for at a time, or two of the largest that the server takes.
pub(crate) const BYTES: usize = 16 << 20;
/// What the server counts of a message besides its body: subjects and headers.
const ENVELOPE_BYTES: usize = 64 << 10;
/// How long the server keeps a request in mind, and then says that its time is up. It is short, because to stop takes as
/// long: a request cannot be taken back, and what the server sends to somebody who no longer listens comes again late.
const EXPIRES: Duration = Duration::from_secs(1);
/// How much later that word may come. A server that is silent for longer has forgotten what it was asked for.
const SILENCE: Duration = Duration::from_secs(3);

/// Messages that were asked for. At most one request is open, so no more than one batch is on its way.
pub(crate) struct Pull {
    consumer: PullConsumer,
    context: Context,
    inbox: Subject,
    messages: Subscriber,
    request: BatchConfig,
    /// How many messages are yet to come of the request that is open.
    pending: usize,
}

impl Pull {
    /// Prepares to ask for `batch` messages at a time.
    pub async fn begin(
        client: &Client,
        consumer: PullConsumer,
        batch: usize,
    ) -> Result<Self, String> {
        let config = &consumer.cached_info().config;
        let within = |wanted: usize, most: i64| match usize::try_from(most) {
            Ok(most) if most > 0 => wanted.min(most),
            _ => wanted,
        };
        // No message may be larger than what is asked for, or it would never be handed out.
        let bytes = BYTES.max(2 * (client.max_payload() + ENVELOPE_BYTES));
        let expires = match config.max_expires {
            Duration::ZERO => EXPIRES,
            most => EXPIRES.min(most),
        };
        let request = BatchConfig {
            batch: within(batch, config.max_batch),
            max_bytes: within(bytes, config.max_bytes),
            expires: Some(expires),
            ..BatchConfig::default()
        };
        let inbox = Subject::from(client.new_inbox());
        let messages = client.subscribe(inbox.clone()).await;
        Ok(Self {
            messages: messages.map_err(|error| error.to_string())?,
            context: jetstream::new(client.clone()),
            consumer,
            inbox,
            request,
            pending: 0,
        })
    }

    /// Asks for a batch, unless one is on its way.
    pub async fn ask(&mut self) -> Result<(), String> {
        if self.pending == 0 {
            let asked = self
                .consumer
                .request_batch(self.request.clone(), self.inbox.clone());
            asked.await.map_err(|error| error.to_string())?;
            self.pending = self.request.batch;
        }
        Ok(())
    }

    /// The next message, however long it takes.
    pub async fn next(&mut self) -> Result<jetstream::Message, String> {
        loop {
            self.ask().await?;
            let next = tokio::time::timeout(EXPIRES + SILENCE, self.messages.next()).await;
            let next = next.map_err(|_| "the server has fallen silent".to_owned())?;
            if let Some(message) = self.take(next)? {
                return Ok(message);
            }
        }
    }

    /// The next message, if it is there already.
    pub fn ready(&mut self) -> Result<Option<jetstream::Message>, String> {
        while let Some(next) = self.messages.next().now_or_never() {
            if let Some(message) = self.take(next)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Waits until the request that is open is over: all messages that the server has handed out and nobody has seen.
    pub async fn end(mut self) -> Vec<jetstream::Message> {
        let mut last = Vec::new();
        while self.pending > 0 {
            let next = tokio::time::timeout(EXPIRES + SILENCE, self.messages.next()).await;
            match next.map(|next| self.take(next)) {
                Ok(Ok(message)) => last.extend(message),
                // It is gone, and hands the rest out again later.
                Ok(Err(_)) | Err(_) => break,
            }
        }
        last
    }

    /// Takes what came: a message, or nothing but word of the request.
    fn take(
        &mut self,
        next: Option<async_nats::Message>,
    ) -> Result<Option<jetstream::Message>, String> {
        let message = next.ok_or("the connection was closed")?;
        let said = message.description.as_deref().unwrap_or_default();
        match message.status.unwrap_or(StatusCode::OK) {
            StatusCode::OK => {
                self.pending = self.pending.saturating_sub(1);
                let context = self.context.clone();
                return Ok(Some(jetstream::Message { message, context }));
            }
            StatusCode::IDLE_HEARTBEAT => {}
            // Its time is up, or it has as many bytes as it asked for.
            StatusCode::TIMEOUT | StatusCode::NOT_FOUND => self.pending = 0,
            StatusCode::REQUEST_TERMINATED if said.starts_with("Message Size") => self.pending = 0,
            status => return Err(format!("the server says {status}: {said}")),
        }
        Ok(None)
    }
}
