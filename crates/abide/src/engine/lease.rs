//! Keeps this worker's lease alive, and, beside that, takes back what dead workers held.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_core::model::{Lane, Name, Timestamp, WorkerId};
use abide_kernel::committer::Bulk;
use abide_kernel::{Answer, Backoff, Error, NewWorker, Op, Result};

use super::builder::Shared;
use super::stats::add;

/// The rows taken back in one transaction.
pub(super) const BATCH: usize = 500;
/// How often a lease is renewed before it would run out.
const RENEWALS: u32 = 3;

/// How long a worker that starts waits for what it held before.
const TAKING_UP: Duration = Duration::from_secs(2);

/// Renews the lease until nothing runs any more (rule 6.4), which in a shutdown may be later than the engine's stop (rule
/// 6.7). It does nothing else, so that nothing holds it up.
pub(super) async fn keep_alive(shared: Arc<Shared>) {
    let interval = shared.settings.lease / RENEWALS;
    let mut pause = interval;
    let mut backoff = Backoff::away();
    while shared.pause_until(&shared.over, pause).await.is_continue() {
        pause = match beat(&shared).await {
            Ok(()) => {
                backoff.reset();
                interval
            }
            Err(error) => {
                tracing::warn!(%error, worker = %shared.settings.name, "the lease could not be renewed; trying again");
                // Until it is, nothing may be claimed when the lease is over.
                backoff
                    .failed()
                    .map_or(interval, |delay| interval.min(delay))
            }
        };
    }
}

async fn beat(shared: &Shared) -> Result<()> {
    let worker = shared.worker();
    let from = shared.clock.now();
    let answers = shared
        .store
        .run(Arc::from([Op::Renew {
            workers: vec![worker],
            lease: shared.settings.lease,
        }]))
        .await?;
    if shared.over.is_cancelled() {
        // It may have signed off meanwhile, and is not to come back.
        return Ok(());
    }
    if matches!(answers.first(), Some(Answer::Renewed { lost }) if !lost.is_empty()) {
        tracing::error!(
            worker = %shared.settings.name,
            "the lease ran out, or another process took this worker's name: what it held runs elsewhere"
        );
        // Not under the same name: two processes that share one would take it from each other for ever.
        let name = Name::new(format!(
            "{}~{:08x}",
            shared.settings.name,
            fastrand::u32(..)
        ))?;
        return register(shared, name).await;
    }
    believe(shared, from);
    Ok(())
}

/// Takes back what dead workers held (rule 5.3), as often as a lease is renewed, until the engine stops.
pub(super) async fn keep_reclaiming(shared: Arc<Shared>) {
    let interval = shared.settings.lease / RENEWALS;
    while shared.pause(interval).await.is_continue() {
        if let Err(error) = reclaim(&shared).await {
            tracing::warn!(%error, "what dead workers held could not be taken back; trying again");
        }
    }
}

/// Notes until when this worker is believed, counted from before it was asked.
fn believe(shared: &Shared, from: Timestamp) {
    let until = from + shared.settings.lease;
    let was = shared.is_believed();
    shared
        .believed_until
        .store(until.as_micros(), Ordering::Release);
    if !was {
        shared.believed_again.notify_one();
    }
}

/// Makes this worker known. What an earlier process of its name held may be taken back from now on.
pub(super) async fn register(shared: &Shared, name: Name) -> Result<()> {
    let from = shared.clock.now();
    let worker = NewWorker {
        name,
        lease: shared.settings.lease,
        queues: shared.queues(),
        lanes: shared.lanes(),
    };
    let answers = shared.store.run(Arc::from([Op::Register(worker)])).await?;
    let Some(Answer::Registered(worker)) = answers.into_iter().next() else {
        return Err(Error::Broken(
            "a registration was answered with something else".into(),
        ));
    };
    shared.registered(worker.name, worker.id);
    believe(shared, from);
    Ok(())
}

/// Takes back at once what an earlier process of this worker's name held (rule 5.3). Where somebody has that locked, an
/// engine starts all the same: it is tried again.
pub(super) async fn take_up(shared: &Shared) {
    match tokio::time::timeout(TAKING_UP, reclaim(shared)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "what this worker held before is taken back later");
        }
        Err(_) => tracing::warn!("what this worker held before is locked, and taken back later"),
    }
}

/// Makes known that this worker serves more, and has code for more.
pub(super) async fn enlist(shared: &Shared, queues: Vec<Name>, lanes: Vec<Lane>) -> Result<()> {
    let worker = NewWorker {
        name: shared.alias(),
        lease: shared.settings.lease,
        queues,
        lanes,
    };
    shared.store.run(Arc::from([Op::Enlist(worker)])).await?;
    Ok(())
}

/// Takes from dead workers what they held.
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

/// Gives back all that this worker still holds, so that nobody waits for its lease (rule 6.7). What cannot be given back is
/// taken back when it can.
pub(super) async fn sign_off(shared: &Shared, worker: WorkerId) -> Result<()> {
    let mut bulk = Bulk::new(BATCH);
    loop {
        let signed = bulk.run(&shared.store, |limit| Op::SignOff { worker, limit });
        if !matches!(signed.await?, Answer::Touched { more: true, .. }) {
            return Ok(());
        }
    }
}
