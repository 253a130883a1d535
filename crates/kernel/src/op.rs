//! The write side of a store as data: `Op`, the operations, and `Answer`, their results.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use abide_core::model::{
    Cancel, Claim, Claimed, CommandId, Commit, Committed, Contract, Declared, Delivered,
    DocumentKind, Heartbeat, InstanceId, Json, Key, Lane, Name, NewCommand, Operated, OutboxId,
    Publish, Published, Refusal, RequestId, Start, Started, Target, Timestamp, Worker, WorkerId,
};

use crate::outbox::OutboxEntry;

/// An operation that changes something. A list of operations is one transaction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Start instances; each entry has its own answer.
    Start(Vec<Start>),
    /// Create instances that have a key and no run yet; each entry has its own answer.
    Reserve(Vec<(Name, Key)>),
    /// Declare machines.
    Declare {
        /// The machines.
        machines: Vec<Declared>,
        /// The contracts that the machines and later starts name.
        contracts: Vec<Contract>,
    },
    /// Deliver signals and updates; each entry has its own answer.
    Deliver(Vec<NewCommand>),
    /// Publish events; each entry has its own answer.
    Publish(Vec<Publish>),
    /// Cancel instances; each entry has its own answer.
    Cancel(Vec<Cancel>),
    /// Open a new run of failed or cancelled instances, at the step where they ended or at the one named.
    Restart(Vec<(Target, Option<Name>)>),
    /// Repair problems of instances; each entry has its own answer.
    Repair(Vec<Target>),
    /// Find problems of the instances above an id, at most `limit` of them.
    Examine {
        /// Only instances above this one.
        after: InstanceId,
        /// The maximum number of instances.
        limit: usize,
    },
    /// Retry instances that builds could not run, of these lanes, above an id, at most `limit` of them (rule 12.4).
    ReleaseBlocked {
        /// The current build. Instances that it could not run are not retried. `None` retries for every build.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        build: Option<Name>,
        /// `true` if a worker with that build has just registered. Then that build may retry too.
        #[serde(default)]
        fresh: bool,
        /// The lanes that there is code for.
        lanes: Vec<Lane>,
        /// Only instances above this one.
        after: InstanceId,
        /// The maximum number of instances.
        limit: usize,
    },
    /// Claim runnable instances.
    Claim(ClaimRequest),
    /// Commit the outcomes of steps; each entry has its own answer.
    Commit {
        /// The outcomes.
        commits: Vec<Commit>,
        /// The queues and lanes that this worker serves. Before a claim is kept, they are checked for more urgent work.
        serves: Vec<(Name, Vec<Lane>)>,
    },
    /// Give claims back. A claim that was lost meanwhile is not reported.
    GiveBack(Vec<Claim>),
    /// Give back everything that a worker holds and that is not named here: claims whose answer was lost.
    GiveBackExcept {
        /// The worker.
        worker: WorkerId,
        /// The instances that it knows it holds.
        known: Vec<InstanceId>,
        /// The maximum number of instances.
        limit: usize,
    },
    /// Make due instances runnable, and take back claims whose own lease has expired. Rows that another transaction has
    /// locked are skipped.
    Fire {
        /// The approximate number of instances; an exact maximum if nothing is locked.
        limit: usize,
    },
    /// Make the following operations of this transaction skip some instances. It applies to those that choose their
    /// instances themselves: [`Fire`](Self::Fire), [`Reclaim`](Self::Reclaim), [`SignOff`](Self::SignOff),
    /// [`SignOffNamed`](Self::SignOffNamed), [`GiveBackExcept`](Self::GiveBackExcept) and [`ReleaseBlocked`](Self::ReleaseBlocked).
    PassOver {
        /// The instances to skip.
        instances: Vec<InstanceId>,
        /// `true` if the following operations change nothing, and only return the instances that they would have
        /// chosen.
        name_only: bool,
    },
    /// Register a worker, and take back what an earlier process with its name held.
    Register(NewWorker),
    /// Register a worker that may be registered already: a living worker with its name continues, and also serves these
    /// queues and lanes. Nothing is taken back.
    Enlist(NewWorker),
    /// Renew the leases of workers. No lease gets shorter.
    Renew {
        /// The workers.
        workers: Vec<WorkerId>,
        /// The length of their new leases.
        lease: Duration,
    },
    /// Renew the leases of these claims and of their workers; each entry has its own answer. Claims that are not named
    /// expire. No lease gets shorter, and none gets longer than its step's time limit.
    Extend(Vec<Extension>),
    /// End the leases of the living workers with a name, because another process has taken that name.
    /// [`Reclaim`](Self::Reclaim) takes back what they hold.
    Expire {
        /// The name.
        name: Name,
    },
    /// Take back what dead workers hold, at most `limit` instances.
    Reclaim {
        /// The maximum number of instances.
        limit: usize,
    },
    /// Give back what a worker holds, at most `limit` instances. When nothing is left, end the worker's lease. Instances
    /// that are passed over do not prevent that: [`Reclaim`](Self::Reclaim) can take them back at once, as those of a
    /// worker that died.
    SignOff {
        /// The worker.
        worker: WorkerId,
        /// The maximum number of instances.
        limit: usize,
    },
    /// Give back what the living workers with a name hold, at most `limit` instances. End the leases of those that hold
    /// nothing any more.
    SignOffNamed {
        /// The name.
        name: Name,
        /// The maximum number of instances.
        limit: usize,
    },
    /// Delete finished instances whose retention is over.
    Sweep(SweepRequest),
    /// Record which contracts instances name, page by page, and then delete contracts that have not been named for
    /// long.
    Survey(Survey),
    /// Write documents, which replace those of the same kind and name, or delete those without a body.
    Keep(#[serde(with = "kept")] Vec<(DocumentKind, Name, Option<Json>)>),
    /// Carry out requests that may arrive more than once, each of them once. A request that was carried out before gets
    /// its first answer (rule 1.5). Each entry has its own answer.
    Once(Vec<Once>),
    /// Carry out requests of the outbox whose rows still exist, in order, record those that are refused, and delete the
    /// rows (rule 17.3). Of several transactions that take rows at the same time, one takes them; the others get the
    /// answer `busy`.
    Outbox(Vec<OutboxEntry>),
    /// Delete refused requests of the outbox, or return them to the outbox.
    Refused {
        /// The refused requests.
        ids: Vec<OutboxId>,
        /// `true` if they return to the outbox.
        again: bool,
    },
}

impl Op {
    /// `true` if a second run changes nothing more than the first, and its answer is as useful as the first. Outcomes
    /// are recognised by the epoch of their claim, and claims whose answer is lost expire.
    pub const fn is_repeatable(&self) -> bool {
        match self {
            Self::Start(_)
            | Self::Reserve(_)
            | Self::Deliver(_)
            | Self::Publish(_)
            | Self::Cancel(_)
            | Self::Restart(_)
            | Self::Repair(_) => false,
            Self::Declare { .. }
            | Self::Examine { .. }
            | Self::ReleaseBlocked { .. }
            | Self::Claim(_)
            | Self::Commit { .. }
            | Self::GiveBack(_)
            | Self::GiveBackExcept { .. }
            | Self::Fire { .. }
            | Self::PassOver { .. }
            | Self::Register(_)
            | Self::Enlist(_)
            | Self::Renew { .. }
            | Self::Extend(_)
            | Self::Expire { .. }
            | Self::Reclaim { .. }
            | Self::SignOff { .. }
            | Self::SignOffNamed { .. }
            | Self::Sweep(_)
            | Self::Survey(_)
            | Self::Keep(_)
            | Self::Once(_)
            | Self::Outbox(_)
            | Self::Refused { .. } => true,
        }
    }

    /// Returns the operations of a list, including those inside its requests and outbox entries.
    pub fn each(ops: &[Self]) -> impl Iterator<Item = &Self> {
        ops.iter().flat_map(|op| {
            let parts = op.parts();
            let requests = parts.requests.iter().flat_map(|one| &*one.ops);
            let entries = parts.entries.iter().filter_map(OutboxEntry::op);
            parts.plain.iter().chain(requests).chain(entries)
        })
    }

    /// Returns the operation itself, or the requests or outbox rows that it carries out.
    pub(crate) fn parts(&self) -> Parts<'_> {
        let (mut plain, mut requests, mut entries) = (&[][..], &[][..], &[][..]);
        match self {
            Self::Once(several) => requests = several,
            Self::Outbox(rows) => entries = rows,
            one => plain = std::slice::from_ref(one),
        }
        Parts {
            plain,
            requests,
            entries,
        }
    }
}

/// The parts of an operation: the operation itself, or requests, or outbox rows.
pub(crate) struct Parts<'o> {
    pub plain: &'o [Op],
    pub requests: &'o [Once],
    pub entries: &'o [OutboxEntry],
}

/// A request that may arrive more than once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Once {
    /// The id that distinguishes it from other requests.
    pub id: RequestId,
    /// The operations to carry out.
    pub ops: Arc<[Op]>,
}

/// The answer to a request that may have arrived before.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The answers of its operations, in order.
    pub answers: Vec<Answer>,
    /// `true` if it was carried out before, and these are the stored answers.
    pub replayed: bool,
}

impl Op {
    /// `true` if it chooses its instances itself, and respects [`PassOver`](Self::PassOver).
    pub(crate) const fn chooses(&self) -> bool {
        matches!(
            self,
            Self::Fire { .. }
                | Self::Reclaim { .. }
                | Self::SignOff { .. }
                | Self::GiveBackExcept { .. }
                | Self::ReleaseBlocked { .. }
        )
    }

    /// `true` if a key that a store is asked to lock stands for an event type, not for a key of instances.
    pub fn is_type_key(key: &Key) -> bool {
        key.as_str().starts_with(TYPE_KEY)
    }
}

/// The prefix of a key that stands for an event type. No instance has such a key.
pub(crate) const TYPE_KEY: &str = "\u{1}event:";

/// A claim that is still held.
#[derive(Debug, Serialize, Deserialize)]
pub struct Extension {
    /// The claim.
    pub claim: Claim,
    /// The length of its new lease.
    pub lease: Duration,
}

impl Extension {
    /// Returns a copy, for a transaction that is retried.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            claim: self.claim.again(),
            lease: self.lease,
        }
    }
}

/// A request for work.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The worker that claims.
    pub worker: WorkerId,
    /// The queue.
    pub queue: Name,
    /// The lanes that the worker has code for.
    pub lanes: Vec<Lane>,
    /// The maximum number of instances.
    pub limit: usize,
    /// The length of the lease that each claim gets of its own, for a worker that names the claims it holds. Without
    /// it, a claim lasts as long as its worker's lease.
    #[serde(default)]
    pub lease: Option<Duration>,
}

/// A worker to register.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewWorker {
    /// Its name.
    pub name: Name,
    /// The length of its lease.
    pub lease: Duration,
    /// The queues it serves.
    pub queues: Vec<Name>,
    /// The lanes that it has code for.
    pub lanes: Vec<Lane>,
    /// The build of its code. Instances that one build cannot run are left to others (rule 12.4). Without it, the
    /// worker counts as a build of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Name>,
}

/// A request to delete finished instances, a bounded number at a time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepRequest {
    /// Only instances that finished before this time.
    pub before: Timestamp,
    /// Where the last batch ended. Instances that were spared are not examined again in the same pass.
    pub after: Option<Cursor>,
    /// The maximum number of instances.
    pub limit: usize,
}

/// A page of a survey of the contracts that instances name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    /// When the survey began; `None` for its first page.
    pub begun: Option<Timestamp>,
    /// The last instance of the previous page.
    pub after: InstanceId,
}

/// A position in the order in which instances finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cursor {
    /// When the last instance finished.
    pub finished_at: Timestamp,
    /// The id of that instance.
    pub id: InstanceId,
}

/// The answer to an [`Op`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The result of each start, in order.
    Started(Vec<Result<Started, Refusal>>),
    /// The claimed instances, in the order in which they should run.
    Claimed(Vec<Claimed>),
    /// The result of each commit, in order.
    Committed(Vec<Committed>),
    /// The result of each signal or update, in order.
    Delivered(Vec<Result<Delivered, Refusal>>),
    /// The result of each event, in order.
    Published(Vec<Result<Published, Refusal>>),
    /// The result of each instance to cancel, restart or repair, in order.
    Operated(Vec<Operated>),
    /// The problems of the examined instances.
    Examined {
        /// The number of examined instances.
        count: usize,
        /// The problems.
        findings: Vec<Finding>,
        /// The last examined instance; `None` if there are no more.
        next: Option<InstanceId>,
    },
    /// Instances were released for a retry.
    Released {
        /// The number of instances.
        count: usize,
        /// The last examined instance; `None` if there are no more.
        next: Option<InstanceId>,
    },
    /// The worker was registered or enlisted.
    Registered(Worker),
    /// The leases were renewed, except those that had expired and those of workers whose name another process has
    /// taken.
    Renewed {
        /// The workers whose leases were not renewed.
        lost: Vec<WorkerId>,
    },
    /// The result of each claim to extend, in order.
    Extended(Vec<Heartbeat>),
    /// Rows were changed.
    Touched {
        /// The number of rows.
        count: usize,
        /// `true` if there may be more.
        more: bool,
    },
    /// Due instances were made runnable, or taken back.
    Fired {
        /// The number of instances.
        count: usize,
        /// `true` if there may be more.
        more: bool,
        /// The number of other due instances that another transaction has locked. They should be fired soon.
        locked: usize,
        /// When the next instance is due after these; set only if some are locked.
        next: Option<Timestamp>,
    },
    /// A batch of expired data was deleted.
    Swept {
        /// The number of deleted instances.
        deleted: usize,
        /// The number of instances that were examined and must stay, because an instance above them has not ended.
        spared: usize,
        /// The end of this batch. The pass continues from there, and the next pass may too.
        next: Option<Cursor>,
        /// `true` if there may be more to delete.
        more: bool,
    },
    /// A page of a survey was processed.
    Surveyed {
        /// The next page; `None` if the survey is over.
        next: Option<Survey>,
        /// The number of deleted contracts.
        deleted: usize,
    },
    /// The instances that an operation would have chosen (see [`Op::PassOver`]).
    Named(Vec<InstanceId>),
    /// Done, without a result.
    Done,
    /// The result of each request, in order.
    Once(Vec<Result<Remembered, Refusal>>),
    /// Rows of the outbox were processed.
    Outbox {
        /// The number of requests that were carried out.
        taken: usize,
        /// The number of requests that were refused and recorded as refused.
        refused: usize,
        /// `true` if another transaction was taking rows, so that this one took none.
        busy: bool,
    },
}

/// A problem of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The instance.
    pub instance: InstanceId,
    /// The problem, for programs: the name of a [`Code`](abide_core::rules::liveness::Code), or of an invariant of the
    /// whole store.
    #[serde(default)]
    pub code: String,
    /// The problem, for people.
    pub problem: String,
    /// The signal or update that it concerns.
    #[serde(default)]
    pub command_id: Option<CommandId>,
}

/// Serializes documents with the body in a list, so that a missing body and `null` differ.
mod kept {
    use abide_core::model::{DocumentKind, Json, Name};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Kept = (DocumentKind, Name, Option<Json>);

    pub fn serialize<S: Serializer>(documents: &[Kept], to: S) -> Result<S::Ok, S::Error> {
        let sent: Vec<(DocumentKind, &Name, Option<(&Json,)>)> = documents
            .iter()
            .map(|(kind, name, body)| (*kind, name, body.as_ref().map(|body| (body,))))
            .collect();
        sent.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Kept>, D::Error> {
        let sent = Vec::<(DocumentKind, Name, Option<(Json,)>)>::deserialize(from)?;
        let document =
            |(kind, name, body): (_, _, Option<(Json,)>)| (kind, name, body.map(|(body,)| body));
        Ok(sent.into_iter().map(document).collect())
    }
}
