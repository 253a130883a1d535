//! A message of a stream, and the event that it becomes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use abide::client::{Publication, event_of};
use abide::model::{Json, Name};
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream;
use sha2::{Digest, Sha256};

/// A message of a stream, as it was received: the argument of the function in
/// [`SourceBuilder::event_type`](crate::SourceBuilder::event_type).
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    message: &'a async_nats::Message,
}

impl<'a> Message<'a> {
    /// The subject that it was sent to.
    pub fn subject(&self) -> &'a str {
        self.message.subject.as_str()
    }

    /// Its body.
    pub fn body(&self) -> &'a [u8] {
        &self.message.payload
    }

    /// The first value of the header with this name.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let headers = self.message.headers.as_ref()?;
        headers.get(name).map(|value| value.as_str())
    }
}

/// Determines the event type of a message.
pub(crate) type TypeOf = dyn Fn(&Message<'_>) -> String + Send + Sync;

/// A received message: how to acknowledge it, and what it becomes.
pub(crate) struct Received {
    /// The subject for its acknowledgement.
    pub reply: String,
    /// Its subject and its sequence in the stream, for the log.
    pub position: String,
    /// The event, or the reason why it can never become one.
    pub event: Result<NewEvent, String>,
}

/// An event to publish.
pub(crate) struct NewEvent {
    event_type: Name,
    event_id: Name,
    payload: Json,
}

impl NewEvent {
    pub fn publication(&self) -> Publication {
        event_of(self.event_type.as_str(), &self.payload).event_id(self.event_id.as_str())
    }
}

impl Received {
    /// Converts a message. Returns `None` if it does not come from a stream. Nothing of the message itself is kept.
    pub fn of(message: &jetstream::Message, type_of: &TypeOf) -> Option<Self> {
        let origin = Origin::of(message)?;
        Some(Self {
            reply: message.reply.as_ref()?.as_str().to_owned(),
            position: format!(
                "{} ({}:{})",
                message.subject, origin.stream, origin.sequence
            ),
            event: event(&message.message, &origin, type_of),
        })
    }
}

/// The origin of a message.
struct Origin<'a> {
    stream: &'a str,
    sequence: u64,
    /// The time when it was stored, in nanoseconds since 1970.
    stored: &'a str,
}

impl<'a> Origin<'a> {
    fn of(message: &'a jetstream::Message) -> Option<Self> {
        let info = message.info().ok()?;
        Some(Self {
            stream: info.stream,
            sequence: info.stream_sequence,
            stored: stored(message.reply.as_ref()?.as_str())?,
        })
    }
}

/// The time when a message was stored: the last but one of the nine tokens of its reply subject. The longer form has
/// two more tokens before the stream's name, and may have more at the end.
fn stored(reply: &str) -> Option<&str> {
    let words = reply.split('.').count();
    reply.split('.').nth(if words < 11 { 7 } else { 9 })
}

fn event(
    message: &async_nats::Message,
    origin: &Origin<'_>,
    type_of: &TypeOf,
) -> Result<NewEvent, String> {
    let named = catch_unwind(AssertUnwindSafe(|| type_of(&Message { message })));
    let named = named.map_err(|_| "the function that determines its type panicked".to_owned())?;
    Ok(NewEvent {
        event_type: Name::new(named).map_err(|refusal| refusal.to_string())?,
        event_id: event_id(&Message { message }, origin)?,
        payload: payload(&message.payload)?,
    })
}

/// The event id, which is unique to the message and the same at every delivery.
fn event_id(message: &Message<'_>, origin: &Origin<'_>) -> Result<Name, String> {
    let given = message.header(NATS_MESSAGE_ID.as_ref());
    let given = given.filter(|given| !given.is_empty());
    let id = match given {
        Some(given) => match Name::new(given) {
            Ok(id) => Ok(id),
            Err(_) => Name::new(hashed(given)),
        },
        None => Name::new(own_id(origin.stream, origin.sequence, origin.stored)),
    };
    id.map_err(|refusal| refusal.to_string())
}

/// The id of a message without an id from its sender.
pub(crate) fn own_id(stream: &str, sequence: u64, stored: &str) -> String {
    format!("{stream}:{sequence}:{stored}")
}

fn hashed(id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn payload(body: &[u8]) -> Result<Json, String> {
    if body.is_empty() {
        return Ok(Json::null());
    }
    let text = std::str::from_utf8(body)
        .map_err(|error| format!("its body is not UTF-8 text: {error}"))?;
    Json::parse(text.to_owned())
        .or_else(|_| Json::of(text))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_kept_as_json_if_it_is_and_as_a_string_if_it_is_text() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for (body, expected) in [
            (r#" {"b": 1.0, "b": 2} "#, r#"{"b": 1.0, "b": 2}"#),
            ("42", "42"),
            (&deep, &deep),
            ("", "null"),
            ("{", r#""{""#),
            ("a\0\"b", r#""a\u0000\"b""#),
        ] {
            assert_eq!(payload(body.as_bytes()).unwrap().as_str(), expected);
        }
        assert!(payload(b"\xff").unwrap_err().contains("not UTF-8 text"));
    }

    #[test]
    fn the_time_is_found_in_both_forms_of_the_reply_subject() {
        let short = "$JS.ACK.ORDERS.abide.3.100.7.1790230470084404000.42";
        let long = "$JS.ACK._.hash.ORDERS.abide.3.100.7.1790230470084404000.42";
        let longer = format!("{long}.token");
        for reply in [short, long, &longer] {
            assert_eq!(stored(reply), Some("1790230470084404000"), "in {reply}");
        }
    }

    #[test]
    fn an_id_that_is_not_a_name_is_hashed() {
        assert!(Name::new("x".repeat(256)).is_err());
        let id = hashed(&"x".repeat(256));
        assert_eq!(id.len(), "sha256:".len() + 64);
        assert_ne!(id, hashed(&"x".repeat(257)));
    }
}
