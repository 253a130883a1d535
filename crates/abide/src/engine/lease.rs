//! Registers this worker, and takes back claims of dead workers. Its [heartbeat](super::heartbeat) renews its lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_core::model::{AT_ONCE, Lane, Name, Timestamp, WorkerId};
use abide_core::rules::leases::renewal;
use abide_kernel::committer::Bulk;
use abide_kernel::{Answer, Error, NewWorker, Op, Result};
use tokio::time::Instant;

use super::builder::Shared;
use super::stats::add;

/// The time that a starting worker waits to take back what it held before.
const TAKING_UP: Duration = Duration::from_secs(2);

/// The time for which a worker that signs off tries to give back what cannot be given back at once.
const SIGNING_OFF: Duration = Duration::from_secs(5);

/// Takes back claims of dead workers (rule 5.3), as often as a lease is renewed, until the engine stops.
pub(super) async fn keep_reclaiming(shared: Arc<Shared>) {
    let interval = renewal(shared.settings.lease);
    while shared.pause(interval).await.is_continue() {
        if let Err(error) = reclaim(&shared).await {
            tracing::warn!(%error, "claims of dead workers could not be taken back; trying again");
        }
    }
}

/// Notes when this worker's lease ends, counted from before the request was sent.
pub(super) fn believe(shared: &Shared, from: Timestamp) {
    let until = from + shared.settings.lease;
    let was = shared.is_believed();
    shared
        .believed_until
        .store(until.as_micros(), Ordering::Release);
    if !was {
        shared.believed_again.notify_one();
    }
}

/// Registers this worker. From now on, the claims of an earlier process with its name may be taken back.
pub(super) async fn register(shared: &Shared, name: Name) -> Result<()> {
    let from = shared.clock.now();
    let worker = NewWorker {
        name,
        lease: shared.settings.lease,
        queues: shared.queues(),
        lanes: shared.lanes(),
        build: Some(shared.settings.build()),
    };
    let answers = shared.store.run(Arc::from([Op::Register(worker)])).await?;
    let Some(Answer::Registered(worker)) = answers.into_iter().next() else {
        return Err(Error::unexpected_answer());
    };
    shared.registered(worker.name, worker.id);
    believe(shared, from);
    Ok(())
}

/// Takes back at once the claims of an earlier process with this worker's name (rule 5.3). If these rows are locked,
/// the engine starts anyway, and they are taken back later.
pub(super) async fn take_up(shared: &Shared) {
    match tokio::time::timeout(TAKING_UP, reclaim(shared)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "earlier claims of this worker are taken back later");
        }
        Err(_) => tracing::warn!("earlier claims of this worker are locked, and taken back later"),
    }
}

/// Registers further queues and lanes of this worker.
pub(super) async fn enlist(shared: &Shared, queues: Vec<Name>, lanes: Vec<Lane>) -> Result<()> {
    let worker = NewWorker {
        name: shared.alias(),
        lease: shared.settings.lease,
        queues,
        lanes,
        build: Some(shared.settings.build()),
    };
    shared.store.run(Arc::from([Op::Enlist(worker)])).await?;
    Ok(())
}

/// Takes back claims of dead workers.
async fn reclaim(shared: &Shared) -> Result<()> {
    let mut bulk = shared.reclaiming.lock().await;
    loop {
        let taken = bulk.run(&shared.store, |limit| Op::Reclaim { limit });
        let Answer::Touched { count, more } = taken.await? else {
            return Ok(());
        };
        add(&shared.counters.reclaimed, count);
        if !more {
            return Ok(());
        }
    }
}

/// Gives back everything that this worker still holds, so that others need not wait for its lease (rule 6.7). An
/// instance that cannot be given back is tried again for a short time, and only then the lease ends: whatever is held
/// under a lease that has ended is taken back as that of a dead worker, and counts as a death. What is left after that
/// time can be taken back at once.
pub(super) async fn sign_off(shared: &Shared, worker: WorkerId) -> Result<()> {
    let mut bulk = Bulk::new(AT_ONCE);
    // The lease is not renewed any more, and must not expire meanwhile.
    let patience = SIGNING_OFF.min(renewal(shared.settings.lease));
    let patience = Instant::now() + patience;
    loop {
        let known = Vec::new();
        let given = bulk.run(&shared.store, |limit| Op::GiveBackExcept {
            worker,
            known: known.clone(),
            limit,
        });
        if matches!(given.await?, Answer::Touched { more: true, .. }) {
            continue;
        }
        match bulk.retries_at().filter(|at| *at < patience) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => break,
        }
    }
    loop {
        let signed = bulk.run(&shared.store, |limit| Op::SignOff { worker, limit });
        if !matches!(signed.await?, Answer::Touched { more: true, .. }) {
            return Ok(());
        }
    }
}
