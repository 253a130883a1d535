//! Makes runnable what is due, and takes back what was held for too long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use abide_core::model::{Claim, Commit, InstanceId, Key, Outcome, ParentRef, Policy, Row};
use abide_core::rules::timers::{self, Lapse};

use super::commit::commit;
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Answer, Lapsed, Result, Touched, Txn};

/// Makes runnable what is due: what was scheduled, and what waited to its deadline (rules 6.5, 7.5, 10.3); and takes back
/// claims whose own lease has run out (rules 5.3, 5.4). These go first: there are never more of them than workers hold,
/// and what is due may be without end.
pub(crate) async fn fire<T: Txn>(turn: &mut Turn<'_, T>, limit: usize) -> Result<Answer> {
    let room = turn.room(limit);
    let lapsed = turn.txn.lapsed(turn.now, room).await?;
    let lapsed = turn.choose(lapsed, |one| one.touched.id, limit);
    let left = limit.saturating_sub(lapsed.len());
    let room = turn.room(left);
    let due = turn.txn.due(turn.now, room).await?;
    let due = turn.choose(due, |one| one.id, left);
    let more = lapsed.len() + due.len() >= limit;
    let mut ledger = locked(turn, &due, &lapsed).await?;
    let mut count = 0;
    for touched in &due {
        let Some(account) = ledger.get(touched.id) else {
            continue;
        };
        if let Some(fired) = timers::fire(&mut account.row, turn.now) {
            account.told.extend(fired.happening);
            count += 1;
        }
    }
    let mut late = Vec::new();
    for one in &lapsed {
        let Some(account) = ledger.get(one.touched.id) else {
            continue;
        };
        match timers::lapse(&mut account.row, &one.worker, turn.now) {
            Some(Lapse::Reclaimed(told)) => account.told.push(told),
            Some(Lapse::PastLimit) => late.extend(claim(&account.row, one.parent.clone())),
            None => continue,
        }
        count += 1;
    }
    ledger.write(turn).await?;
    fail(turn, late).await?;
    Ok(Answer::Touched { count, more })
}

/// Locks what was found without a lock, and the parents that may have to be told: all partitions first, then all rows by
/// id.
async fn locked<'a, T: Txn>(
    turn: &mut Turn<'_, T>,
    due: &[Touched],
    lapsed: &[Lapsed],
) -> Result<Ledger<'a>> {
    let rows = || due.iter().chain(lapsed.iter().map(|one| &one.touched));
    let parents = || lapsed.iter().filter_map(|one| one.parent.as_ref());
    let mut keys: BTreeSet<&Key> = rows().filter_map(|one| one.partition.as_ref()).collect();
    keys.extend(parents().filter_map(|parent| parent.partition.as_ref()));
    turn.lock_partitions(keys).await?;
    let ids = rows().map(|one| one.id);
    Ledger::load(turn.txn, ids.chain(parents().map(|one| one.id)).collect()).await
}

/// The claim under which a row is held now.
fn claim(row: &Row, parent: Option<ParentRef>) -> Option<Claim> {
    let partition = row.partition_key.clone();
    let worker = row.worker?;
    Some(Claim::granted(row.id, row.epoch, worker, partition, parent))
}

/// Fails the steps that have passed their time limit (rule 5.4), as their workers would have: whoever runs them is stale
/// from now on.
async fn fail<T: Txn>(turn: &mut Turn<'_, T>, late: Vec<Claim>) -> Result<()> {
    if late.is_empty() {
        return Ok(());
    }
    let ids: Vec<InstanceId> = late.iter().map(Claim::id).collect();
    let policies: BTreeMap<InstanceId, Policy> =
        turn.txn.policies(&ids).await?.into_iter().collect();
    let failure = |claim: Claim| {
        let policy = policies.get(&claim.id());
        let limit = policy.and_then(|policy| policy.step_timeout_ms);
        Commit {
            claim,
            outcome: Outcome::Fail {
                error: timers::over_limit(limit),
            },
            keep: false,
            took: Duration::from_millis(limit.unwrap_or_default()),
            error: None,
        }
    };
    let commits: Vec<Commit> = late.into_iter().map(failure).collect();
    commit(turn, &commits, &[]).await?;
    Ok(())
}
