//! The rows around an instance, as a store reads them.

use serde::{Deserialize, Serialize};

use crate::model::{CommandId, EventSequence, Lane, Name, Sequence, Status};

/// Maximum number of children of one instance that a store reads, the newest ones. If there are more, the others are
/// assumed to be healthy.
pub const CHILDREN_SEEN: u32 = 20_000;

/// Maximum number of names of pending signals, and of types of awaited events, that a store reads for one instance.
pub const NAMES_SEEN: u32 = 20;

/// The rows around an instance that has not ended, counted and probed by the store, all at the same moment as the
/// instance's own row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Around {
    /// Number of signals that are pending in its inbox.
    pub signals: u32,
    /// Number of updates and cancellations that are pending.
    pub updates: u32,
    /// The first pending signal with a name that it waits for and that it was not handed.
    pub missed_signal: Option<CommandId>,
    /// The newest pending update or cancellation, and its position; read if the instance is parked.
    pub newest_update: Option<(CommandId, Sequence)>,
    /// `true` if the worker that its row names is known, live or not.
    pub has_holder: bool,
    /// `true` if its partition has an instance at its front; read if this one is behind.
    pub has_front: bool,
    /// Its children, if it waits for children: those of its last barrier, or all of a workflow; the newest
    /// [`CHILDREN_SEEN`].
    pub children: Vec<Siblings>,
    /// The names of the pending signals, each with the first of them, if the instance waits for signals; at most
    /// [`NAMES_SEEN`].
    #[serde(default)]
    pub pending_names: Vec<(Name, CommandId)>,
    /// The newest event of a type that it waits for that was published since the wait began. It did not match;
    /// otherwise it would have ended the wait.
    #[serde(default)]
    pub unmatched_event: Option<UnmatchedEvent>,
}

/// An event of a type that an instance waits for and that did not match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmatchedEvent {
    /// Its position.
    pub sequence: EventSequence,
    /// Its type.
    pub event_type: Name,
    /// Its id.
    pub event_id: Name,
}

/// A group of children of one instance that are in the same state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Siblings {
    /// Their status.
    pub status: Status,
    /// `true` if they have a due time.
    pub is_due: bool,
    /// The queue and the lane that a worker must serve to run them, if they are runnable.
    pub runs_on: Option<(Name, Lane)>,
    /// Number of children in the group.
    pub count: u32,
}

impl Around {
    pub(super) fn count(&self, which: impl Fn(&Siblings) -> bool) -> u32 {
        let counts = self.children.iter().filter(|one| which(one));
        counts.map(|one| one.count).fold(0, u32::saturating_add)
    }

    /// Returns the number of its children that have not ended. `None` if it has more than were read.
    pub(super) fn children_open(&self) -> Option<u32> {
        let is_whole = self.count(|_| true) < CHILDREN_SEEN;
        is_whole.then(|| self.count(|one| !one.status.is_terminal()))
    }
}
