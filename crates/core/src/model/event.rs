//! Events: what is published, what an instance waits for, and the waiter that stands for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{InstanceId, Json, Key, Name, Refusal, Timestamp, WaitId};

/// An event's place among all that were published.
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

/// A request to publish an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// What it says: any JSON.
    #[serde(default)]
    pub payload: Json,
    /// Published again with the same, it is the same event (rule 14.1).
    #[serde(default)]
    pub event_id: Option<Name>,
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Its place.
    pub sequence: EventSequence,
    /// What it is known by.
    pub event_id: Name,
    /// How many waiters stood there that it matched. A workflow that is awake just then, and waits on, takes it when it
    /// parks again, and is not counted.
    pub matched: u32,
    /// Whether it had been published before, and nothing came of it now.
    pub duplicate: bool,
}

/// An event, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its place.
    pub sequence: EventSequence,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// What it is known by.
    pub event_id: Name,
    /// What it says.
    pub payload: Json,
    /// When it was published.
    pub published_at: Timestamp,
}

/// How the two sides of a condition are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// The same, numbers and texts alike.
    Eq,
    /// The same, and of the same kind.
    EqTyped,
    /// Not the same.
    Ne,
    /// Greater.
    Gt,
    /// Greater or the same.
    Gte,
    /// Less.
    Lt,
    /// Less or the same.
    Lte,
    /// The same as one of a list.
    In,
    /// There, or not.
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

/// A place in an event's payload: names of fields, or places in a list, with dots between them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(String);

impl Path {
    /// The longest path, in bytes.
    pub const MOST: usize = 255;

    /// Takes a path that has no empty part and is not too long.
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

/// What an event must say to match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Where to look in its payload.
    pub left: Path,
    /// How to compare.
    pub op: Operator,
    /// What with.
    pub right: Json,
}

/// An event that an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventWait {
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// What it must say, all of it.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// How far back to look for one that was published already.
    #[serde(default)]
    pub lookback_ms: Option<u64>,
}

/// What stands for one wait for an event: found by its type, and by what one of its conditions compares with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Who waits.
    pub instance: InstanceId,
    /// That instance's partition.
    pub partition: Option<Key>,
    /// Which of the instance's waits.
    pub wait_id: WaitId,
    /// Which of the events that this waits for.
    pub place: u32,
    /// Its type.
    pub event_type: Name,
    /// Where its index condition looks; empty when it has none.
    pub path: String,
    /// What that compares with, as the index has it.
    pub value: String,
    /// All its conditions.
    pub conditions: Vec<Condition>,
    /// Since when it waits.
    pub since: Timestamp,
    /// Until when.
    pub deadline: Option<Timestamp>,
}

impl Name {
    const EVENT: &'static str = "event:";

    /// The name under which events of a type come into an inbox.
    pub fn of_event(event_type: &Self) -> Self {
        Self::stored(format!("{}{event_type}", Self::EVENT))
    }

    /// The type of the event that comes under this name; none when it is a signal's.
    pub fn event_type(&self) -> Option<&str> {
        self.as_str().strip_prefix(Self::EVENT)
    }
}
