//! What a run's history says of its operations, as replay needs it.

use std::collections::{HashMap, VecDeque};

use abide_core::model::{
    Completed, Ending, Entry, Happening, Json, Name, Opened, OperationKind, TriedAgain,
};

/// What a run's history says of its operations.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// What was begun, by number.
    pub opened: HashMap<u32, Opened>,
    /// The last failure of each step that was tried again.
    pub tried: HashMap<u32, TriedAgain>,
    /// What the code came by on the spot, by number: the time, random numbers, and which branches came first.
    pub on_the_spot: HashMap<u32, Completed>,
    /// What the code stopped waiting for, by number.
    pub abandoned: HashMap<u32, OperationKind>,
    /// Which way the code went at each change, by its name.
    pub versions: HashMap<Name, u32>,
    /// After how many operations the history was long.
    pub long_since: Option<u32>,
    /// What was brought to the code, in order.
    pub brought: VecDeque<Completed>,
    /// The highest number.
    pub last: u32,
    /// How many events there are.
    pub events: usize,
}

impl Recorded {
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut recorded = Self::default();
        for entry in entries {
            recorded.events += 1;
            match entry.what {
                Happening::OperationOpened(opened) => {
                    recorded.last = recorded.last.max(opened.operation);
                    recorded.opened.insert(opened.operation, opened);
                }
                Happening::OperationRetried(tried) => {
                    recorded.tried.insert(tried.operation, tried);
                }
                Happening::OperationCompleted(completed) => recorded.complete(completed),
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
            _ => self.brought.push_back(completed),
        }
    }

    /// Forgets all that nobody asks for when the code has come to where the history ends.
    pub fn forget(&mut self) {
        *self = Self {
            versions: std::mem::take(&mut self.versions),
            last: self.last,
            ..Self::default()
        };
    }

    /// What an operation was recorded as.
    pub fn name_of(&self, number: u32) -> Option<String> {
        let opened = self
            .opened
            .get(&number)
            .map(|opened| opened.signature.to_string());
        opened.or_else(|| self.on_the_spot.get(&number).map(named))
    }
}

/// Whether an operation of that kind is over as soon as the code asks for it, or when its own branches are.
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

/// A completed operation in words.
pub(super) fn named(completed: &Completed) -> String {
    match &completed.name {
        Some(name) => format!("{} {:?}", completed.operation_kind, name.as_str()),
        None => completed.operation_kind.to_string(),
    }
}

/// An operation that came to a value, and has nothing else to tell.
pub(super) fn came_to(operation: Option<u32>, kind: OperationKind, value: Json) -> Completed {
    Completed {
        operation,
        operation_kind: kind,
        name: None,
        message: None,
        arguments: None,
        attempts: None,
        duration_us: None,
        outcome: Ending::Value(value),
    }
}
