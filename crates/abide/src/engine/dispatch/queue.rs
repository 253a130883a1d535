//! The queues that this worker serves.

use std::collections::VecDeque;

use abide_core::model::{Name, Refusal};

use super::steps::Sent;

/// A queue that this worker serves.
pub(super) struct Queue {
    pub name: Name,
    /// The maximum number of steps that run at a time.
    pub slots: usize,
    /// The number of slots that are held or requested.
    pub taken: usize,
    /// `true` if there may be work that was not requested yet.
    pub hungry: bool,
    /// `true` if the last claim returned as many instances as requested, so that two claims at a time are worthwhile.
    pub plenty: bool,
    /// The number of wakes. It shows if one arrived while a claim was in progress.
    pub wakes: u64,
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
            hungry: true,
            plenty: false,
            wakes: 0,
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
