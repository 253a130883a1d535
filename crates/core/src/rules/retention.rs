//! Retention: which ended instances may be deleted, and how long other records are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{InstanceId, Status};

/// Time for which the answer to a request is kept (rule 1.5).
pub const REQUESTS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Time for which a contract is kept that no instance and no machine names (rule 16.2).
pub const CONTRACTS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Interval at which the use of a contract is recorded. A process that has sent a contract sends it again after that
/// time.
pub const CONTRACTS_NOTED: Duration = Duration::from_secs(3600);

/// Interval at which the use of a path that waits look back on is recorded, so that not every such wait writes its row.
pub const PATHS_NOTED: Duration = Duration::from_secs(3600);

/// Time for which a dead worker is kept, so that histories can name it.
pub const WORKERS_KEPT: Duration = Duration::from_secs(3600);

/// An instance within its family: its status and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kin {
    /// Its status.
    pub status: Status,
    /// The parent at one of whose barriers it has its place. A run that was followed by another has given its place to
    /// that run.
    pub parent: Option<InstanceId>,
}

/// `true` if an ended instance with that parent must be kept: an ancestor has not ended, and each instance on the way
/// to it has its place at the barrier of the next (rule 16.2). `family` contains the parents, as far up as [`next_up`]
/// asks for them; a parent that is missing was deleted.
pub fn is_spared(parent: Option<InstanceId>, family: &BTreeMap<InstanceId, Kin>) -> bool {
    let mut above = parent;
    // No instance is its own ancestor; but corrupt rows must not cause an endless loop.
    for _ in 0..=family.len() {
        match above.and_then(|id| family.get(&id)) {
            Some(kin) if !kin.status.is_terminal() || kin.status == Status::Failed => return true,
            Some(kin) => above = kin.parent,
            None => return false,
        }
    }
    false
}

/// Returns the parent that must be loaded next, after this one.
pub fn next_up(kin: &Kin) -> Option<InstanceId> {
    kin.parent.filter(|_| kin.status.is_terminal())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kin(status: Status, parent: i64) -> Kin {
        Kin {
            status,
            parent: (parent > 0).then_some(InstanceId(parent)),
        }
    }

    fn spared(parent: i64, family: &[(i64, Kin)]) -> bool {
        let family = family.iter().map(|(id, kin)| (InstanceId(*id), *kin));
        is_spared(Some(InstanceId(parent)), &family.collect())
    }

    #[test]
    fn a_child_is_spared_while_an_ancestor_has_not_ended() {
        // rule 16.2
        for live in [
            Status::AwaitingChildren,
            Status::AwaitingSignal,
            Status::Scheduled,
            Status::Executing,
        ] {
            assert!(spared(1, &[(1, kin(live, 0))]), "{live:?}");
            let above = [
                (3, kin(Status::Failed, 2)),
                (2, kin(Status::Done, 1)),
                (1, kin(live, 0)),
            ];
            assert!(spared(3, &above), "{live:?}");
        }
    }

    #[test]
    fn an_instance_without_a_live_ancestor_is_not_spared() {
        // rule 16.2
        assert!(!is_spared(None, &BTreeMap::new()), "it has no parent");
        assert!(!spared(1, &[]), "its parent was deleted");
        assert!(!spared(1, &[(1, kin(Status::Done, 0))]));
        let above = [
            (2, kin(Status::Continued, 0)),
            (1, kin(Status::Scheduled, 0)),
        ];
        assert!(
            !spared(2, &above),
            "its parent gave its place to its next run"
        );
        let circle = [(1, kin(Status::Done, 2)), (2, kin(Status::Done, 1))];
        assert!(!spared(1, &circle));
    }

    #[test]
    fn ancestors_of_a_live_instance_are_not_loaded() {
        // rule 16.2: the cost of a sweep is that of its batch.
        assert_eq!(next_up(&kin(Status::Done, 7)), Some(InstanceId(7)));
        assert_eq!(next_up(&kin(Status::Scheduled, 7)), None);
        assert_eq!(next_up(&kin(Status::Done, 0)), None);
    }
}
