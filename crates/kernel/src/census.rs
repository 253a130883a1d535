//! Counts over a whole store, for operators and warnings. They are bounded, and use indexes.

use std::collections::BTreeMap;

use abide_core::model::{Lane, Name, Status};
use serde::{Deserialize, Serialize};

/// The maximum number of lanes that [`Store::ready_lanes`](crate::Store::ready_lanes) returns.
pub const READY_LANES: usize = 1_000;

/// The maximum number of ended instances that [`Store::tally`](crate::Store::tally) counts.
pub const ENDED_COUNTED: u64 = 1_000_000;

/// A lane that has instances ready to run in a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReadyLane {
    /// The queue.
    pub queue: Name,
    /// The machine and its version.
    #[serde(flatten)]
    pub lane: Lane,
}

/// The number of instances that need attention, and the number that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Blocked instances: open, without a due time, because no build that tried could run them (rule 12.4).
    pub blocked: u64,
    /// Failing instances (rule 13.1): open, not blocked, and their step has failed more than three times in a row.
    pub failing: u64,
    /// Ended instances that are still stored, by status. At most [`ENDED_COUNTED`] are counted.
    pub ended: BTreeMap<Status, u64>,
}

impl Tally {
    /// `true` if there are more ended instances than were counted.
    pub fn is_cut(&self) -> bool {
        self.ended.values().sum::<u64>() >= ENDED_COUNTED
    }
}
