//! Workers come, live, die and sign off, and what they held goes back to its queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use abide_core::model::{Claim, Heartbeat, InstanceId, Name, Worker, WorkerId};
use abide_core::rules::claims::{
    self, Standing, give_back as put_back, reclaim as take_back, standing,
};

use super::free::Free;
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Answer, Extension, NewWorker, Result, Touched, Txn};

/// Registers a worker. What an earlier process of its name held is taken back at once: its lease is ended here, and
/// [`reclaim`] finds it (rule 5.3).
pub(crate) async fn register<T: Txn>(turn: &mut Turn<'_, T>, worker: &NewWorker) -> Result<Worker> {
    let living = living(turn, &worker.name).await?;
    let living: Vec<WorkerId> = living.iter().map(|worker| worker.id).collect();
    if !living.is_empty() {
        turn.txn.expire_workers(&living, turn.now).await?;
    }
    turn.txn.insert_worker(worker, turn.now).await
}

/// Enlists a worker that outlives the process which speaks for it: the living one of its name goes on under its number,
/// and with it all that it holds.
pub(crate) async fn enlist<T: Txn>(turn: &mut Turn<'_, T>, new: &NewWorker) -> Result<Worker> {
    let Some(known) = living(turn, &new.name).await?.pop() else {
        return turn.txn.insert_worker(new, turn.now).await;
    };
    let mut worker = known.clone();
    worker.lease_until = worker.lease_until.max(turn.now + new.lease);
    for queue in &new.queues {
        if !worker.queues.contains(queue) {
            worker.queues.push(queue.clone());
        }
    }
    for lane in &new.lanes {
        if !worker.lanes.contains(lane) {
            worker.lanes.push(lane.clone());
        }
    }
    if worker != known {
        turn.txn.rewrite_worker(&worker).await?;
    }
    Ok(worker)
}

/// The workers of a name whose lease has not run out, by id.
async fn living<T: Txn>(turn: &mut Turn<'_, T>, name: &Name) -> Result<Vec<Worker>> {
    let mut workers = turn.txn.workers_named(name).await?;
    workers.retain(|worker| worker.lease_until > turn.now);
    Ok(workers)
}

/// Renews the leases of workers: one statement, however many there are and however many steps they run (rule 6.4).
pub(crate) async fn renew<T: Txn>(
    turn: &mut Turn<'_, T>,
    workers: &[WorkerId],
    lease: Duration,
) -> Result<Answer> {
    let mut asked: Vec<WorkerId> = workers.to_vec();
    asked.sort_unstable();
    asked.dedup();
    if asked.is_empty() {
        return Ok(Answer::Renewed { lost: asked });
    }
    let until = turn.now + lease;
    let renewed = turn.txn.renew(&asked, turn.now, until).await?;
    let renewed: BTreeSet<WorkerId> = renewed.into_iter().collect();
    asked.retain(|worker| !renewed.contains(worker));
    Ok(Answer::Renewed { lost: asked })
}

/// Renews the leases of claims, and of the workers that hold them (rule 6.4): a worker is believed in at least as long as
/// what it holds.
pub(crate) async fn extend<T: Txn>(
    turn: &mut Turn<'_, T>,
    claims: &[Extension],
) -> Result<Vec<Heartbeat>> {
    let ids = claims.iter().map(|one| one.claim.id()).collect();
    let mut ledger = Ledger::load(turn.txn, ids).await?;
    let mut beats = Vec::with_capacity(claims.len());
    let mut workers: BTreeMap<Duration, Vec<WorkerId>> = BTreeMap::new();
    for &Extension { ref claim, lease } in claims {
        let beat = ledger
            .get(claim.id())
            .map(|account| claims::extend(&mut account.row, claim, lease, turn.now));
        if beat == Some(Heartbeat::Renewed) {
            workers.entry(lease).or_default().push(claim.worker());
        }
        beats.push(beat.unwrap_or(Heartbeat::Lost));
    }
    ledger.write(turn).await?;
    for (lease, workers) in workers {
        renew(turn, &workers, lease).await?;
    }
    Ok(beats)
}

/// Takes from dead workers what they hold (rule 5.3), whoever of them it was and however many there are. A process that
/// slept through its lease may still send a claim that it had prepared; what that takes is taken back too, also when
/// nobody remembers the worker any more.
pub(crate) async fn reclaim<T: Txn>(turn: &mut Turn<'_, T>, limit: usize) -> Result<Answer> {
    let dead: BTreeMap<WorkerId, Option<Name>> =
        turn.txn.dead_holders(turn.now).await?.into_iter().collect();
    let mut count = 0;
    if dead.is_empty() {
        return Ok(Answer::Touched { count, more: false });
    }
    let workers: Vec<WorkerId> = dead.keys().copied().collect();
    let room = turn.room(limit);
    let held = turn.txn.held_by(&workers, room).await?;
    let held = turn.choose(held, |(_, touched)| touched.id, limit);
    let touched: Vec<Touched> = held.iter().map(|(_, touched)| touched.clone()).collect();
    // What somebody has locked is taken back the next time.
    let mut ledger = Free::load(turn, &touched).await?;
    let forgotten = Name::stored("?");
    for (worker, touched) in &held {
        let Some(account) = ledger.get(touched.id) else {
            continue;
        };
        // One that was held to its time limit has failed, which [`fire`](super::timers::fire) sees to.
        let past_limit = account.row.lease.is_some_and(|l| l.is_past_limit(turn.now));
        let name = dead.get(worker).and_then(Option::as_ref);
        if account.row.worker == Some(*worker)
            && !past_limit
            && let Some(told) = take_back(&mut account.row, name.unwrap_or(&forgotten), turn.now)
        {
            account.told.push(told);
            count += 1;
        }
    }
    ledger.write(turn).await?;
    let more = count > 0 && held.len() >= limit;
    Ok(Answer::Touched { count, more })
}

/// Gives claims back; `attempt` does not grow (rule 5.4).
pub(crate) async fn give_back<T: Txn>(turn: &mut Turn<'_, T>, claims: &[Claim]) -> Result<Answer> {
    let mut ledger = Ledger::load(turn.txn, claims.iter().map(Claim::id).collect()).await?;
    let mut count = 0;
    for claim in claims {
        let Some(account) = ledger.get(claim.id()) else {
            continue;
        };
        if standing(&account.row, claim) == Standing::Holds
            && put_back(&mut account.row, turn.now).is_some()
        {
            count += 1;
        }
    }
    ledger.write(turn).await?;
    Ok(Answer::Touched { count, more: false })
}

/// Gives back what a worker holds and does not know of.
pub(crate) async fn give_back_except<T: Txn>(
    turn: &mut Turn<'_, T>,
    worker: WorkerId,
    known: &[InstanceId],
    limit: usize,
) -> Result<Answer> {
    let known: BTreeSet<InstanceId> = known.iter().copied().collect();
    let mut unknown = Vec::new();
    let mut after = InstanceId(0);
    loop {
        let held = turn.txn.held(worker, after, limit).await?;
        let Some(last) = held.last() else { break };
        after = last.id;
        let full = held.len() >= limit;
        unknown.extend(
            held.into_iter()
                .filter(|touched| !known.contains(&touched.id)),
        );
        if !full || unknown.len() >= turn.room(limit) {
            break;
        }
    }
    let unknown = turn.choose(unknown, |one| one.id, limit);
    let more = unknown.len() >= limit;
    let count = put_all_back(turn, worker, &unknown).await?;
    Ok(Answer::Touched { count, more })
}

/// Gives back all that a worker holds, and when nothing is left, forgets it (rule 6.7).
pub(crate) async fn sign_off<T: Txn>(
    turn: &mut Turn<'_, T>,
    worker: WorkerId,
    limit: usize,
) -> Result<Answer> {
    let room = turn.room(limit);
    let held = turn.txn.held(worker, InstanceId(0), room).await?;
    let held = turn.choose(held, |one| one.id, limit);
    let more = held.len() >= limit;
    let count = put_all_back(turn, worker, &held).await?;
    if !more && !turn.names_only() {
        turn.txn.expire_workers(&[worker], turn.now).await?;
    }
    Ok(Answer::Touched { count, more })
}

/// Gives back all that the living workers of a name hold, and forgets those that hold nothing any more.
pub(crate) async fn sign_off_named<T: Txn>(
    turn: &mut Turn<'_, T>,
    name: &Name,
    limit: usize,
) -> Result<Answer> {
    let mut total = 0;
    for worker in living(turn, name).await? {
        let left = limit.saturating_sub(total);
        if let Answer::Touched { count, more } = sign_off(turn, worker.id, left).await? {
            total += count;
            if more {
                return Ok(Answer::Touched { count: total, more });
            }
        }
    }
    Ok(Answer::Touched {
        count: total,
        more: false,
    })
}

async fn put_all_back<T: Txn>(
    turn: &mut Turn<'_, T>,
    worker: WorkerId,
    held: &[Touched],
) -> Result<usize> {
    let mut ledger = locked(turn, held).await?;
    let mut count = 0;
    for touched in held {
        let Some(account) = ledger.get(touched.id) else {
            continue;
        };
        if account.row.worker == Some(worker) && put_back(&mut account.row, turn.now).is_some() {
            count += 1;
        }
    }
    ledger.write(turn).await?;
    Ok(count)
}

/// Locks rows that were found without a lock: their partitions first.
pub(super) async fn locked<'a, T: Txn>(
    turn: &mut Turn<'_, T>,
    touched: &[Touched],
) -> Result<Ledger<'a>> {
    turn.lock_partitions(
        touched
            .iter()
            .filter_map(|one| one.partition.as_ref())
            .collect(),
    )
    .await?;
    Ledger::load(turn.txn, touched.iter().map(|one| one.id).collect()).await
}
