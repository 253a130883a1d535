//! A store whose ids are renamed to the order in which they were first seen: of two stores that do the same, all that
//! is heard and read is then equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_core::model::{
    Claim, Claimed, Commit, Committed, Entry, Happening, Instance, InstanceId, ParentRef, Started,
    Timestamp, Worker, WorkerId,
};

use super::invariants::history;
use crate::{
    Answer, ClaimRequest, Cursor, Error, Filter, Op, QueueDepth, Result, Store, SweepRequest,
};

/// A store, and what its ids are called.
pub(super) struct Renamed {
    store: Arc<dyn Store>,
    instances: Numbers,
    workers: Numbers,
}

/// All that can be read of a store, without histories.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Newest first.
    pub instances: Vec<Instance>,
    /// Those that are believed to live.
    pub workers: Vec<Worker>,
    pub depths: Vec<QueueDepth>,
    pub next_due: Option<Timestamp>,
}

impl Renamed {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            instances: Numbers::default(),
            workers: Numbers::default(),
        }
    }

    /// Runs operations in one transaction; of an error, what a caller would act on.
    pub async fn run(&mut self, ops: &[Op]) -> Result<Vec<Answer>, String> {
        let ops = ops.iter().map(|op| self.op(op)).collect();
        match self.store.run(ops).await {
            Ok(answers) => Ok(answers.into_iter().map(|one| self.answer(one)).collect()),
            // Each database has words of its own for it.
            Err(Error::Conflict(_)) => Err("conflict".into()),
            Err(other) => Err(other.to_string()),
        }
    }

    pub async fn rows(&mut self) -> Result<Rows> {
        let page = self
            .store
            .list(&Filter::default(), None, usize::from(u16::MAX))
            .await?;
        let mut workers = self.store.workers().await?;
        workers.sort_by_key(|worker| worker.id);
        let mut depths = self.store.depths().await?;
        depths.sort_by(|a, b| (&a.queue, a.status.code()).cmp(&(&b.queue, b.status.code())));
        Ok(Rows {
            instances: page
                .items
                .into_iter()
                .map(|one| self.instance(one))
                .collect(),
            workers: workers.into_iter().map(|one| self.worker(one)).collect(),
            depths,
            next_due: self.store.next_due().await?,
        })
    }

    /// The history of an instance that was seen.
    pub async fn history(&mut self, id: InstanceId) -> Result<Vec<Entry>> {
        let entries = history(self.store.as_ref(), self.own_instance(id)).await?;
        Ok(entries.into_iter().map(|one| self.entry(one)).collect())
    }

    /// An operation on renamed ids, as the store is to hear it.
    fn op(&self, op: &Op) -> Op {
        match op {
            Op::Start(starts) => Op::Start(starts.clone()),
            Op::Declare(declared) => Op::Declare(declared.clone()),
            Op::Claim(request) => Op::Claim(ClaimRequest {
                worker: self.own_worker(request.worker),
                ..request.clone()
            }),
            Op::Commit { commits, serves } => Op::Commit {
                commits: commits.iter().map(|one| self.own_commit(one)).collect(),
                serves: serves.clone(),
            },
            Op::GiveBack(claims) => {
                Op::GiveBack(claims.iter().map(|one| self.own_claim(one)).collect())
            }
            Op::GiveBackExcept {
                worker,
                known,
                limit,
            } => Op::GiveBackExcept {
                worker: self.own_worker(*worker),
                known: known.iter().map(|id| self.own_instance(*id)).collect(),
                limit: *limit,
            },
            Op::Fire { limit } => Op::Fire { limit: *limit },
            Op::Register(worker) => Op::Register(worker.clone()),
            Op::Renew { worker, lease } => Op::Renew {
                worker: self.own_worker(*worker),
                lease: *lease,
            },
            Op::Reclaim { limit } => Op::Reclaim { limit: *limit },
            Op::SignOff { worker, limit } => Op::SignOff {
                worker: self.own_worker(*worker),
                limit: *limit,
            },
            Op::Sweep(request) => Op::Sweep(SweepRequest {
                after: request.after.map(|after| Cursor {
                    id: self.own_instance(after.id),
                    ..after
                }),
                ..*request
            }),
        }
    }

    fn own_instance(&self, id: InstanceId) -> InstanceId {
        InstanceId(self.instances.own(id.0))
    }

    fn own_worker(&self, id: WorkerId) -> WorkerId {
        WorkerId(self.workers.own(id.0))
    }

    fn own_claim(&self, claim: &Claim) -> Claim {
        let parent = claim.parent().map(|parent| ParentRef {
            id: self.own_instance(parent.id),
            partition: parent.partition.clone(),
        });
        Claim::granted(
            self.own_instance(claim.id()),
            claim.epoch(),
            self.own_worker(claim.worker()),
            claim.partition().cloned(),
            parent,
        )
    }

    fn own_commit(&self, commit: &Commit) -> Commit {
        Commit {
            claim: self.own_claim(&commit.claim),
            outcome: commit.outcome.clone(),
            keep: commit.keep,
            took: commit.took,
            error: commit.error.clone(),
        }
    }

    /// What the store has answered, in renamed ids.
    fn answer(&mut self, answer: Answer) -> Answer {
        match answer {
            Answer::Started(each) => {
                let each = each.into_iter();
                Answer::Started(each.map(|one| one.map(|one| self.started(one))).collect())
            }
            Answer::Claimed(each) => {
                Answer::Claimed(each.into_iter().map(|one| self.claimed(one)).collect())
            }
            Answer::Committed(each) => {
                Answer::Committed(each.into_iter().map(|one| self.committed(one)).collect())
            }
            Answer::Registered(worker) => Answer::Registered(self.worker(worker)),
            Answer::Swept { deleted, next } => Answer::Swept {
                deleted,
                next: next.map(|next| Cursor {
                    id: self.id(next.id),
                    ..next
                }),
            },
            other @ (Answer::Heartbeat(_) | Answer::Touched { .. } | Answer::Done) => other,
        }
    }

    fn id(&mut self, id: InstanceId) -> InstanceId {
        InstanceId(self.instances.see(id.0))
    }

    fn worker_id(&mut self, id: WorkerId) -> WorkerId {
        WorkerId(self.workers.see(id.0))
    }

    fn started(&mut self, started: Started) -> Started {
        match started {
            Started::New(id) => Started::New(self.id(id)),
            Started::Duplicate(id) => Started::Duplicate(self.id(id)),
        }
    }

    fn claim(&mut self, claim: &Claim) -> Claim {
        let parent = claim.parent().map(|parent| ParentRef {
            id: self.id(parent.id),
            partition: parent.partition.clone(),
        });
        Claim::granted(
            self.id(claim.id()),
            claim.epoch(),
            self.worker_id(claim.worker()),
            claim.partition().cloned(),
            parent,
        )
    }

    fn claimed(&mut self, mut claimed: Claimed) -> Claimed {
        claimed.claim = self.claim(&claimed.claim);
        for child in &mut claimed.children {
            child.id = self.id(child.id);
        }
        claimed
    }

    fn committed(&mut self, committed: Committed) -> Committed {
        match committed {
            Committed::Kept(claim) => Committed::Kept(self.claim(&claim)),
            other @ (Committed::Moved(_) | Committed::Stale | Committed::Refused(_)) => other,
        }
    }

    fn worker(&mut self, worker: Worker) -> Worker {
        Worker {
            id: self.worker_id(worker.id),
            ..worker
        }
    }

    fn instance(&mut self, instance: Instance) -> Instance {
        Instance {
            id: self.id(instance.id),
            worker: instance.worker.map(|id| self.worker_id(id)),
            parent: instance.parent.map(|id| self.id(id)),
            ..instance
        }
    }

    fn entry(&mut self, mut entry: Entry) -> Entry {
        if let Happening::ChildEnded { child, .. } = &mut entry.what {
            *child = self.id(*child);
        }
        entry
    }
}

/// The numbers 1, 2, 3 … for ids, in the order in which these were first seen.
#[derive(Default)]
struct Numbers {
    numbers: BTreeMap<i64, i64>,
    own: Vec<i64>,
}

impl Numbers {
    fn see(&mut self, own: i64) -> i64 {
        *self.numbers.entry(own).or_insert_with(|| {
            self.own.push(own);
            self.own.len() as i64
        })
    }

    fn own(&self, number: i64) -> i64 {
        self.own[number as usize - 1]
    }
}
