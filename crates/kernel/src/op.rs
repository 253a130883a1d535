//! The language of writes: what can be asked of a store, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use abide_core::model::{
    Cancel, Claim, Claimed, Commit, Committed, Contract, Declared, Delivered, Delivery,
    DocumentKind, Heartbeat, InstanceId, Json, Key, Lane, Name, Operated, Publish, Published,
    Refusal, RequestId, Start, Started, Target, Timestamp, Worker, WorkerId,
};

/// A request to change something. A list of them is one transaction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Make runnable what is due, and take back claims whose own lease has run out. What another transaction has locked is
    /// passed over.
    Fire {
        /// About that many at once, and no more when nothing is locked.
        limit: usize,
    },
    /// Have the operations after it, in the same transaction, pass over some instances. It is for those that choose their
    /// instances themselves: [`Fire`](Self::Fire), [`Reclaim`](Self::Reclaim), [`SignOff`](Self::SignOff),
    /// [`GiveBackExcept`](Self::GiveBackExcept) and [`ReleaseBlocked`](Self::ReleaseBlocked).
    PassOver {
        /// These.
        instances: Vec<InstanceId>,
        /// Whether the operations after it change nothing, and only name the instances that they would have chosen.
        name_only: bool,
    },
    /// Make a worker known and take back what an earlier process of its name held.
    Register(NewWorker),
    /// Make a worker known that may be known already: the living one of its name goes on, and serves these queues and lanes
    /// too. Nothing is taken back.
    Enlist(NewWorker),
    /// Say that workers live. No lease gets shorter.
    Renew {
        /// The workers.
        workers: Vec<WorkerId>,
        /// For how long they are to be believed.
        lease: Duration,
    },
    /// Say that these claims are still held, and that their workers live; each entry has its own answer. What is not named
    /// runs out. No lease gets shorter, and none longer than its step's time limit.
    Extend(Vec<Extension>),
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
    /// Give back all that the living workers of a name hold and forget them, at most that many at once.
    SignOffNamed {
        /// The name.
        name: Name,
        /// At most that many.
        limit: usize,
    },
    /// Delete finished instances whose retention is over.
    Sweep(SweepRequest),
    /// Note which contracts instances name, a page at a time, and then delete those that nothing has named for long.
    Survey(Survey),
    /// Write documents over those of the same kind and name, or delete those that come without a body.
    Keep(#[serde(with = "kept")] Vec<(DocumentKind, Name, Option<Json>)>),
    /// Carry out requests that may arrive more than once, each of them once: one that was carried out before gets the
    /// answer of then (rule 1.5). Each entry has its own answer.
    Once(Vec<Once>),
}

impl Op {
    /// Whether running it again does no more than running it once did, and its second answer serves as well as the
    /// first. Outcomes are recognised by the epoch of their claim, and claims whose answer is lost run out.
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
            | Self::Reclaim { .. }
            | Self::SignOff { .. }
            | Self::SignOffNamed { .. }
            | Self::Sweep(_)
            | Self::Survey(_)
            | Self::Keep(_)
            | Self::Once(_) => true,
        }
    }

    /// The operations of a list, and those of the requests in it.
    pub fn each(ops: &[Self]) -> impl Iterator<Item = &Self> {
        ops.iter().flat_map(|op| {
            let (plain, requests) = op.parts();
            plain
                .iter()
                .chain(requests.iter().flat_map(|one| &*one.ops))
        })
    }

    /// The operation itself, or the requests that it carries out.
    pub(crate) fn parts(&self) -> (&[Self], &[Once]) {
        match self {
            Self::Once(requests) => (&[], requests),
            plain => (std::slice::from_ref(plain), &[]),
        }
    }
}

/// A request that may arrive more than once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Once {
    /// What tells it from others.
    pub id: RequestId,
    /// What it asks for.
    pub ops: Arc<[Op]>,
}

/// The answer to a request that may have arrived before.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// What became of each of its operations, in order.
    pub answers: Vec<Answer>,
    /// Whether it had been carried out before, and these are the answers of then.
    pub replayed: bool,
}

impl Op {
    /// Whether it chooses its instances itself, and heeds [`PassOver`](Self::PassOver).
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

    /// Whether a key that a store is to lock stands for a type of events, and not for what instances are known by.
    pub fn is_type_key(key: &Key) -> bool {
        key.as_str().starts_with(TYPE_KEY)
    }
}

/// How a key begins that stands for a type of events. No instance has such a key.
pub(crate) const TYPE_KEY: &str = "\u{1}event:";

/// A claim that is still held.
#[derive(Debug, Serialize, Deserialize)]
pub struct Extension {
    /// The claim.
    pub claim: Claim,
    /// For how long it is to be believed.
    pub lease: Duration,
}

impl Extension {
    /// The same once more, for a transaction that is tried again.
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
    /// Who asks.
    pub worker: WorkerId,
    /// The queue.
    pub queue: Name,
    /// What the worker has code for.
    pub lanes: Vec<Lane>,
    /// At most that many.
    pub limit: usize,
    /// The lease that each claim gets of its own: for a worker that names the claims which it holds. Without it a claim is
    /// believed in as long as its worker is.
    #[serde(default)]
    pub lease: Option<Duration>,
}

/// A worker that makes itself known.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepRequest {
    /// Those that finished before that moment.
    pub before: Timestamp,
    /// Where the last batch ended; those that were spared are not looked at again in the same pass.
    pub after: Option<Cursor>,
    /// At most that many.
    pub limit: usize,
}

/// A page of a survey of the contracts that instances name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    /// When the survey began; none of its first page.
    pub begun: Option<Timestamp>,
    /// The last instance of the page before.
    pub after: InstanceId,
}

/// A place in the order in which instances finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cursor {
    /// When the last one finished.
    pub finished_at: Timestamp,
    /// Which it was.
    pub id: InstanceId,
}

/// What became of an [`Op`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The worker was registered, or enlisted.
    Registered(Worker),
    /// The workers live on, but for those whose lease had run out, or whose name another process has taken.
    Renewed {
        /// These.
        lost: Vec<WorkerId>,
    },
    /// Of each claim that was to be extended, in order.
    Extended(Vec<Heartbeat>),
    /// So many rows were touched; whether there may be more.
    Touched {
        /// How many.
        count: usize,
        /// Whether there may be more.
        more: bool,
    },
    /// So many due instances were made runnable, or taken back.
    Fired {
        /// How many.
        count: usize,
        /// Whether there may be more.
        more: bool,
        /// How many others are due that another transaction has locked: they are to be fired soon.
        locked: usize,
        /// When anything is due after these; told only when some are locked.
        next: Option<Timestamp>,
    },
    /// A batch of what has expired was deleted.
    Swept {
        /// How many instances.
        deleted: usize,
        /// How many more were looked at and must stay: somebody above them has not ended.
        spared: usize,
        /// How far it has come: the pass goes on after that, and so may the next one.
        next: Option<Cursor>,
        /// Whether there may be more to delete.
        more: bool,
    },
    /// Of a page of a survey.
    Surveyed {
        /// The next page; none when it is over.
        next: Option<Survey>,
        /// How many contracts were deleted.
        deleted: usize,
    },
    /// The instances that an operation would have chosen (see [`Op::PassOver`]).
    Named(Vec<InstanceId>),
    /// It is done, and there is nothing to tell.
    Done,
    /// Of each request, in order.
    Once(Vec<Result<Remembered, Refusal>>),
}

/// Something that is wrong with an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The instance.
    pub instance: InstanceId,
    /// What is wrong with it.
    pub problem: String,
}

/// Documents as they are sent: the body in a list, so that none and `null` are two things.
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
