//! The writes of a transaction as data: `Write`, those without an answer, and `Forget`, those that delete old rows and
//! count them.

use abide_core::model::{
    Closing, Command, ContractId, Declared, DocumentKind, InstanceId, Json, Name, NewRow, OutboxId,
    RequestId, Timestamp, Waiter, Worker, WorkerId,
};

use crate::{MovedHistory, OutboxProblem, PathId, Term};

/// A write without an answer. A time without a name is the current time.
#[derive(Clone, Copy, Debug)]
pub enum Write<'w> {
    /// Writes declarations. They replace those of the same machine and version.
    Declare(&'w [Declared]),
    /// Replaces history rows by others, under numbers that no row had before.
    MoveHistory(&'w [MovedHistory]),
    /// Writes a start into a reserved row: all columns that [`insert`](crate::Txn::insert) would write.
    Open(InstanceId, &'w NewRow),
    /// Marks runs as superseded by a newer run: they no longer hold a key, and have no place at their parent's barrier
    /// (their `parent_barrier` becomes 0).
    Supersede(&'w [InstanceId]),
    /// Deletes instances. Their histories and records must be deleted already, except the records that belong to their
    /// chains.
    Delete(&'w [InstanceId]),
    /// Deletes the records that were accepted with a dedup key in these chains.
    ForgetChains(&'w [InstanceId]),
    /// Changes the order of partitions.
    Reorder {
        /// The rows to mark as behind, first.
        back: &'w [InstanceId],
        /// The rows to move to the front, then.
        front: &'w [InstanceId],
    },
    /// Replaces a worker's lease, queues and lanes.
    RewriteWorker(&'w Worker),
    /// Ends the leases of these workers.
    ExpireWorkers(&'w [WorkerId], Timestamp),
    /// Writes contracts by id, as used now. Existing contracts are not changed.
    Define(&'w [(ContractId, Json)], Timestamp),
    /// Records that contracts are used.
    NoteContracts {
        /// The contracts, sorted.
        ids: &'w [ContractId],
        /// Those whose last recorded use is later are left out.
        before: Timestamp,
        /// The current time.
        now: Timestamp,
    },
    /// Deletes contracts.
    ForgetContracts(&'w [ContractId]),
    /// Writes documents, which replace those of the same kind and name, or deletes those without a body. They must be
    /// sorted by kind and name, and distinct.
    Keep(&'w [(DocumentKind, &'w Name, Option<&'w Json>)], Timestamp),
    /// Inserts records.
    InsertCommands(&'w [Command]),
    /// Overwrites whole records that were held.
    RewriteCommands(&'w [Command]),
    /// Closes pending records.
    Close(&'w [Closing], Timestamp),
    /// Moves the pending commands of the first instance of each pair to the second, and numbers them anew: 1, 2, 3 … in
    /// the order of their sequence.
    MovePending(&'w [(InstanceId, InstanceId)]),
    /// Inserts waiters, and adds them to the count.
    OpenWaiters(&'w [Waiter]),
    /// Deletes the waiters of these instances, and subtracts them from the count.
    CloseWaiters(&'w [InstanceId]),
    /// Records that a path is used, unless another transaction has locked it.
    UsePath(PathId, Timestamp),
    /// Writes new terms of events. None of them may exist yet.
    WriteTerms(&'w [Term]),
    /// Writes the answers to requests that were new, each as JSON; `None` for an answer that was too large.
    Remember(&'w [(&'w RequestId, Option<&'w str>)], Timestamp),
    /// Records some of the held rows of the outbox as refused, and deletes all held rows.
    SettleOutbox {
        /// The held rows.
        held: &'w [OutboxId],
        /// Those to record as refused.
        refused: &'w [(OutboxId, OutboxProblem)],
        /// The current time.
        now: Timestamp,
    },
}

/// Rows that are not needed any more.
#[derive(Clone, Copy, Debug)]
pub enum Forget<'f> {
    /// Workers whose lease expired before this time and that hold nothing.
    Workers(Timestamp),
    /// Records that belong to no instance, arrived before this time and are not held.
    Records(Timestamp),
    /// Held records that expired by this time. They are not deleted, but marked as expired.
    Held(Timestamp),
    /// Events that were published before this time, with their terms. Only the events are counted.
    Events(Timestamp),
    /// Paths that were not used since this time. Their terms stay until their events are deleted.
    Paths(Timestamp),
    /// The answers to requests that were carried out before this time.
    Requests(Timestamp),
    /// Requests of the outbox that were refused before this time.
    Refused(Timestamp),
    /// These refused requests of the outbox.
    RefusedById {
        /// The requests.
        ids: &'f [OutboxId],
        /// `true` if they are inserted at the end of the outbox.
        again: bool,
    },
    /// The histories of these instances and the records of their commands. Records that were accepted with a dedup key
    /// belong to the chain, and are kept.
    Belongings(&'f [InstanceId]),
}
