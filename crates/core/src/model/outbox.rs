//! Requests in rows of the outbox: the JSON of the HTTP interface, written by any driver (rule 17.3).

mod start;
mod target;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::given;
use super::limits::DURATION_MS_MAX;
use super::{Arguments, Cancel, Children, Json, Name, NewCommand, Publish, Refusal, Start, Target};

pub use start::{StartRequest, Wanted};

use start::bad_start;

/// One request of the outbox: an object with one field, which names the operation.
///
/// ```
/// use abide_core::model::{Key, Name, OutboxRequest, SignalRequest};
///
/// let paid = SignalRequest::new(Key::new("order:42")?, Name::new("paid")?);
/// let text = serde_json::to_string(&OutboxRequest::Signal(paid))?;
/// assert_eq!(text, r#"{"signal":{"target":"order:42","name":"paid"}}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxRequest {
    /// Starts an instance of a machine or of a graph, or reserves its key.
    Start(Box<StartRequest>),
    /// Sends a signal.
    Signal(SignalRequest),
    /// Sends a signal to the live instance that holds a key, or starts an instance with it.
    SignalWithStart(Box<SignalWithStartRequest>),
    /// Publishes an event.
    Publish(Publish),
    /// Cancels an instance.
    Cancel(CancelRequest),
}

/// A request to send a signal, in the form of the path and the body of `POST /v1/instances/{target}/signals/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// The instance, by key or by id.
    #[serde(with = "target")]
    pub target: Target,
    /// The signal.
    pub name: Name,
    /// One value; either this or `arguments`.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub payload: Option<Json>,
    /// Arguments, positional or named; either this or `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// Dedup key: a signal that is sent again with the same key is the same signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<Name>,
    /// Time to keep it for a key that no instance holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_for_ms: Option<u64>,
}

impl SignalRequest {
    /// Creates a signal without arguments.
    pub fn new(target: impl Into<Target>, name: Name) -> Self {
        Self {
            target: target.into(),
            name,
            payload: None,
            arguments: None,
            dedup_key: None,
            hold_for_ms: None,
        }
    }

    /// Returns the delivery that it asks for.
    pub fn delivery(self) -> Result<NewCommand, Refusal> {
        let hold_for = self.hold_for_ms.map(|ms| time("hold_for_ms", ms));
        Ok(NewCommand {
            arguments: arguments(self.payload, self.arguments)?,
            dedup_key: self.dedup_key,
            hold_for: hold_for.transpose()?,
            ..NewCommand::signal(self.target, self.name)
        })
    }
}

/// The instance to start, and the signal to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = SignalWithStart))]
#[serde(deny_unknown_fields)]
pub struct SignalWithStartRequest {
    /// The instance to start if no live instance has its key. A key is required.
    pub start: StartRequest,
    /// The signal's name.
    pub name: Name,
    /// One value. Where parameters are declared, an object counts as arguments by name. This or `arguments`.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    pub payload: Option<Json>,
    /// Arguments: a list by position, or an object by name. This or `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Arguments>))]
    pub arguments: Option<Json>,
    /// The dedup key. A signal that is sent again with the same key is the same signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<Name>,
}

impl SignalWithStartRequest {
    /// Returns the delivery that it asks for. For a graph, the caller passes the start that it has looked up.
    pub fn delivery(self, of_graph: Option<Start>) -> Result<NewCommand, Refusal> {
        let Some(key) = self.start.key.clone() else {
            return Err(bad_start("`start` needs a `key`: the signal is sent to it"));
        };
        let Wanted::Start(start) = self.start.wanted(of_graph)? else {
            return Err(bad_start(
                "a reserved instance takes no signals: leave `reserve` out",
            ));
        };
        Ok(NewCommand {
            arguments: arguments(self.payload, self.arguments)?,
            dedup_key: self.dedup_key,
            start: Some(start),
            ..NewCommand::signal(key, self.name)
        })
    }
}

/// A request to cancel an instance, in the form of the path and the body of `POST /v1/instances/{target}/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// The instance, by key or by id.
    #[serde(with = "target")]
    pub target: Target,
    /// The reason, which is recorded in the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The effect on its children.
    #[serde(default)]
    pub children: Children,
    /// `true` to end a workflow at once, without letting its code clean up.
    #[serde(default)]
    pub force: bool,
}

impl CancelRequest {
    /// The reason that is recorded in the history if a request gives none.
    pub const NO_REASON: &'static str = "no reason was given";

    /// Creates a cancellation of an instance and of its children.
    pub fn new(target: impl Into<Target>) -> Self {
        Self {
            target: target.into(),
            reason: None,
            children: Children::default(),
            force: false,
        }
    }

    /// Returns the cancellation that it asks for.
    pub fn cancel(self) -> Cancel {
        Cancel {
            target: self.target,
            reason: self.reason.unwrap_or_else(|| Self::NO_REASON.to_owned()),
            children: self.children,
            force: self.force,
            source: None,
            claimed_source: None,
        }
    }
}

/// Returns the arguments of a request that gives a payload or arguments.
fn arguments(payload: Option<Json>, arguments: Option<Json>) -> Result<Arguments, Refusal> {
    match (payload, arguments) {
        (Some(_), Some(_)) => Err(bad_request("give a `payload` or `arguments`, not both")),
        (Some(payload), None) => Ok(Arguments::Payload(payload)),
        (None, Some(arguments)) => Arguments::from_json(&arguments).map_err(|_| {
            bad_request("`arguments` must be a list, by position, or an object, by name")
        }),
        (None, None) => Ok(Arguments::default()),
    }
}

fn bad_request(problem: impl Into<String>) -> Refusal {
    let problem = problem.into();
    Refusal::BadRequest { problem }
}

fn time(field: &str, ms: u64) -> Result<Duration, Refusal> {
    match ms <= DURATION_MS_MAX {
        true => Ok(Duration::from_millis(ms)),
        false => Err(bad_request(format!(
            "`{field}` is {ms}: {DURATION_MS_MAX} is the most, a hundred years in milliseconds"
        ))),
    }
}
