//! The language of writes: what can be asked of a store, and what it answers.

use std::time::Duration;

use abide_core::model::{
    Cancel, Claim, Claimed, Commit, Committed, Contract, Declared, Delivered, Delivery, Heartbeat,
    InstanceId, Key, Lane, Name, Operated, Publish, Published, Refusal, Start, Started, Target,
    Timestamp, Worker, WorkerId,
};

/// A request to change something. A list of them is one transaction.
#[derive(Debug)]
pub enum Op {
    /// Start instances; each entry has its own answer.
    Start(Vec<Start>),
    /// Make instances that have a key and no run yet; each entry has its own answer.
    Reserve(Vec<(Name, Key)>),
    /// Make known what machines there are.
    Declare {
        /// The machines.
        machines: Vec<Declared>,
        /// The contracts that they, and starts to come, name.
        contracts: Vec<Contract>,
    },
    /// Deliver signals and updates; each entry has its own answer.
    Deliver(Vec<Delivery>),
    /// Publish events; each entry has its own answer.
    Publish(Vec<Publish>),
    /// Cancel instances; each entry has its own answer.
    Cancel(Vec<Cancel>),
    /// Open a new run of failed or cancelled instances, at the step where they ended or at the one named.
    Restart(Vec<(Target, Option<Name>)>),
    /// Put right what is wrong with instances; each entry has its own answer.
    Repair(Vec<Target>),
    /// Look for what is wrong with the instances above an id, at most that many at once.
    Examine {
        /// Those above that one.
        after: InstanceId,
        /// At most that many.
        limit: usize,
    },
    /// Let workflows be tried again whose code did not fit their history, of these lanes, above an id, at most that many
    /// at once.
    ReleaseBlocked {
        /// What there is code for now.
        lanes: Vec<Lane>,
        /// Those above that one.
        after: InstanceId,
        /// At most that many.
        limit: usize,
    },
    /// Claim what is runnable.
    Claim(ClaimRequest),
    /// Commit what steps have answered; each entry has its own answer.
    Commit {
        /// The outcomes.
        commits: Vec<Commit>,
        /// What this worker serves, to see whether more urgent work waits for it when a claim would be kept.
        serves: Vec<(Name, Vec<Lane>)>,
    },
    /// Give claims back; who lost one meanwhile is not told.
    GiveBack(Vec<Claim>),
    /// Give back whatever a worker holds that is not named here: claims whose answer got lost.
    GiveBackExcept {
        /// The worker.
        worker: WorkerId,
        /// What it knows that it holds.
        known: Vec<InstanceId>,
        /// At most that many at once.
        limit: usize,
    },
    /// Make runnable what is due, at most that many at once.
    Fire {
        /// At most that many.
        limit: usize,
    },
    /// Make a worker known and take back what an earlier process of its name held.
    Register(NewWorker),
    /// Say that a worker lives.
    Renew {
        /// The worker.
        worker: WorkerId,
        /// For how long it is to be believed.
        lease: Duration,
    },
    /// Take from dead workers what they held, at most that many at once.
    Reclaim {
        /// At most that many.
        limit: usize,
    },
    /// Give back all that a worker holds and forget it, at most that many at once.
    SignOff {
        /// The worker.
        worker: WorkerId,
        /// At most that many.
        limit: usize,
    },
    /// Delete finished instances whose retention is over.
    Sweep(SweepRequest),
}

/// A request for work.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who asks.
    pub worker: WorkerId,
    /// The queue.
    pub queue: Name,
    /// What the worker has code for.
    pub lanes: Vec<Lane>,
    /// At most that many.
    pub limit: usize,
}

/// A worker that makes itself known.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// Its name.
    pub name: Name,
    /// For how long it is to be believed.
    pub lease: Duration,
    /// The queues it serves.
    pub queues: Vec<Name>,
    /// What it has code for.
    pub lanes: Vec<Lane>,
}

/// A request to delete finished instances, a bounded number at a time.
#[derive(Clone, Copy, Debug)]
pub struct SweepRequest {
    /// Those that finished before that moment.
    pub before: Timestamp,
    /// Where the last batch ended; those that were spared are not looked at again in the same pass.
    pub after: Option<Cursor>,
    /// At most that many.
    pub limit: usize,
}

/// A place in the order in which instances finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// When the last one finished.
    pub finished_at: Timestamp,
    /// Which it was.
    pub id: InstanceId,
}

/// What became of an [`Op`].
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of each start, in order.
    Started(Vec<Result<Started, Refusal>>),
    /// What was claimed, in the order in which it is to run.
    Claimed(Vec<Claimed>),
    /// Of each commit, in order.
    Committed(Vec<Committed>),
    /// Of each delivery, in order.
    Delivered(Vec<Result<Delivered, Refusal>>),
    /// Of each event, in order.
    Published(Vec<Result<Published, Refusal>>),
    /// Of each instance that was to be cancelled, restarted or repaired, in order.
    Operated(Vec<Operated>),
    /// What is wrong with the instances that were looked at.
    Examined {
        /// How many were looked at.
        count: usize,
        /// What is wrong.
        findings: Vec<Finding>,
        /// The last one that was looked at; `None` when there are no more.
        next: Option<InstanceId>,
    },
    /// So many workflows are tried again.
    Released {
        /// How many.
        count: usize,
        /// The last one that was looked at; `None` when there are no more.
        next: Option<InstanceId>,
    },
    /// The worker was registered.
    Registered(Worker),
    /// The worker lives on, or does not.
    Heartbeat(Heartbeat),
    /// So many rows were touched; whether there may be more.
    Touched {
        /// How many.
        count: usize,
        /// Whether there may be more.
        more: bool,
    },
    /// So many instances were deleted.
    Swept {
        /// How many.
        deleted: usize,
        /// Where to go on; `None` at the end of the pass.
        next: Option<Cursor>,
    },
    /// It is done, and there is nothing to tell.
    Done,
}

/// Something that is wrong with an instance.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The instance.
    pub instance: InstanceId,
    /// What is wrong with it.
    pub problem: String,
}
