//! Deletes expired data, one batch at a time.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::InstanceId;
use abide_core::rules::retention::{Kin, REQUESTS_KEPT, WORKERS_KEPT, is_spared, next_up};

use crate::run::Turn;
use crate::{Answer, Cursor, Expiring, Forget, Loads, Result, SweepRequest, Txn, Write};

/// The number of history rows and records that one batch deletes: this many per instance of its limit, and at least the
/// second number. An instance with more is deleted in several batches.
const BELONGINGS_EACH: usize = 20;
const BELONGINGS_LEAST: usize = 1_000;

/// Deletes a batch of each kind of expired data (rule 16.2). A pass sends such batches, each from where the last one
/// ended, until nothing is left. It does not examine spared instances again.
pub(crate) async fn sweep<T: Txn>(
    turn: &mut Turn<'_, T>,
    request: &SweepRequest,
) -> Result<Answer> {
    let SweepRequest { before, limit, .. } = *request;
    let batch = instances(turn, request).await?;
    // rule 7.8: a signal that was held too long is marked as expired, and a signal that was never taken is deleted like
    // finished instances.
    let expired = turn.txn.forget(Forget::Held(turn.now), limit).await?;
    let forgotten = [
        turn.txn.forget(Forget::Records(before), limit).await?,
        turn.txn.forget(Forget::Events(before), limit).await?,
        // rule 14.6: a path on which no wait looks back any more costs publishers nothing.
        turn.txn.forget(Forget::Paths(before), limit).await?,
        // rule 1.5: requests are remembered for a day, however long instances are kept.
        turn.txn
            .forget(Forget::Requests(turn.now - REQUESTS_KEPT), limit)
            .await?,
        // rule 17.3: refused requests are kept for an operator as long as finished instances.
        turn.txn.forget(Forget::Refused(before), limit).await?,
        turn.txn
            .forget(Forget::Workers(turn.now - WORKERS_KEPT), limit)
            .await?,
    ];
    let more = forgotten.into_iter().any(|count| count >= limit);
    Ok(Answer::Swept {
        deleted: batch.deleted,
        spared: batch.spared,
        next: batch.next,
        more: batch.more || expired >= limit || more,
    })
}

/// The result for a batch of instances.
struct Batch {
    deleted: usize,
    spared: usize,
    next: Option<Cursor>,
    more: bool,
}

/// Deletes a batch of finished instances with all their data, and with their finished children. Those were spared while
/// an instance existed that might read them.
async fn instances<T: Txn>(turn: &mut Turn<'_, T>, request: &SweepRequest) -> Result<Batch> {
    let SweepRequest {
        before,
        after,
        limit,
    } = *request;
    let found = turn.txn.expiring(before, after, limit).await?;
    let mut batch = Batch {
        deleted: 0,
        spared: 0,
        next: found.last().map(|last| last.cursor).or(after),
        more: found.len() >= limit,
    };
    let family = family_above(turn, &found).await?;
    let (spared, gone): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|one| is_spared(one.parent, &family));
    batch.spared = spared.len();
    if gone.is_empty() {
        return Ok(batch);
    }
    let (gone, whole) = with_children(turn, gone, request).await?;
    batch.deleted = delete(turn, &gone, limit).await?;
    if !whole || batch.deleted < gone.len() {
        // The rest of them comes first in the next batch.
        (batch.next, batch.more, batch.spared) = (after, true, 0);
    }
    Ok(batch)
}

/// Loads the ancestors that the rule needs: the parents of the found instances, and further up as far as necessary.
async fn family_above<T: Txn>(
    turn: &mut Turn<'_, T>,
    found: &[Expiring],
) -> Result<BTreeMap<InstanceId, Kin>> {
    let mut family = BTreeMap::new();
    let mut parents: BTreeSet<InstanceId> = found.iter().filter_map(|one| one.parent).collect();
    while !parents.is_empty() {
        let ids: Vec<InstanceId> = parents.into_iter().collect();
        let kin = turn.txn.kin(&ids).await?;
        family.extend(kin.iter().copied());
        parents = kin
            .iter()
            .filter_map(|(_, kin)| next_up(kin))
            .filter(|id| !family.contains_key(id))
            .collect();
    }
    Ok(family)
}

/// Returns the instances to delete in one batch: those given with all finished instances below them, or, if that is too
/// much, only the lowest level. The flag is `true` if nothing is left out. If something is left out, the instances
/// above must stay until it is deleted; otherwise it would not be found again.
async fn with_children<T: Txn>(
    turn: &mut Turn<'_, T>,
    gone: Vec<Expiring>,
    request: &SweepRequest,
) -> Result<(Vec<Expiring>, bool)> {
    let SweepRequest { before, limit, .. } = *request;
    let mut all = gone;
    let mut whole = true;
    let mut seen: BTreeSet<InstanceId> = all.iter().map(|one| one.cursor.id).collect();
    let mut parents: Vec<InstanceId> = seen.iter().copied().collect();
    loop {
        let mut below = turn.txn.expired_children(&parents, before, limit).await?;
        let full = below.len() >= limit;
        below.retain(|one| seen.insert(one.cursor.id));
        if below.is_empty() && !full {
            return Ok((all, whole));
        }
        parents = below.iter().map(|one| one.cursor.id).collect();
        if full || all.len() + below.len() > limit.saturating_mul(2) {
            (all, whole) = (below, false);
        } else {
            all.extend(below);
        }
        if parents.is_empty() {
            return Ok((all, whole));
        }
    }
}

/// Deletes instances with all their data. Returns how many: none if that is too much for one batch. Then part of their
/// data was deleted.
async fn delete<T: Txn>(turn: &mut Turn<'_, T>, gone: &[Expiring], limit: usize) -> Result<usize> {
    let ids: Vec<InstanceId> = gone.iter().map(|one| one.cursor.id).collect();
    let most = limit.saturating_mul(BELONGINGS_EACH).max(BELONGINGS_LEAST);
    if turn.txn.forget(Forget::Belongings(&ids), most).await? >= most {
        return Ok(0);
    }
    // rule 2.4: dedup keys belong to the chain, and stay until its last run is deleted.
    let chains: BTreeSet<InstanceId> = gone.iter().map(|one| one.chain).collect();
    let chains: Vec<InstanceId> = chains.into_iter().collect();
    let leaving: BTreeSet<InstanceId> = ids.iter().copied().collect();
    let newest = turn.txn.newest(&chains).await?.into_iter();
    let over: Vec<InstanceId> = newest
        .filter(|(_, newest)| leaving.contains(newest))
        .map(|(chain, _)| chain)
        .collect();
    if !over.is_empty() {
        turn.txn.write(Write::ForgetChains(&over)).await?;
    }
    turn.txn.write(Write::Delete(&ids)).await?;
    Ok(ids.len())
}
