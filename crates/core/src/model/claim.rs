//! A worker's claim on an instance, and everything that the worker needs to run the step.

use serde::{Deserialize, Serialize};

use super::coded::coded;
use super::{
    BarrierNumber, Child, Command, Epoch, Inbox, InstanceId, Json, Key, Kind, Name, Policy,
    Priority, Row, Timestamp, WorkerId,
};

/// A worker's claim on an instance, fenced by its epoch.
///
/// Only claiming grants a claim, and committing takes it by value, so a claim cannot be committed twice. It is a proof,
/// not a lock: the database decides at the commit whether it is still valid.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    id: InstanceId,
    epoch: Epoch,
    worker: WorkerId,
    partition: Option<Key>,
    parent: Option<ParentRef>,
}

/// The parent's id and partition, stored in a child's claim so that both rows can be locked together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentRef {
    /// The parent.
    pub id: InstanceId,
    /// The parent's partition.
    pub partition: Option<Key>,
}

impl Claim {
    /// Creates the claim that a store grants after it has marked the row. Only stores need this.
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

    /// The instance that is held.
    pub const fn id(&self) -> InstanceId {
        self.id
    }

    /// The epoch of the claim.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The worker that holds the instance.
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

    /// Returns a copy, for a transaction that is retried.
    #[must_use]
    pub fn again(&self) -> Self {
        self.renewed(self.epoch)
    }

    /// Returns the claim that follows a commit which kept it. Only the kernel needs this.
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

/// The lease of a claim that has its own: that of a worker which names what it holds (rule 6.4). Other claims are valid
/// as long as the lease of their worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When it expires; never after the limit.
    pub until: Timestamp,
    /// When the step exceeds its time limit, if it has one (rule 5.4).
    pub limit: Option<Timestamp>,
}

/// A claimed instance: the claim, and the data that its step runs on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The claim.
    pub claim: Claim,
    /// The instance's key.
    pub key: Option<Key>,
    /// Its kind: machine or workflow.
    pub kind: Kind,
    /// The machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// The step to run.
    pub step: Name,
    /// The number of this step in the run; the same when the step runs again.
    pub step_seq: u32,
    /// Number of times that this step was begun before.
    pub attempt: u32,
    /// Number of these attempts in which its worker died (rule 5.5).
    #[serde(default)]
    pub deaths: u32,
    /// The state.
    pub state: Json,
    /// The queue that it was claimed from.
    pub queue: Name,
    /// Its priority.
    pub priority: Priority,
    /// When it was due.
    pub due_at: Timestamp,
    /// The reason why it runs.
    pub cause: Cause,
    /// `true` if its wait timed out.
    pub timed_out: bool,
    /// The barrier that it joins, if any.
    pub joins: Option<BarrierNumber>,
    /// Number of its children that have not ended: those of the last barrier or, for a workflow, of all barriers.
    pub children_pending: u32,
    /// Number of ends of children that it had been notified of when it was claimed.
    pub children_ended: u64,
    /// The children of that barrier.
    pub children: Vec<Child>,
    /// The pending signals that it waited for, in order.
    pub awaited: Vec<Command>,
    /// The updates to answer first, in order.
    pub updates: Vec<Command>,
    /// `true` if there is nothing to run but the updates.
    pub aside: bool,
    /// The counters of its inbox, which say what to load.
    pub inbox: Inbox,
    /// The signals that it waited for.
    pub awaits: Vec<Name>,
    /// Its own failure policy, where that differs from what its machine declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

impl Claimed {
    /// Creates a claimed instance from its row, without the rows around it: its children and commands.
    pub fn new(
        claim: Claim,
        row: &Row,
        version: u32,
        key: Option<Key>,
        state: Json,
        policy: Option<Policy>,
    ) -> Self {
        let awaits = row.awaits.as_ref();
        Self {
            claim,
            key,
            kind: row.kind,
            machine: row.machine.clone(),
            version,
            step: row.step.clone(),
            step_seq: row.step_seq,
            attempt: row.attempt,
            deaths: row.deaths,
            state,
            queue: row.queue.clone(),
            priority: row.priority,
            due_at: row.due_at.unwrap_or_default(),
            cause: row.cause,
            timed_out: row.timed_out,
            joins: awaits.and_then(|awaits| awaits.joins(row.family.barrier)),
            children_pending: row.family.pending,
            children_ended: row.family.ended,
            children: Vec::new(),
            awaited: Vec::new(),
            updates: Vec::new(),
            aside: row.aside.is_some(),
            inbox: row.inbox,
            awaits: awaits.map_or_else(Vec::new, |awaits| awaits.signals().to_vec()),
            policy,
        }
    }
}

coded! {
    /// The reason why an instance runs.
    #[derive(Default)]
    pub enum Cause {
        /// It was started.
        #[default]
        Start = 0, "start";
        /// The previous step continued with this one.
        Next = 1, "next";
        /// The step asked to run again.
        Retry = 2, "retry";
        /// A signal arrived.
        Signal = 3, "signal";
        /// An event matched.
        Event = 4, "event";
        /// Its deadline passed, or its time came.
        Timeout = 5, "timeout";
        /// Its children have ended.
        Children = 6, "children";
        /// An update arrived.
        Update = 7, "update";
        /// The worker that held it died, or gave it back.
        Reclaim = 8, "reclaim";
        /// Its code did not match its history, and is tried again.
        Replay = 9, "replay";
    }
}

/// A machine and a version that a worker has code for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// The machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
}
