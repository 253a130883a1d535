//! Registers workers, renews their leases, and returns the claims of workers that die or sign off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use abide_core::model::{Claim, Heartbeat, InstanceId, Name, Policy, Worker, WorkerId};
use abide_core::rules::claims::{
    self, Standing, give_back as put_back, reclaim as take_back, standing,
};
use abide_core::rules::deaths::{self, Case, MAX_DEATHS};

use super::commit::policies_of;
use super::keys::end_all;
use super::restarted::moved;
use super::skip_locked::Free;
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Answer, Extension, Loads, NewWorker, Result, Touched, Txn, Write};

/// Registers a worker. The claims of an earlier process with its name are taken back at once: its lease is ended here,
/// and [`reclaim`] finds them (rule 5.3).
pub(crate) async fn register<T: Txn>(turn: &mut Turn<'_, T>, worker: &NewWorker) -> Result<Worker> {
    expire(turn, &worker.name).await?;
    turn.txn.insert_worker(worker, turn.now).await
}

/// Ends the leases of the living workers with a name. [`reclaim`] finds their claims (rule 5.3).
pub(crate) async fn expire<T: Txn>(turn: &mut Turn<'_, T>, name: &Name) -> Result<()> {
    let living = living(turn, name).await?;
    let living: Vec<WorkerId> = living.iter().map(|worker| worker.id).collect();
    if !living.is_empty() {
        turn.txn
            .write(Write::ExpireWorkers(&living, turn.now))
            .await?;
    }
    Ok(())
}

/// Enlists a worker that outlives the process that represents it. A living worker with its name continues under its id,
/// and keeps its claims.
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
    if new.build.is_some() {
        worker.build.clone_from(&new.build);
    }
    if worker != known {
        turn.txn.write(Write::RewriteWorker(&worker)).await?;
    }
    Ok(worker)
}

/// Returns the workers with a name whose lease has not expired, by id.
async fn living<T: Txn>(turn: &mut Turn<'_, T>, name: &Name) -> Result<Vec<Worker>> {
    let mut workers = turn.txn.workers_named(name).await?;
    workers.retain(|worker| worker.lease_until > turn.now);
    Ok(workers)
}

/// Renews the leases of workers in one statement, however many workers there are and however many steps they run
/// (rule 6.4).
pub(crate) async fn renew<T: Txn>(
    turn: &mut Turn<'_, T>,
    workers: &[WorkerId],
    lease: Duration,
) -> Result<Answer> {
    let mut ids: Vec<WorkerId> = workers.to_vec();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Ok(Answer::Renewed { lost: ids });
    }
    let until = turn.now + lease;
    let renewed = turn.txn.renew(&ids, turn.now, until).await?;
    let renewed: BTreeSet<WorkerId> = renewed.into_iter().collect();
    ids.retain(|worker| !renewed.contains(worker));
    Ok(Answer::Renewed { lost: ids })
}

/// Renews the leases of claims and of the workers that hold them (rule 6.4). A worker's lease lasts at least as long as
/// its claims.
pub(crate) async fn extend<T: Txn>(
    turn: &mut Turn<'_, T>,
    claims: &[Extension],
) -> Result<Vec<Heartbeat>> {
    let ids = claims.iter().map(|one| one.claim.id()).collect();
    let mut ledger = Ledger::load(turn.txn, ids).await?;
    let moved = moved(turn, &mut ledger, claims.iter().map(|one| &one.claim)).await?;
    let mut beats = Vec::with_capacity(claims.len());
    let mut workers: BTreeMap<Duration, Vec<WorkerId>> = BTreeMap::new();
    for &Extension { ref claim, lease } in claims {
        let claimed = (claim, moved.contains(&claim.id()));
        let beat = ledger
            .get(claim.id())
            .map(|account| claims::extend(&mut account.row, claimed, lease, turn.now));
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

/// Takes back the claims of dead workers (rule 5.3), of all of them together. A process that slept through its lease
/// may still send a claim that it had prepared. What it claims is taken back too, even if the worker is no longer
/// known.
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
    // Rows that another transaction has locked are taken back next time.
    let mut ledger = Free::load(turn, &touched).await?;
    let ids: Vec<InstanceId> = touched.iter().map(|touched| touched.id).collect();
    let policies = policies_of(turn, &ids).await?;
    let forgotten = Name::stored("?");
    let mut failing = Vec::new();
    for (worker, touched) in &held {
        let Some(account) = ledger.get(touched.id) else {
            continue;
        };
        // A step that was held until its time limit has failed; [`fire`](super::timers::fire) handles it.
        let past_limit = account.row.lease.is_some_and(|l| l.is_past_limit(turn.now));
        let name = dead.get(worker).and_then(Option::as_ref);
        if account.row.worker == Some(*worker)
            && !past_limit
            && let Some(back) = take_back(
                &mut account.row,
                name.unwrap_or(&forgotten),
                Case::new(policies.get(&touched.id), count),
                turn.now,
            )
        {
            account.history_events.push(back.history_event);
            failing.extend(back.fails.map(|error| (touched.id, error)));
            count += 1;
        }
    }
    fail_dead(turn, &mut ledger, failing).await?;
    ledger.write(turn).await?;
    let more = count > 0 && held.len() >= limit;
    Ok(Answer::Touched { count, more })
}

/// Ends instances whose workers have died too often in their step (rule 5.7).
pub(super) async fn fail_dead<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    failing: Vec<(InstanceId, String)>,
) -> Result<()> {
    end_all(turn, ledger, failing, |row, error, ending| {
        deaths::fail(row, error, ending.pending, ending.limits, ending.now)
    })
    .await
}

/// Gives claims back. `attempt` does not increase (rule 5.4).
pub(crate) async fn give_back<T: Txn>(turn: &mut Turn<'_, T>, claims: &[Claim]) -> Result<Answer> {
    let ids: Vec<InstanceId> = claims.iter().map(Claim::id).collect();
    let mut ledger = Ledger::load(turn.txn, ids.clone()).await?;
    let policies = policies_of_suspects(turn, &mut ledger, &ids).await?;
    let moved = moved(turn, &mut ledger, claims.iter()).await?;
    let mut count = 0;
    for claim in claims {
        let Some(account) = ledger.get(claim.id()) else {
            continue;
        };
        let case = Case::new(policies.get(&claim.id()), count);
        if standing(&account.row, claim, moved.contains(&claim.id())) == Standing::Holds
            && put_back(&mut account.row, case, turn.now).is_some()
        {
            count += 1;
        }
    }
    ledger.write(turn).await?;
    Ok(Answer::Touched { count, more: false })
}

/// Gives back the claims that a worker holds and does not know of.
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
        let held = turn.txn.held(worker, after, 0, limit).await?;
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

/// Gives back all claims of a worker, and ends its lease when nothing is left that could be given back (rule 6.7).
/// Claims that are passed over can be taken back from then on, because their worker counts as dead.
pub(crate) async fn sign_off<T: Txn>(
    turn: &mut Turn<'_, T>,
    worker: WorkerId,
    limit: usize,
) -> Result<Answer> {
    let room = turn.room(limit);
    let held = turn.txn.held(worker, InstanceId(0), 0, room).await?;
    let held = turn.choose(held, |one| one.id, limit);
    let more = held.len() >= limit;
    let count = put_all_back(turn, worker, &held).await?;
    if !more && !turn.names_only() {
        turn.txn
            .write(Write::ExpireWorkers(&[worker], turn.now))
            .await?;
    }
    Ok(Answer::Touched { count, more })
}

/// Gives back all claims of the living workers with a name, and ends the leases of those that hold nothing any more.
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
    let ids: Vec<InstanceId> = held.iter().map(|touched| touched.id).collect();
    let policies = policies_of_suspects(turn, &mut ledger, &ids).await?;
    let mut count = 0;
    for touched in held {
        let Some(account) = ledger.get(touched.id) else {
            continue;
        };
        let case = Case::new(policies.get(&touched.id), count);
        if account.row.worker == Some(worker)
            && put_back(&mut account.row, case, turn.now).is_some()
        {
            count += 1;
        }
    }
    ledger.write(turn).await?;
    Ok(count)
}

/// Loads the policies of those of these rows that may be suspected of killing their workers. There are almost never
/// any, and then nothing is read.
pub(super) async fn policies_of_suspects<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    ids: &[InstanceId],
) -> Result<BTreeMap<InstanceId, Policy>> {
    let mut ids = ids.to_vec();
    ids.retain(|id| {
        let account = ledger.get(*id);
        account.is_some_and(|account| deaths::is_suspected(account.row.deaths, MAX_DEATHS))
    });
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    policies_of(turn, &ids).await
}

/// Locks rows that were found without a lock, their partitions first.
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
