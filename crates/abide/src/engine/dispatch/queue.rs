//! The queues that this worker serves.

use std::collections::VecDeque;

use abide_core::model::{Name, Refusal};
use abide_kernel::Demand;

use super::steps::Sent;

/// A queue that this worker serves.
pub(super) struct Queue {
    pub name: Name,
    /// The maximum number of steps that run at a time.
    pub slots: usize,
    /// The number of slots that are held or requested.
    pub taken: usize,
    pub demand: Demand,
    /// Refused outcomes, with their refusals. Their slots may have been given to others in the same transaction, so
    /// their error handlers may have to wait for a slot.
    pub refused: VecDeque<(Refusal, Sent)>,
}

impl Queue {
    pub fn new(name: Name, slots: usize) -> Self {
        Self {
            name,
            slots,
            taken: 0,
            demand: Demand::default(),
            refused: VecDeque::new(),
        }
    }

    /// Returns the next refused outcome whose error handler has a slot to run in.
    pub fn next_refused(&mut self) -> Option<(Refusal, Sent)> {
        let running = self.taken.saturating_sub(self.refused.len());
        (running < self.slots)
            .then(|| self.refused.pop_front())
            .flatten()
    }
}
