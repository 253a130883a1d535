//! The order of instances within a partition.
//!
//! Of the instances of one partition that are runnable or executing, exactly one is at the front. The others, however
//! many there are, are behind it, and a claim does not see them. So claiming never has to step over them (rule 6.2),
//! and a unique index over the front enforces that at most one executes (rule 6.3).

use crate::model::{InstanceId, Priority, Status, Timestamp};

/// An instance that is at the front of a partition, or could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The instance.
    pub id: InstanceId,
    /// `runnable` or `executing`.
    pub status: Status,
    /// Its priority.
    pub priority: Priority,
    /// Since when it has been due.
    pub due_at: Timestamp,
}

impl Contender {
    /// The order within a queue (rule 6.1).
    fn order(&self) -> (Priority, Timestamp, InstanceId) {
        (self.priority, self.due_at, self.id)
    }
}

/// The changes that put the right instance at the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Change {
    /// This one moves behind.
    pub back: Option<InstanceId>,
    /// Then this one moves to the front.
    pub front: Option<InstanceId>,
}

/// Decides which instance is at the front, given the current one and the first runnable one in order.
pub fn settle(front: Option<Contender>, first: Option<Contender>) -> Change {
    match (front, first) {
        (None, first) => Change {
            back: None,
            front: first.map(|first| first.id),
        },
        (Some(front), Some(first))
            if front.status == Status::Runnable && first.order() < front.order() =>
        {
            Change {
                back: Some(front.id),
                front: Some(first.id),
            }
        }
        (Some(_), _) => Change::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(id: i64, status: Status, priority: i16) -> Option<Contender> {
        Some(Contender {
            id: InstanceId(id),
            status,
            priority: Priority(priority),
            due_at: Timestamp::from_micros(5),
        })
    }

    #[test]
    fn the_first_in_order_comes_to_an_empty_front() {
        // rule 6.3
        assert_eq!(
            settle(None, contender(1, Status::Runnable, 0)).front,
            Some(InstanceId(1))
        );
        assert_eq!(settle(None, None), Change::default());
    }

    #[test]
    fn the_more_urgent_passes_one_that_has_not_begun() {
        // rule 6.3: in the order of rule 6.1
        let change = settle(
            contender(1, Status::Runnable, 5),
            contender(2, Status::Runnable, 1),
        );
        assert_eq!(
            change,
            Change {
                back: Some(InstanceId(1)),
                front: Some(InstanceId(2))
            }
        );
        let same = settle(
            contender(1, Status::Runnable, 1),
            contender(2, Status::Runnable, 1),
        );
        assert_eq!(same, Change::default());
    }

    #[test]
    fn no_instance_passes_one_that_executes() {
        // rule 6.3
        let change = settle(
            contender(1, Status::Executing, 5),
            contender(2, Status::Runnable, 1),
        );
        assert_eq!(change, Change::default());
    }
}
