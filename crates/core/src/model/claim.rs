//! A worker's hold on an instance, and all that it needs to run the step.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    BarrierNumber, Child, Command, Epoch, Inbox, InstanceId, Json, Key, Kind, Name, Priority,
    Timestamp, WorkerId,
};

/// A worker's hold on an instance, fenced by its epoch.
///
/// Only claiming grants one, and committing takes it by value, so that one hold cannot be committed twice. It is a
/// proof, not a lock: the database decides at the commit whether it still stands.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    id: InstanceId,
    epoch: Epoch,
    worker: WorkerId,
    partition: Option<Key>,
    parent: Option<ParentRef>,
}

/// What a child knows of its parent, so that both can be locked together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentRef {
    /// The parent.
    pub id: InstanceId,
    /// The parent's partition.
    pub partition: Option<Key>,
}

impl Claim {
    /// What a store grants when it has marked the row; nobody else has a reason to call this.
    pub const fn granted(
        id: InstanceId,
        epoch: Epoch,
        worker: WorkerId,
        partition: Option<Key>,
        parent: Option<ParentRef>,
    ) -> Self {
        Self {
            id,
            epoch,
            worker,
            partition,
            parent,
        }
    }

    /// The instance held.
    pub const fn id(&self) -> InstanceId {
        self.id
    }

    /// The epoch it is held under.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Who holds it.
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }

    /// The instance's partition.
    pub const fn partition(&self) -> Option<&Key> {
        self.partition.as_ref()
    }

    /// The instance's parent.
    pub const fn parent(&self) -> Option<&ParentRef> {
        self.parent.as_ref()
    }

    /// The same hold once more, for a transaction that is tried again.
    #[must_use]
    pub fn again(&self) -> Self {
        self.renewed(self.epoch)
    }

    /// The hold that follows a commit which kept it; only the kernel has a reason to call this.
    #[must_use]
    pub fn renewed(&self, epoch: Epoch) -> Self {
        Self {
            epoch,
            worker: self.worker,
            id: self.id,
            partition: self.partition.clone(),
            parent: self.parent.clone(),
        }
    }
}

/// How long a hold is believed in that has a lease of its own: that of a worker which names what it holds (rule 6.4).
/// Other holds are believed in as long as their worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When it runs out; never after the limit.
    pub until: Timestamp,
    /// When the step has passed its time limit, if it has one (rule 5.4).
    pub limit: Option<Timestamp>,
}

impl Lease {
    /// A lease from now on, of a step that may take so long.
    pub fn new(now: Timestamp, lease: Duration, limit: Option<Duration>) -> Self {
        let limit = limit.map(|limit| now + limit);
        Self {
            until: limit.map_or(now + lease, |limit| limit.min(now + lease)),
            limit,
        }
    }

    /// Whether it has run out.
    pub fn is_over(self, now: Timestamp) -> bool {
        self.until <= now
    }

    /// Whether it has run out because the step took too long: it was believed in up to its limit. One that ran out before
    /// that is of a worker that died, however late that is noticed.
    pub fn is_past_limit(self, now: Timestamp) -> bool {
        self.is_over(now) && self.limit.is_some_and(|limit| limit <= self.until)
    }

    /// The lease that a heartbeat makes of it: longer, never shorter, and never past the limit.
    #[must_use]
    pub fn extended(self, now: Timestamp, lease: Duration) -> Self {
        let until = self.until.max(now + lease);
        Self {
            until: self.limit.map_or(until, |limit| limit.min(until)),
            ..self
        }
    }
}

/// A claimed instance: the hold, and what its step runs on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The hold.
    pub claim: Claim,
    /// The instance's key.
    pub key: Option<Key>,
    /// Which front runs it.
    pub kind: Kind,
    /// The machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// The step to run.
    pub step: Name,
    /// The number of this step in the run: the same when it is run again.
    pub step_seq: u32,
    /// How often this step was begun before.
    pub attempt: u32,
    /// The state.
    pub state: Json,
    /// The queue it came from.
    pub queue: Name,
    /// How urgent it is.
    pub priority: Priority,
    /// When it was due.
    pub due_at: Timestamp,
    /// What woke it.
    pub cause: Cause,
    /// Whether its wait ran into its deadline.
    pub timed_out: bool,
    /// The barrier that it joins, when it does.
    pub joins: Option<BarrierNumber>,
    /// How many of its children have not ended: of the last barrier, or, of a workflow, of all.
    pub children_pending: u32,
    /// How many ends of children it had been told of when it was claimed.
    pub children_ended: u64,
    /// The children of that barrier.
    pub children: Vec<Child>,
    /// The pending signals that it waited for, in order.
    pub awaited: Vec<Command>,
    /// The updates to answer first, in order.
    pub updates: Vec<Command>,
    /// Whether there is nothing to run but the updates.
    pub aside: bool,
    /// What to load of its inbox.
    pub inbox: Inbox,
    /// The signals that it waited for.
    pub awaits: Vec<Name>,
}

/// What made an instance run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Cause {
    /// It was started.
    #[default]
    Start = 0,
    /// The step before it went on to this one.
    Next = 1,
    /// The step asked to be run again.
    Retry = 2,
    /// A signal came.
    Signal = 3,
    /// An event matched.
    Event = 4,
    /// The time was up.
    Timeout = 5,
    /// Its children have ended.
    Children = 6,
    /// An update came.
    Update = 7,
    /// The worker that held it died, or gave it back.
    Reclaim = 8,
    /// Its code did not fit its history, and is tried again.
    Replay = 9,
}

impl Cause {
    const ALL: [Self; 10] = [
        Self::Start,
        Self::Next,
        Self::Retry,
        Self::Signal,
        Self::Event,
        Self::Timeout,
        Self::Children,
        Self::Update,
        Self::Reclaim,
        Self::Replay,
    ];

    /// The number that stands for it in the databases.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Next => "next",
            Self::Retry => "retry",
            Self::Signal => "signal",
            Self::Event => "event",
            Self::Timeout => "timeout",
            Self::Children => "children",
            Self::Update => "update",
            Self::Reclaim => "reclaim",
            Self::Replay => "replay",
        }
    }

    /// Reads the number back; what a newer release wrote reads as `start`.
    pub fn from_code(code: i16) -> Self {
        usize::try_from(code)
            .ok()
            .and_then(|at| Self::ALL.get(at).copied())
            .unwrap_or_default()
    }
}

/// The instances that a worker has code for: one machine in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// The machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lease_never_gets_shorter_and_never_passes_its_limit(
            lease in 0u64..100, limit in proptest::option::of(0u64..200), beats in proptest::collection::vec((0u64..50, 0u64..100), 0..9)
        ) {
            // rules 5.4 and 6.4
            let (mut now, seconds) = (Timestamp::from_micros(5), Duration::from_secs);
            let mut held = Lease::new(now, seconds(lease), limit.map(seconds));
            for (pause, lease) in beats {
                now = now + seconds(pause);
                let next = held.extended(now, seconds(lease));
                prop_assert!(next.until >= held.until && next.limit == held.limit);
                prop_assert!(next.limit.is_none_or(|limit| next.until <= limit));
                held = next;
            }
            let past = held.is_past_limit(held.until);
            prop_assert_eq!(past, held.limit == Some(held.until));
            prop_assert!(!held.is_over(held.until - Duration::from_micros(1)));
        }
    }
}
