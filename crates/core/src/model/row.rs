//! The part of an instance that rules decide over: loaded under lock, changed, written back.

use super::{
    BarrierNumber, Cause, Epoch, InstanceId, Key, Name, Priority, Status, Timestamp, WaitKind,
    WorkerId,
};

/// The part of an instance that rules decide over. States and results are not in it: no rule reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The instance.
    pub id: InstanceId,
    /// Where it stands.
    pub status: Status,
    /// The step that runs, or runs next.
    pub step: Name,
    /// The number of that step in the run.
    pub step_seq: u32,
    /// How often that step was begun before.
    pub attempt: u32,
    /// Its queue.
    pub queue: Name,
    /// How urgent.
    pub priority: Priority,
    /// When the engine must next look at it: when it is due, its wait's deadline, or since when it is runnable.
    pub due_at: Option<Timestamp>,
    /// Its partition.
    pub partition_key: Option<Key>,
    /// Whether another of its partition goes first.
    pub behind: bool,
    /// Who holds it.
    pub worker: Option<WorkerId>,
    /// Counts whatever ended a hold on it.
    pub epoch: Epoch,
    /// The last epoch under which an outcome was committed: tells a commit that is sent again from a stale one.
    pub settled: Epoch,
    /// What woke it, or will have.
    pub cause: Cause,
    /// Whether its wait ran into its deadline.
    pub timed_out: bool,
    /// What it waits for, or has been woken from and not yet moved on.
    pub awaits: Option<Awaits>,
    /// Whose child it is.
    pub parent: Option<InstanceId>,
    /// Of which of the parent's barriers.
    pub parent_barrier: BarrierNumber,
    /// Its own children.
    pub family: Family,
    /// Whether it keeps a history.
    pub history: bool,
    /// The number of the last event in its history.
    pub history_seq: u32,
    /// What it failed of.
    pub last_error: Option<String>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// What an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaits {
    /// Of which kind the wait is.
    pub kind: WaitKind,
    /// The signals that would wake it.
    pub names: Vec<Name>,
    /// Since when it waits.
    pub since: Timestamp,
}

/// An instance's children, as its barrier counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Family {
    /// How many barriers it has had; the last one's number.
    pub barrier: BarrierNumber,
    /// How many children of the last one have not ended.
    pub pending: u32,
    /// How many more of them must end before the barrier opens.
    pub needed: u32,
}
