//! The operations in a run's history, in the form that replay needs.

use std::collections::{HashMap, VecDeque};

use abide_core::model::{
    Completed, Ending, Entry, HistoryEvent, Json, Name, Opened, OperationKind, TriedAgain,
};

/// The operations in a run's history.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Operations that began, by number.
    pub opened: HashMap<u32, Opened>,
    /// The last failure of each step that was retried.
    pub tried: HashMap<u32, TriedAgain>,
    /// Values that the code got immediately, by number: times, random numbers, and which branch was first.
    pub on_the_spot: HashMap<u32, Completed>,
    /// Operations that the code stopped waiting for, by number.
    pub abandoned: HashMap<u32, OperationKind>,
    /// The version that the code took at each change, by the name of the change.
    pub versions: HashMap<Name, u32>,
    /// The number of operations after which the history was long.
    pub long_since: Option<u32>,
    /// The inputs that were delivered to the code, in order.
    pub brought: VecDeque<Recalled>,
    /// Answers of `async` code to updates, by number. They are not inputs: they come from the code itself.
    pub answered: HashMap<u32, Completed>,
    /// The highest number of an operation.
    pub last: u32,
    /// The number of events.
    pub events: usize,
}

/// An input that was delivered to the code.
#[derive(Debug)]
pub(super) enum Recalled {
    /// The end of an operation, or an input from outside that was handled immediately.
    End(Completed),
    /// An update that `async` code began to handle.
    Update(Opened),
}

impl Recalled {
    /// Describes the input.
    pub fn name(&self) -> String {
        match self {
            Self::End(completed) => named(completed),
            Self::Update(opened) => opened.signature.to_string(),
        }
    }
}

impl Recorded {
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut recorded = Self::default();
        for entry in entries {
            recorded.events += 1;
            match entry.what {
                HistoryEvent::OperationOpened(opened) => {
                    recorded.last = recorded.last.max(opened.operation);
                    if opened.signature.operation_kind == OperationKind::Update {
                        let begun = Recalled::Update(opened.clone());
                        recorded.brought.push_back(begun);
                    }
                    recorded.opened.insert(opened.operation, opened);
                }
                HistoryEvent::OperationRetried(tried) => {
                    recorded.tried.insert(tried.operation, tried);
                }
                HistoryEvent::OperationCompleted(completed) => recorded.complete(completed),
                _ => {}
            }
        }
        recorded
    }

    fn complete(&mut self, completed: Completed) {
        self.last = self.last.max(completed.operation.unwrap_or_default());
        let number = completed.operation;
        match (completed.operation_kind, number) {
            (OperationKind::Version, _) => {
                if let (Some(change), Ending::Value(value)) = (completed.name, completed.outcome) {
                    self.versions.insert(change, value.to().unwrap_or_default());
                }
            }
            (OperationKind::LongHistory, _) => {
                if let Ending::Value(after) = completed.outcome {
                    self.long_since = after.to().ok();
                }
            }
            (kind, Some(number)) if completed.outcome == Ending::Abandoned => {
                self.abandoned.insert(number, kind);
            }
            (kind, Some(number)) if is_on_the_spot(kind) => {
                self.on_the_spot.insert(number, completed);
            }
            (OperationKind::Update, Some(number)) => {
                self.answered.insert(number, completed);
            }
            _ => self.brought.push_back(Recalled::End(completed)),
        }
    }

    /// Drops everything that is not needed after the code has reached the end of the history.
    pub fn forget(&mut self) {
        *self = Self {
            versions: std::mem::take(&mut self.versions),
            last: self.last,
            ..Self::default()
        };
    }

    /// Describes the recorded operation with this number.
    pub fn name_of(&self, number: u32) -> Option<String> {
        let opened = self
            .opened
            .get(&number)
            .map(|opened| opened.signature.to_string());
        opened.or_else(|| self.on_the_spot.get(&number).map(named))
    }
}

/// `true` if an operation of this kind ends as soon as the code requests it, or when its own branches have ended.
const fn is_on_the_spot(kind: OperationKind) -> bool {
    matches!(
        kind,
        OperationKind::Now
            | OperationKind::Random
            | OperationKind::Uuid
            | OperationKind::SideEffect
            | OperationKind::All
            | OperationKind::Select
    )
}

/// Describes a completed operation.
pub(super) fn named(completed: &Completed) -> String {
    match &completed.name {
        Some(name) => format!("{} {:?}", completed.operation_kind, name.as_str()),
        None => completed.operation_kind.to_string(),
    }
}

/// Makes a completed operation with a value, and no other details.
pub(super) fn came_to(operation: Option<u32>, kind: OperationKind, value: Json) -> Completed {
    Completed {
        operation,
        operation_kind: kind,
        name: None,
        message: None,
        arguments: None,
        attempts: None,
        duration_us: None,
        graph_step: None,
        outcome: Ending::Value(value),
    }
}
