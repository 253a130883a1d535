//! Which finished instances may be deleted.

use std::time::Duration;

use crate::model::{BarrierNumber, Status};

/// How long the answer to a request is remembered (rule 1.5).
pub const REQUESTS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// A finished instance whose retention is over, with what its parent still needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Of which of its parent's barriers it is.
    pub parent_barrier: BarrierNumber,
    /// Its parent's status and last barrier, when there still is a parent.
    pub parent: Option<(Status, BarrierNumber)>,
}

/// Whether it must stay: its parent still joins, or has yet to read, the barrier it belongs to (rule 16.2).
pub fn is_spared(expired: &Expired) -> bool {
    expired
        .parent
        .is_some_and(|(status, barrier)| !status.is_terminal() && barrier == expired.parent_barrier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_spared_while_its_barrier_is_the_parents_last() {
        // rule 16.2
        let child = |status, barrier| Expired {
            parent_barrier: BarrierNumber(2),
            parent: Some((status, BarrierNumber(barrier))),
        };
        assert!(
            is_spared(&child(Status::AwaitingChildren, 2))
                && is_spared(&child(Status::Executing, 2))
        );
        assert!(
            !is_spared(&child(Status::Done, 2)) && !is_spared(&child(Status::AwaitingChildren, 3))
        );
        assert!(!is_spared(&Expired {
            parent_barrier: BarrierNumber(0),
            parent: None
        }));
    }
}
