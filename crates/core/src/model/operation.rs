//! Durable operations of a workflow's code, their results, and the outcome of one turn of the code.

use serde::{Deserialize, Serialize};

use super::{Answered, BarrierNumber, CommandId, EventWait, Folded, Json, Name, Start, Timestamp};

/// The kind of a durable operation of a workflow's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationKind {
    /// A side effect.
    Step,
    /// A wait for the next signal of a name.
    Signal,
    /// A wait for the next event that matches.
    Event,
    /// A wait until a condition is true.
    Condition,
    /// A wait for time to pass.
    Sleep,
    /// A wait for a child's end.
    Child,
    /// A wait for the ends of several children.
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
    /// A value that the code computes in a way that is not deterministic.
    SideEffect,
    /// The choice between versions of the code.
    Version,
    /// The check whether the history has grown long.
    LongHistory,
    /// An update that was sent to the workflow.
    Update,
    /// A cancellation that was sent to the workflow.
    Cancel,
}

impl OperationKind {
    /// Its name, as shown to readers.
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

/// The identity of an operation: replay checks all of it (rule 12.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Its kind.
    pub operation_kind: OperationKind,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The key that the author gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Name>,
    /// The version that the author gave to the thing that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

impl Signature {
    /// Creates a signature of that kind, and nothing else.
    pub const fn of(operation_kind: OperationKind) -> Self {
        Self {
            operation_kind,
            name: None,
            key: None,
            fingerprint: None,
        }
    }

    /// Creates a signature of that kind and name.
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

/// An operation that began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its number in the run: 1, 2, 3 …
    pub operation: u32,
    /// Its identity.
    #[serde(flatten)]
    pub signature: Signature,
    /// The deadline of the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The update that `async` code began to handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<CommandId>,
    /// The arguments of that update.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::json::given"
    )]
    pub arguments: Option<Json>,
    /// The graph step that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_step: Option<Name>,
}

/// An operation that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// Its number in the run. `None` for updates and cancellations, and for a version, which takes no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// Its kind.
    pub operation_kind: OperationKind,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The signal or the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<CommandId>,
    /// The arguments of an update.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::json::given"
    )]
    pub arguments: Option<Json>,
    /// Number of times that a step was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Duration of the last attempt at a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// The graph step that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_step: Option<Name>,
    /// Its result.
    pub outcome: Ending,
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// A value.
    Value(Json),
    /// An error.
    Error(String),
    /// Its deadline passed.
    TimedOut,
    /// The code no longer waits for it.
    Abandoned,
}

/// A step that failed and will be retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedAgain {
    /// The step's number in the run.
    pub operation: u32,
    /// Its name.
    pub name: Name,
    /// Number of times that it was begun.
    pub attempts: u32,
    /// Its error.
    pub error: String,
    /// When the next attempt is due.
    pub due_at: Timestamp,
    /// The graph step that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_step: Option<Name>,
    /// The attempts that this history event combines, if there are several (rule 16.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<Folded>,
}

/// A mismatch between a workflow's code and its history (rule 12.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The operation at which it was detected.
    pub operation: u32,
    /// The recorded operation.
    pub recorded: String,
    /// The operation that the code asks for now.
    #[serde(rename = "asked")]
    pub requested: String,
    /// The action that resolves it.
    pub cure: String,
}

impl std::fmt::Display for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            operation,
            recorded,
            requested,
            cure,
        } = self;
        write!(
            f,
            "at operation {operation} the history has {recorded}, and the code asks for {requested}: {cure}"
        )
    }
}

/// A change of an operation in a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// It began.
    Opened(Opened),
    /// It ended.
    Completed(Completed),
    /// It failed and will be retried.
    TriedAgain(TriedAgain),
}

/// The outcome of one turn of a workflow's code: all of it is committed at once (rule 12.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowTurn {
    /// The changes of its operations, in order.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// The signals that the operations took.
    #[serde(default)]
    pub takes: Vec<Taken>,
    /// The updates and cancellations that were handled.
    #[serde(default)]
    pub updates: Vec<Answered>,
    /// Number of updates that the code knows of and has not answered: their handlers are running, or do not exist yet.
    /// They stay pending and wake nothing (rule 9.1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held: u32,
    /// The children that the operations start.
    #[serde(default)]
    pub children: Vec<ChildStarts>,
    /// The state that readers see; unchanged if omitted.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::json::given"
    )]
    pub state: Option<Json>,
    /// The next thing that happens to the workflow.
    pub then: Then,
}

impl WorkflowTurn {
    /// A turn that only says what happens next.
    pub fn of(then: Then) -> Self {
        Self {
            operations: Vec::new(),
            takes: Vec::new(),
            updates: Vec::new(),
            held: 0,
            children: Vec::new(),
            state: None,
            then,
        }
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A signal that a workflow took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Its record.
    pub id: CommandId,
    /// Its name.
    pub name: Name,
    /// The operation that took it. `None` if it is an event that no operation waits for any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// The graph step that the operation belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_step: Option<Name>,
}

/// The children that one operation starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildStarts {
    /// The operation; its number is the number of the children's barrier.
    pub operation: u32,
    /// The children.
    pub starts: Vec<Start>,
    /// Number of ends that are waited for; 0 if nothing waits for them any more.
    #[serde(default)]
    pub needed: u32,
}

impl ChildStarts {
    /// Returns the barrier of the children that an operation starts.
    pub fn barrier(operation: u32) -> BarrierNumber {
        BarrierNumber(i32::try_from(operation).unwrap_or(i32::MAX))
    }
}

/// The continuation of a workflow after a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The code continues.
    GoOn {
        /// `true` if steps are running, so that the worker is not given other work first.
        running: bool,
    },
    /// It parks.
    Park(Park),
    /// It ended with a result.
    Done {
        /// Its result.
        result: Json,
    },
    /// It ended with an error.
    Stop {
        /// The reason.
        reason: String,
    },
    /// It was cancelled, and has cleaned up.
    Cancelled {
        /// The reason.
        reason: String,
    },
    /// It continues in a new run.
    ContinueAsNew {
        /// The state that the new run begins with.
        state: Json,
        /// The version of the new run; unchanged if omitted.
        #[serde(default)]
        version: Option<u32>,
    },
    /// The code does not match the history.
    Block(Blocked),
}

/// The waits of a workflow that parks.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Park {
    /// The newest operation that waits; the wait is named after it.
    pub operation: u32,
    /// The signals, each of which wakes it, with the operation that waits for it.
    #[serde(default)]
    pub signals: Vec<SignalWait>,
    /// The events, each of which wakes it, with the operation that waits for it.
    #[serde(default)]
    pub events: Vec<(u32, EventWait)>,
    /// The conditions that updates and signals may make true, each with the operation that waits for it.
    #[serde(default)]
    pub conditions: Vec<ConditionWait>,
    /// The latest time at which it runs.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// The children of earlier turns that it waits for.
    #[serde(default)]
    pub children: Option<Unended>,
}

impl Park {
    /// Returns all names that it waits for: those of signals, and the reserved names of events.
    pub fn names(&self) -> Vec<Name> {
        let (signals, events) = (self.signals.iter(), self.events.iter());
        let mut names: Vec<Name> = signals.map(|signal| signal.name.clone()).collect();
        names.extend(events.map(|(_, event)| Name::of_event(&event.event_type)));
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// A signal that an operation waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalWait {
    /// The operation.
    pub operation: u32,
    /// The signal.
    pub name: Name,
    /// The deadline of the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// A condition that an operation waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionWait {
    /// The operation.
    pub operation: u32,
    /// Its key, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Name>,
    /// The deadline of the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// Children that a workflow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unended {
    /// Number of ends of its children that had been counted when its code last read them
    /// ([`Family::ended`](super::Family)).
    pub seen: u64,
    /// Number of further ends, from there on, before there is anything to do.
    pub needed: u32,
}
