//! Runs a list of operations in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use abide_core::model::{Command, Commit, InstanceId, Key, Limits, Timestamp};
use abide_core::rules::contradiction::Contradicted;

use crate::judge::Bench;
use crate::ops;
use crate::{Answer, Effects, Error, Op, Result, Txn};

/// The context of every operation: the transaction, the time, the limits, and the results that it collects.
pub(crate) struct Turn<'t, T> {
    pub txn: &'t mut T,
    pub now: Timestamp,
    pub limits: &'t Limits,
    pub effects: Effects,
    /// Partitions whose members have changed.
    pub partitions: Vec<Key>,
    /// The signals that this transaction has delivered. Instances that it claims may have no other signals.
    pub delivered: BTreeMap<InstanceId, Vec<Command>>,
    /// The store's knowledge about the requests that this transaction carries out.
    pub requests: ops::once::Requests,
    /// The rows of the outbox that this transaction takes.
    pub outbox: ops::outbox::Held,
    /// The budget for validations in this transaction.
    pub bench: Bench,
    /// The claims for which this request has different outcomes.
    pub contradicted: Contradicted,
    /// The instances that operations must not choose.
    passed_over: BTreeSet<InstanceId>,
    /// The instances that operations would have chosen; `None` unless only these are requested.
    named: Option<Vec<InstanceId>>,
}

/// Runs the operations in order in a transaction that the store has opened and will commit. The store publishes the
/// effects after the commit.
pub async fn run<T: Txn>(
    txn: &mut T,
    ops: &[Op],
    now: Timestamp,
    limits: &Limits,
) -> Result<(Vec<Answer>, Effects)> {
    run_with(txn, ops, now, limits, Bench::shared()).await
}

/// Runs the operations in order in a transaction of the host, which the store cannot retry. A validation that takes too
/// long is therefore refused at once (rule 8.5).
pub async fn run_lent<T: Txn>(
    txn: &mut T,
    ops: &[Op],
    now: Timestamp,
    limits: &Limits,
) -> Result<(Vec<Answer>, Effects)> {
    run_with(txn, ops, now, limits, Bench::lent()).await
}

async fn run_with<T: Txn>(
    txn: &mut T,
    ops: &[Op],
    now: Timestamp,
    limits: &Limits,
    bench: Bench,
) -> Result<(Vec<Answer>, Effects)> {
    let mut turn = Turn {
        txn,
        now,
        limits,
        effects: Effects::default(),
        partitions: Vec::new(),
        delivered: BTreeMap::new(),
        requests: ops::once::Requests::default(),
        outbox: ops::outbox::Held::default(),
        bench,
        contradicted: contradicted(ops),
        passed_over: BTreeSet::new(),
        named: None,
    };
    // Requests that were carried out before lock nothing.
    turn.recall(ops).await?;
    turn.hold_outbox(ops).await?;
    // One lock order everywhere: keys, then partitions, then instances by id.
    let mut names = ops::Keys::default();
    turn.to_run(ops).for_each(|op| names.note(op));
    turn.lock_keys(names).await?;
    let keys: BTreeSet<&Key> = turn.to_run(ops).flat_map(ops::partitions_of).collect();
    turn.lock_partitions(keys).await?;
    let mut answers = Vec::with_capacity(ops.len());
    for op in ops {
        answers.push(turn.answer(op).await?);
    }
    Ok((answers, turn.effects))
}

/// Returns the claims for which a request has different outcomes, in one operation or in several. The operations of a
/// transaction are one request; requests that may arrive more than once are requests of their own (rule 1.7).
fn contradicted(ops: &[Op]) -> Contradicted {
    fn commits(op: &Op) -> &[Commit] {
        match op {
            Op::Commit { commits, .. } => commits,
            _ => &[],
        }
    }
    let mut found = Contradicted::default();
    found.note(ops.iter().flat_map(commits));
    for request in ops.iter().flat_map(|op| op.parts().requests) {
        found.note(request.ops.iter().flat_map(commits));
    }
    found
}

/// Runs operations to completion on a store whose transactions never wait.
pub fn run_now<T: Txn>(
    txn: &mut T,
    ops: &[Op],
    now: Timestamp,
    limits: &Limits,
) -> Result<(Vec<Answer>, Effects)> {
    at_once(run(txn, ops, now, limits))
}

/// Runs operations to completion in a transaction of the host, on a store whose transactions never wait.
pub fn run_now_lent<T: Txn>(
    txn: &mut T,
    ops: &[Op],
    now: Timestamp,
    limits: &Limits,
) -> Result<(Vec<Answer>, Effects)> {
    at_once(run_lent(txn, ops, now, limits))
}

fn at_once<T>(run: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(run).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answers) => answers,
        Poll::Pending => Err(Error::Broken(
            "a transaction that never waits has waited".into(),
        )),
    }
}

impl<T: Txn> Turn<'_, T> {
    /// Returns the operations to run. Leaves out those of requests that were carried out before, and those of outbox
    /// rows that other transactions have taken.
    fn to_run<'o>(&self, ops: &'o [Op]) -> impl Iterator<Item = &'o Op> {
        ops.iter().flat_map(|op| {
            let parts = op.parts();
            let requests = self.requests.to_run(parts.requests);
            let entries = self.outbox.to_run(parts.entries);
            parts.plain.iter().chain(requests).chain(entries)
        })
    }

    /// Runs one operation.
    pub async fn answer(&mut self, op: &Op) -> Result<Answer> {
        if self.named.is_some() && !op.chooses() {
            return Err(Error::Broken(
                "only operations that choose their instances themselves can name them; send others apart".into(),
            ));
        }
        let answer = match op {
            Op::Start(starts) => Answer::Started(ops::start::start(self, starts).await?),
            Op::Reserve(reservations) => {
                Answer::Started(ops::start::reserve(self, reservations).await?)
            }
            Op::Declare {
                machines,
                contracts,
            } => ops::start::declare(self, machines, contracts).await?,
            Op::Deliver(deliveries) => {
                Answer::Delivered(ops::deliver::deliver(self, deliveries).await?)
            }
            Op::Publish(publishes) => {
                Answer::Published(ops::publish::publish(self, publishes).await?)
            }
            Op::Cancel(cancels) => Answer::Operated(ops::operate::cancel(self, cancels).await?),
            Op::Restart(restarts) => Answer::Operated(ops::operate::restart(self, restarts).await?),
            Op::Repair(targets) => Answer::Operated(ops::operate::repair(self, targets).await?),
            Op::Examine { after, limit } => ops::examine::examine(self, *after, *limit).await?,
            Op::ReleaseBlocked {
                build,
                fresh,
                lanes,
                after,
                limit,
            } => {
                ops::operate::release_blocked(self, (build.as_ref(), *fresh), lanes, *after, *limit)
                    .await?
            }
            Op::Claim(request) => {
                // Instances that this transaction has made runnable must have their position in the partition before a
                // claim.
                ops::partition::settle(self).await?;
                Answer::Claimed(ops::claim::claim(self, request).await?)
            }
            Op::Commit { commits, serves } => {
                Answer::Committed(ops::commit::commit(self, commits, serves).await?)
            }
            Op::GiveBack(claims) => ops::workers::give_back(self, claims).await?,
            Op::GiveBackExcept {
                worker,
                known,
                limit,
            } => ops::workers::give_back_except(self, *worker, known, *limit).await?,
            Op::PassOver {
                instances,
                name_only,
            } => {
                self.passed_over.extend(instances);
                self.named = name_only.then(Vec::new);
                return Ok(Answer::Done);
            }
            Op::Fire { limit } => ops::timers::fire(self, *limit).await?,
            Op::Register(worker) => Answer::Registered(ops::workers::register(self, worker).await?),
            Op::Enlist(worker) => Answer::Registered(ops::workers::enlist(self, worker).await?),
            Op::Renew { workers, lease } => ops::workers::renew(self, workers, *lease).await?,
            Op::Extend(claims) => Answer::Extended(ops::workers::extend(self, claims).await?),
            Op::Expire { name } => {
                ops::workers::expire(self, name).await?;
                Answer::Done
            }
            Op::Reclaim { limit } => ops::workers::reclaim(self, *limit).await?,
            Op::SignOff { worker, limit } => ops::workers::sign_off(self, *worker, *limit).await?,
            Op::SignOffNamed { name, limit } => {
                ops::workers::sign_off_named(self, name, *limit).await?
            }
            Op::Sweep(request) => ops::sweep::sweep(self, request).await?,
            Op::Survey(page) => ops::survey::survey(self, *page).await?,
            Op::Keep(documents) => ops::keep::keep(self, documents).await?,
            Op::Once(requests) => Answer::Once(ops::once::once(self, requests).await?),
            Op::Outbox(entries) => ops::outbox::take(self, entries).await?,
            Op::Refused { ids, again } => ops::outbox::settle_refused(self, ids, *again).await?,
        };
        ops::partition::settle(self).await?;
        Ok(match &mut self.named {
            Some(named) => Answer::Named(std::mem::take(named)),
            None => answer,
        })
    }

    /// `true` if operations change nothing, and only return the instances that they would have chosen.
    pub const fn names_only(&self) -> bool {
        self.named.is_some()
    }

    /// Returns how many rows to read in order to choose `limit` of them.
    pub fn room(&self, limit: usize) -> usize {
        limit + self.passed_over.len()
    }

    /// Returns the first `limit` of these rows that the operation may choose; none if they are only to be named.
    pub fn choose<R>(
        &mut self,
        found: Vec<R>,
        id: impl Fn(&R) -> InstanceId,
        limit: usize,
    ) -> Vec<R> {
        let mut chosen = found;
        if !self.passed_over.is_empty() {
            chosen.retain(|row| !self.passed_over.contains(&id(row)));
        }
        let Some(named) = &mut self.named else {
            chosen.truncate(limit);
            return chosen;
        };
        let left = limit.saturating_sub(named.len());
        named.extend(chosen.iter().map(id).take(left));
        Vec::new()
    }

    /// Locks keys. A key in both lists is locked alone.
    async fn lock_keys(&mut self, names: ops::Keys<'_>) -> Result<()> {
        if names.shared.is_empty()
            && names.alone.is_empty()
            && names.published.is_empty()
            && names.awaited.is_empty()
        {
            return Ok(());
        }
        let mut alone: BTreeSet<Key> = names.awaited;
        alone.extend(names.alone.into_iter().cloned());
        let mut shared: BTreeSet<Key> = names.published;
        shared.extend(names.shared.into_iter().cloned());
        let shared: Vec<Key> = shared.difference(&alone).cloned().collect();
        let alone: Vec<Key> = alone.into_iter().collect();
        self.txn.lock_keys(&shared, &alone).await
    }

    /// Locks partitions in the common order.
    pub async fn lock_partitions(&mut self, keys: BTreeSet<&Key>) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<Key> = keys.into_iter().cloned().collect();
        self.txn.lock_partitions(&keys).await
    }
}
