//! Turns the messages of a NATS JetStream stream into [events](https://docs.rs/abide) of abide: whoever waits for one is woken.
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
//! A message is acknowledged when the event that it became is committed, not before. Whatever breaks between the two, the
//! server hands the message out again; it is published under the same event id again, and that changes nothing. The id is
//! the message's `Nats-Msg-Id`, if its sender gave one; one that cannot be a name (longer than 255 bytes) is hashed. Else it
//! is the stream's name, the message's place in the stream and the time it was stored there: the time, because the places
//! of a stream that was deleted and made anew begin at 1 again.
//!
//! An event's id is known for as long as the event is kept, which is the engine's retention. So a message that is handed
//! out again after a longer time is a new event, and so is everything when you delete the durable consumer: the next start
//! makes another, which begins at the beginning of the stream.
//!
//! Several sources, in several processes, may share a durable consumer; each message goes to one of them. Events are
//! published in the order of the stream, but for what is handed out again.
//!
//! # What a body becomes
//!
//! | body | event's payload |
//! |---|---|
//! | JSON of any kind | just that |
//! | nothing | `null` |
//! | other text (UTF-8) | that text, as a JSON string |
//! | other bytes | none: the message is terminated |
//!
//! A message that can never be an event is *terminated*: told off to the server, so that it is not handed out again,
//! written to the log with its place in the stream, and [counted](Stats::terminated). That is one whose body is no text or
//! is larger than `payload_bytes`, or whose type is no name or was not found because the function for it panicked. It
//! stops none of the others, and stays in the stream for as long as the stream keeps what was dealt with.
//!
//! # When something is away
//!
//! While the database is away, the messages in hand are kept and tried again, and the server is told that they are worked
//! on. While the NATS server is away, the source connects again and goes on. In neither case does it hold more than
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
