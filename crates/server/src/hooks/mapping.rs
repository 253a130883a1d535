//! The mapping from a webhook to a signal or an event: finds the matching rule, and extracts its values from the
//! request.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use abide::InstanceId;
use abide::model::{Fingerprint, Json, Key, Name, Path, Refusal, Target};
use axum::http::{HeaderMap, HeaderName};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Scheme;

/// A rule: what a webhook becomes if all tests are true.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub when: Vec<Test>,
    pub what: What,
    /// Path of the payload; the whole body if absent.
    pub payload: Option<Path>,
}

/// A condition on the request.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Body { path: Path, equals: Value },
    Header { name: HeaderName, equals: String },
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Signal {
        name: Text,
        target: Text,
        dedup: Option<Text>,
        hold_for: Option<Duration>,
    },
    Event {
        event: Text,
        id: Option<Text>,
    },
}

/// A text: a constant, or a value of the request.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Constant(String),
    Body {
        path: Path,
        prefix: String,
        id: bool,
    },
    Header {
        name: HeaderName,
        prefix: String,
        id: bool,
    },
}

/// The result of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A signal.
    Signal {
        /// Its name.
        name: Name,
        /// The target instance.
        target: Target,
        /// The dedup key.
        dedup: Option<Name>,
        /// How long it is held for a key that no instance has.
        hold_for: Option<Duration>,
        /// The payload.
        payload: Json,
    },
    /// An event.
    Event {
        /// Its type.
        event_type: Name,
        /// The id of the event, which excludes duplicates.
        id: Option<Name>,
        /// The payload.
        payload: Json,
    },
}

/// Reason why a rule matches a webhook but cannot be applied to it.
#[derive(thiserror::Error)]
pub enum Unmapped {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// A value is missing in the request.
    #[error("missing {what} at {location}: expected a string, a number or a boolean")]
    Nowhere {
        /// The name of the value.
        what: &'static str,
        /// The path or the header where it was expected.
        location: String,
    },
    /// The payload is missing at its path.
    #[error("missing payload at {0}: leave `payload` out of the rule for the whole body")]
    NoPayload(String),
    /// A value of the request is invalid.
    #[error("the value at {location} cannot be the {what}: {refusal}")]
    Unfit {
        /// The name of the value.
        what: &'static str,
        /// The path or the header where it was found.
        location: String,
        /// The reason.
        refusal: Refusal,
    },
}

abide_kernel::debug_is_display!(Unmapped);

/// Applies the first rule whose tests are all true. Returns `None` if there is none.
pub(super) fn action(
    rules: &[Rule],
    scheme: &Scheme,
    headers: &HeaderMap,
    body: &str,
) -> Result<Option<Action>, Unmapped> {
    let body: &RawValue = serde_json::from_str(body).map_err(Unmapped::NotJson)?;
    let request = Request { headers, body };
    let Some(rule) = rules
        .iter()
        .find(|rule| rule.when.iter().all(|test| request.is(test)))
    else {
        return Ok(None);
    };
    let payload = request.payload(rule.payload.as_ref())?;
    let given = |id: &Option<Text>, what: &'static str| match id {
        Some(text) => request.given_id(text, what).map(Some),
        None => Ok(request.own_id(scheme)),
    };
    Ok(Some(match &rule.what {
        What::Signal {
            name,
            target,
            dedup,
            hold_for,
        } => Action::Signal {
            name: request.name(name, "signal")?,
            target: request.target(target)?,
            dedup: given(dedup, "dedup")?,
            hold_for: *hold_for,
            payload,
        },
        What::Event { event, id } => Action::Event {
            event_type: request.name(event, "event")?,
            id: given(id, "event_id")?,
            payload,
        },
    }))
}

struct Request<'a> {
    headers: &'a HeaderMap,
    body: &'a RawValue,
}

impl Request<'_> {
    fn is(&self, test: &Test) -> bool {
        match test {
            Test::Body { path, equals } => {
                let found = dig(self.body, path)
                    .and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
                found.is_some_and(|found| found == *equals)
            }
            Test::Header { name, equals } => self
                .headers
                .get(name)
                .is_some_and(|value| value == equals.as_str()),
        }
    }

    /// The sender's own id of a webhook. If the request has none, a hash of its signature and body.
    fn own_id(&self, scheme: &Scheme) -> Option<Name> {
        let header = |name: &str| Some(self.headers.get(name)?.to_str().ok()?.to_owned());
        let field = |name: &str| scalar(dig(self.body, &Path::new(name).ok()?)?);
        let (id, signature) = match scheme {
            Scheme::Standard => (header("webhook-id"), "webhook-signature"),
            Scheme::Github => (header("x-github-delivery"), "x-hub-signature-256"),
            Scheme::Stripe => (field("id"), "stripe-signature"),
            Scheme::Slack => (field("event_id"), "x-slack-signature"),
            Scheme::Hmac { .. } | Scheme::None => return None,
        };
        match id.filter(|id| !id.is_empty()) {
            Some(id) => Some(delivery_id(&id)),
            None => {
                let signature = header(signature)?;
                Some(hashed("signature", &[&signature, self.body.get()]))
            }
        }
    }

    /// The id that a rule takes from the request.
    fn given_id(&self, text: &Text, what: &'static str) -> Result<Name, Unmapped> {
        let (found, location) = self.text(text, what)?;
        match found.is_empty() {
            false => Ok(delivery_id(&found)),
            true => Err(Unmapped::Nowhere { what, location }),
        }
    }

    fn payload(&self, path: Option<&Path>) -> Result<Json, Unmapped> {
        let found = match path {
            Some(path) => {
                dig(self.body, path).ok_or_else(|| Unmapped::NoPayload(path.as_str().to_owned()))?
            }
            None => self.body,
        };
        Json::of(found).map_err(|_| Unmapped::NoPayload("the body".to_owned()))
    }

    fn name(&self, text: &Text, what: &'static str) -> Result<Name, Unmapped> {
        let (found, location) = self.text(text, what)?;
        Name::new(found).map_err(|refusal| Unmapped::Unfit {
            what,
            location,
            refusal,
        })
    }

    /// The target: a key, or an id only where the rule says so. Otherwise a number that a third party made up could
    /// address an instance.
    fn target(&self, text: &Text) -> Result<Target, Unmapped> {
        let what = "target";
        let (found, location) = self.text(text, what)?;
        if let Text::Body { id: true, .. } | Text::Header { id: true, .. } = text {
            return match found.parse() {
                Ok(id) => Ok(Target::Id(InstanceId(id))),
                Err(_) => Err(Unmapped::Nowhere {
                    what: "instance id",
                    location,
                }),
            };
        }
        Key::new(found)
            .map(Target::Key)
            .map_err(|refusal| Unmapped::Unfit {
                what,
                location,
                refusal,
            })
    }

    fn text(&self, text: &Text, what: &'static str) -> Result<(String, String), Unmapped> {
        let (found, location, prefix) = match text {
            Text::Constant(text) => return Ok((text.clone(), "the settings".to_owned())),
            Text::Body { path, prefix, .. } => (
                dig(self.body, path).and_then(scalar),
                path.as_str().to_owned(),
                prefix,
            ),
            Text::Header { name, prefix, .. } => {
                let value = self.headers.get(name).and_then(|value| value.to_str().ok());
                (
                    value.map(str::to_owned),
                    format!("the header {name}"),
                    prefix,
                )
            }
        };
        match found {
            Some(found) => Ok((format!("{prefix}{found}"), location)),
            None => Err(Unmapped::Nowhere { what, location }),
        }
    }
}

/// Converts an id to a name. An id that is too long, or has characters that a name may not have, is hashed.
fn delivery_id(id: &str) -> Name {
    Name::new(id).unwrap_or_else(|_| hashed("sha256", &[id]))
}

fn hashed(kind: &str, parts: &[&str]) -> Name {
    Name::stored(format!("{kind}:{}", Fingerprint::of(parts).as_str()))
}

/// Returns the value at a path, as it was written.
fn dig<'a>(raw: &'a RawValue, path: &Path) -> Option<&'a RawValue> {
    path.parts()
        .try_fold(raw, |raw, part| match raw.get().as_bytes().first()? {
            b'{' => {
                let mut fields: BTreeMap<Cow<'a, str>, &'a RawValue> =
                    serde_json::from_str(raw.get()).ok()?;
                fields.remove(part)
            }
            b'[' => {
                let items: Vec<&'a RawValue> = serde_json::from_str(raw.get()).ok()?;
                items.get(part.parse::<usize>().ok()?).copied()
            }
            _ => None,
        })
}

/// Returns a string, a number or a boolean as text; `None` for other values.
fn scalar(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(text.to_owned()),
    }
}
