//! What a workflow's code asks for, what becomes of it, and what one turn of the code comes to.

use serde::{Deserialize, Serialize};

use super::{Answered, BarrierNumber, CommandId, EventWait, Json, Name, Start, Timestamp};

/// What kind of thing a workflow's code asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationKind {
    /// A side effect.
    Step,
    /// The next signal of a name.
    Signal,
    /// The next event that matches.
    Event,
    /// That something has become true.
    Condition,
    /// Time to pass.
    Sleep,
    /// A child's end.
    Child,
    /// The ends of several children.
    Children,
    /// Several operations at once.
    All,
    /// The first of several.
    Select,
    /// The time.
    Now,
    /// A random number.
    Random,
    /// A new unique id.
    Uuid,
    /// A value that the code comes by in a way that is not the same twice.
    SideEffect,
    /// Which of several ways the code goes.
    Version,
    /// Whether the history has grown long.
    LongHistory,
    /// An update that came from outside.
    Update,
    /// A cancellation that came from outside.
    Cancel,
}

impl OperationKind {
    /// Its name, as readers see it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Signal => "signal",
            Self::Event => "event",
            Self::Condition => "condition",
            Self::Sleep => "sleep",
            Self::Child => "child",
            Self::Children => "children",
            Self::All => "all",
            Self::Select => "select",
            Self::Now => "now",
            Self::Random => "random",
            Self::Uuid => "uuid",
            Self::SideEffect => "side_effect",
            Self::Version => "version",
            Self::LongHistory => "long_history",
            Self::Update => "update",
            Self::Cancel => "cancel",
        }
    }
}

impl std::fmt::Display for OperationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What an operation is told apart by: replay checks all of it (rule 12.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// What kind of thing it asks for.
    pub operation_kind: OperationKind,
    /// Of which name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The key that the author gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Name>,
    /// The version that the author gave what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

impl Signature {
    /// That kind, and nothing else.
    pub const fn of(operation_kind: OperationKind) -> Self {
        Self {
            operation_kind,
            name: None,
            key: None,
            fingerprint: None,
        }
    }

    /// That kind, of that name.
    pub const fn named(operation_kind: OperationKind, name: Name) -> Self {
        Self {
            operation_kind,
            name: Some(name),
            key: None,
            fingerprint: None,
        }
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.operation_kind)?;
        if let Some(name) = &self.name {
            write!(f, " {:?}", name.as_str())?;
        }
        if self.operation_kind == OperationKind::Condition {
            let or_none =
                |text: Option<&str>| text.map_or("none".to_owned(), |text| format!("{text:?}"));
            write!(
                f,
                " with key {}",
                or_none(self.key.as_ref().map(Name::as_str))
            )?;
            write!(
                f,
                " and fingerprint {}",
                or_none(self.fingerprint.as_deref())
            )?;
        }
        Ok(())
    }
}

/// An operation that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its number in the run: 1, 2, 3 …
    pub operation: u32,
    /// What it is.
    #[serde(flatten)]
    pub signature: Signature,
    /// Until when it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// An operation that has come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// Its number in the run; none for what came from outside, and for a version, which takes no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// What kind of thing it was.
    pub operation_kind: OperationKind,
    /// Of which name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The signal or the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<CommandId>,
    /// What an update was sent with.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::json::given"
    )]
    pub arguments: Option<Json>,
    /// How often a step was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// How long a step ran, the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// What it came to.
    pub outcome: Ending,
}

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// A value.
    Value(Json),
    /// An error.
    Error(String),
    /// Its time was up.
    TimedOut,
    /// The code does not wait for it any more.
    Abandoned,
}

/// A step that failed and is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedAgain {
    /// The step's number in the run.
    pub operation: u32,
    /// Its name.
    pub name: Name,
    /// How often it was begun.
    pub attempts: u32,
    /// What it failed of.
    pub error: String,
    /// When it is begun again.
    pub due_at: Timestamp,
}

/// What a workflow's code cannot go on from (rule 12.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The operation at which it was seen.
    pub operation: u32,
    /// What was recorded there.
    pub recorded: String,
    /// What the code asks for now.
    pub asked: String,
    /// What to do about it.
    pub cure: String,
}

impl std::fmt::Display for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            operation,
            recorded,
            asked,
            cure,
        } = self;
        write!(
            f,
            "at operation {operation} the history has {recorded}, and the code asks for {asked}: {cure}"
        )
    }
}

/// Something that happened to an operation in a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// It was begun.
    Opened(Opened),
    /// It has come to its end.
    Completed(Completed),
    /// It failed and is tried again.
    TriedAgain(TriedAgain),
}

/// What one turn of a workflow's code came to: all of it is committed at once (rule 12.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowTurn {
    /// What happened to its operations, in order.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// The signals that they took.
    #[serde(default)]
    pub takes: Vec<Taken>,
    /// The updates, and the cancellations, that were handled.
    #[serde(default)]
    pub updates: Vec<Answered>,
    /// The children that they start.
    #[serde(default)]
    pub children: Vec<Brood>,
    /// What readers are shown of it; as it was when left out.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::json::given"
    )]
    pub state: Option<Json>,
    /// What then.
    pub then: Then,
}

/// A signal that a workflow took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Its record.
    pub id: CommandId,
    /// Its name.
    pub name: Name,
}

/// The children that one operation starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brood {
    /// The operation, whose number is the number of their barrier.
    pub operation: u32,
    /// The children.
    pub starts: Vec<Start>,
    /// How many of their ends are waited for; none when nobody waits any more.
    #[serde(default)]
    pub needed: u32,
}

impl Brood {
    /// The barrier of the children that an operation starts.
    pub fn barrier(operation: u32) -> BarrierNumber {
        BarrierNumber(i32::try_from(operation).unwrap_or(i32::MAX))
    }
}

/// What follows a workflow's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The code goes on.
    GoOn {
        /// Whether steps are under way, so that the worker is not asked to do something else first.
        running: bool,
    },
    /// It waits.
    Park(Park),
    /// It ended well.
    Done {
        /// What it came to.
        result: Json,
    },
    /// It ended badly.
    Stop {
        /// Why.
        reason: String,
    },
    /// It was cancelled, and has cleaned up.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// It goes on in a new run.
    ContinueAsNew {
        /// What that begins with.
        state: Json,
        /// The version to go on with; the same when left out.
        #[serde(default)]
        version: Option<u32>,
    },
    /// The code does not fit the history.
    Block(Blocked),
}

/// What a workflow waits for.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Park {
    /// The newest operation that waits: the wait is named by it.
    pub operation: u32,
    /// The signals, any of which wakes it.
    #[serde(default)]
    pub signals: Vec<Name>,
    /// The events, any of which wakes it, each with the operation that waits for it.
    #[serde(default)]
    pub events: Vec<(u32, EventWait)>,
    /// The keys of the conditions that updates may make true, and whether there is one at all.
    #[serde(default)]
    pub conditions: Option<Vec<Name>>,
    /// When it runs at the latest.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// The children of earlier turns that it waits for.
    #[serde(default)]
    pub children: Option<Unended>,
}

impl Park {
    /// All names that it waits for: those of signals, and those under which events come.
    pub fn names(&self) -> Vec<Name> {
        let events = self.events.iter();
        let mut names = self.signals.clone();
        names.extend(events.map(|(_, event)| Name::of_event(&event.event_type)));
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Children that a workflow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unended {
    /// How many ends of its children had been counted when it looked last ([`Family::ended`](super::Family)).
    pub seen: u64,
    /// How many more must end, from there on, before there is anything to do.
    pub needed: u32,
}
