//! Events: publishing them, and the conditions and waiters of instances that wait for them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{InstanceId, Json, Key, Name, Refusal, Timestamp, WaitId};

/// An event's position among all published events.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EventSequence(pub i64);

impl fmt::Display for EventSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = PublishRequest))]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// Its payload: any JSON; default null.
    #[serde(default)]
    pub payload: Json,
    /// The event id. An event of the same type with the same id is the same event.
    #[serde(default)]
    pub event_id: Option<Name>,
}

/// The answer to publishing an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Its position.
    pub sequence: EventSequence,
    /// Its id.
    pub event_id: Name,
    /// Number of open waiters that it matched. A workflow that is awake at that moment, and continues to wait, takes
    /// the event when it parks again, and is not counted.
    pub matched: u32,
    /// `true` if it was published before, and nothing changed now.
    pub duplicate: bool,
    /// `true` if waiters for events of its type were open, and it matched none of them.
    #[serde(default)]
    pub unmatched: bool,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its position among all published events.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub sequence: EventSequence,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// Its id.
    pub event_id: Name,
    /// Its payload.
    pub payload: Json,
    /// When it was published.
    pub published_at: Timestamp,
}

/// The operator that compares the two sides of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Equal; numbers and texts are compared alike.
    Eq,
    /// Equal, and of the same type.
    EqTyped,
    /// Not equal.
    Ne,
    /// Greater.
    Gt,
    /// Greater or equal.
    Gte,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
    /// Equal to one item of a list.
    In,
    /// Present, or absent.
    Exists,
}

impl Operator {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Eq,
        Self::EqTyped,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::In,
        Self::Exists,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::EqTyped => "eq_typed",
            Self::Ne => "ne",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::In => "in",
            Self::Exists => "exists",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A path into an event's payload: names of fields, or positions in a list, separated by dots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(String);

impl Path {
    /// The longest path, in bytes.
    pub const MOST: usize = 255;

    /// Checks a path: it has no empty part and is not too long.
    pub fn new(path: impl Into<String>) -> Result<Self, Refusal> {
        let path = path.into();
        let problem = if path.is_empty() {
            "it is empty"
        } else if path.len() > Self::MOST {
            "it is longer than 255 bytes"
        } else if path.split('.').any(str::is_empty) {
            "there is nothing between two of its dots, or around them"
        } else if path.chars().any(char::is_control) {
            "it has control characters"
        } else {
            return Ok(Self(path));
        };
        Err(Refusal::BadEvent {
            problem: format!(
                "the path {path:?} is none: {problem}; write `field` or `outer.inner`"
            ),
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl TryFrom<String> for Path {
    type Error = Refusal;

    fn try_from(path: String) -> Result<Self, Refusal> {
        Self::new(path)
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.0
    }
}

/// A condition that an event must satisfy to match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// A path into the payload: names of fields, separated by dots.
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 255))]
    pub left: Path,
    /// The operator.
    pub op: Operator,
    /// The value to compare with: a constant.
    pub right: Json,
}

/// An event that an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventWait {
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// The conditions, all of which must hold.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Look back: also match an event that was published within this time before.
    #[serde(default)]
    pub lookback_ms: Option<u64>,
}

/// The index entry of one wait for an event, found by the event's type and by the value that one of its conditions
/// compares with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The instance that waits.
    pub instance: InstanceId,
    /// That instance's partition.
    pub partition: Option<Key>,
    /// The instance's wait that it belongs to.
    pub wait_id: WaitId,
    /// Its position among the events of that wait.
    #[serde(rename = "place")]
    pub position: u32,
    /// Its type.
    pub event_type: Name,
    /// The path of its indexed condition; empty if it has none.
    pub path: String,
    /// The value of that condition, in the form that the index uses.
    pub value: String,
    /// All its conditions.
    pub conditions: Vec<Condition>,
    /// When the wait began.
    pub since: Timestamp,
    /// The deadline.
    pub deadline: Option<Timestamp>,
}

impl Name {
    const EVENT: &'static str = "event:";

    /// Returns the reserved name under which events of a type are put into an inbox.
    pub fn of_event(event_type: &Self) -> Self {
        Self::stored(format!("{}{event_type}", Self::EVENT))
    }

    /// Returns the event type if this is the reserved name of an event, and `None` if it is the name of a signal.
    pub fn event_type(&self) -> Option<&str> {
        self.as_str().strip_prefix(Self::EVENT)
    }
}
