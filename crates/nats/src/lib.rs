//! Turns the messages of a NATS JetStream stream into [events](https://docs.rs/abide) of abide, which wake the
//! instances that wait for them.
//!
//! ```no_run
//! use abide::Abide;
//! use abide_nats::Source;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let abide = Abide::open("sqlite:orders.db").await?;
//! let source = Source::of(abide.clone(), "nats://127.0.0.1:4222")
//!     .stream("ORDERS")                       // the stream to read
//!     .durable("abide")                       // the durable consumer's name: where it goes on after a restart
//!     .subject("orders.>")                    // a part of the stream; all of it unless given
//!     .event_type(|message| message.subject().replace("orders.", "order."))   // the subject unless given
//!     .start()
//!     .await?;
//! // … until the application ends
//! source.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Nothing is lost, and nothing comes twice
//!
//! A message is acknowledged after its event is committed, not before. If anything fails between the two, the server
//! delivers the message again; it is published again under the same event id, which changes nothing. The id is the
//! message's `Nats-Msg-Id`, if its sender gave one; an id that is not a valid name (longer than 255 bytes) is hashed.
//! Otherwise the id consists of the stream's name, the message's sequence in the stream and the time when it was stored
//! there. The time is needed because the sequence starts at 1 again if a stream is deleted and created anew.
//!
//! The id of an event is known as long as the event is stored, which is the engine's retention. So a message that is
//! delivered again after a longer time is a new event. The same is true for all messages if you delete the durable
//! consumer: the next start creates another one, which begins at the beginning of the stream.
//!
//! Several sources, in several processes, may share a durable consumer; each message goes to one of them. Events are
//! published in the order of the stream, except for messages that are delivered again.
//!
//! # What a body becomes
//!
//! | body | event's payload |
//! |---|---|
//! | JSON of any kind | the same JSON |
//! | empty | `null` |
//! | other text (UTF-8) | the text, as a JSON string |
//! | other bytes | none: the message is terminated |
//!
//! A message that can never become an event is *terminated*: the server will not deliver it again, the message is
//! logged with its sequence in the stream, and it is [counted](Stats::terminated). This happens if the body is not text
//! or is larger than `payload_bytes`, if the event type is not a valid name, or if the function that determines the
//! type panicked. It does not stop other messages, and the message stays in the stream as long as the stream keeps
//! processed messages.
//!
//! # During an outage
//!
//! While the database is unavailable, the held messages are kept and retried, and the server learns that they are in
//! progress. While the NATS server is unavailable, the source reconnects and continues. In both cases it holds at most
//! [two batches](SourceBuilder::batch) of messages, or some tens of megabytes of them.

mod builder;
mod error;
mod message;
mod publish;
mod pull;
mod source;

pub use async_nats;
pub use builder::SourceBuilder;
pub use error::Error;
pub use message::Message;
pub use source::{Source, Stats};
