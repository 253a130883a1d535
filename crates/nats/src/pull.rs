//! Requests messages in batches, and passes them on as they arrive.
//!
//! The client's own stream of messages requests more whenever it is polled, so there is never a moment at which all
//! requested messages have arrived. Here there is one, so the messages can be returned to the server.

use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, StatusCode, Subject, Subscriber};
use futures_util::StreamExt;
use futures_util::future::FutureExt;

/// Bytes of messages that are requested at a time, or two of the largest messages that the server accepts, if more.
pub(crate) const BYTES: usize = 16 << 20;
/// Bytes that the server counts for a message in addition to its body: subjects and headers.
const ENVELOPE_BYTES: usize = 64 << 10;
/// Lifetime of a request on the server, which then reports that it has expired. It is short, because stopping takes as
/// long: a request cannot be withdrawn, and messages that the server sends to a closed subscription are delivered again
/// only later.
const EXPIRES: Duration = Duration::from_secs(1);
/// Extra time to wait for that report. A server that is silent for longer has lost the request.
const SILENCE: Duration = Duration::from_secs(3);

/// Requested messages. At most one request is open, so at most one batch is in transit.
pub(crate) struct Pull {
    consumer: PullConsumer,
    context: Context,
    inbox: Subject,
    messages: Subscriber,
    request: BatchConfig,
    /// Number of messages that the open request still allows.
    pending: usize,
}

impl Pull {
    /// Prepares to request `batch` messages at a time.
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
        // No message may be larger than the requested bytes, or it would never be delivered.
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

    /// Requests a batch, unless one is in transit.
    pub async fn request_batch(&mut self) -> Result<(), String> {
        if self.pending == 0 {
            let sent = self
                .consumer
                .request_batch(self.request.clone(), self.inbox.clone());
            sent.await.map_err(|error| error.to_string())?;
            self.pending = self.request.batch;
        }
        Ok(())
    }

    /// Waits for the next message, without a time limit.
    pub async fn next(&mut self) -> Result<jetstream::Message, String> {
        loop {
            self.request_batch().await?;
            let next = tokio::time::timeout(EXPIRES + SILENCE, self.messages.next()).await;
            let next = next.map_err(|_| "the server has fallen silent".to_owned())?;
            if let Some(message) = self.take(next)? {
                return Ok(message);
            }
        }
    }

    /// The next message, if it has arrived already.
    pub fn ready(&mut self) -> Result<Option<jetstream::Message>, String> {
        while let Some(next) = self.messages.next().now_or_never() {
            if let Some(message) = self.take(next)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Waits until the open request is over; returns all messages that the server has delivered and that were not taken
    /// yet.
    pub async fn end(mut self) -> Vec<jetstream::Message> {
        let mut last = Vec::new();
        while self.pending > 0 {
            let next = tokio::time::timeout(EXPIRES + SILENCE, self.messages.next()).await;
            match next.map(|next| self.take(next)) {
                Ok(Ok(message)) => last.extend(message),
                // The server is gone, and delivers the rest again later.
                Ok(Err(_)) | Err(_) => break,
            }
        }
        last
    }

    /// Takes what has arrived: a message, or only a status of the request.
    fn take(
        &mut self,
        next: Option<async_nats::Message>,
    ) -> Result<Option<jetstream::Message>, String> {
        let message = next.ok_or("the connection was closed")?;
        let description = message.description.as_deref().unwrap_or_default();
        match message.status.unwrap_or(StatusCode::OK) {
            StatusCode::OK => {
                self.pending = self.pending.saturating_sub(1);
                let context = self.context.clone();
                return Ok(Some(jetstream::Message { message, context }));
            }
            StatusCode::IDLE_HEARTBEAT => {}
            // The request has expired, or has reached its bytes.
            StatusCode::TIMEOUT | StatusCode::NOT_FOUND => self.pending = 0,
            StatusCode::REQUEST_TERMINATED if description.starts_with("Message Size") => {
                self.pending = 0
            }
            status => return Err(format!("the server says {status}: {description}")),
        }
        Ok(None)
    }
}
