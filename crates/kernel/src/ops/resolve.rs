//! Finds the run that a target refers to, and locks it.

use std::collections::{BTreeSet, HashMap};

use abide_core::model::{InstanceId, Key, Target};

use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Error, Found, Loads, Result, Txn};

/// The maximum number of lookups of a key whose run continues as a new one while it is being locked.
const TRIES: usize = 8;

/// Finds and locks the runs that the targets refer to, partitions first. A key refers to the newest run, which is found
/// from the rows themselves (rule 2.5). If the run continued as a new one before it was locked, the key is looked up
/// again.
pub(crate) async fn locked<'a, T: Txn>(
    turn: &mut Turn<'_, T>,
    targets: &[Target],
) -> Result<(Vec<Option<Found>>, Ledger<'a>)> {
    let mut found = turn.txn.find(targets).await?;
    lock_partitions(turn, &found).await?;
    let ids = found.iter().flatten().map(|found| found.id).collect();
    let mut ledger = Ledger::load(turn.txn, ids).await?;
    for _ in 0..TRIES {
        let overtaken: Vec<usize> = targets
            .iter()
            .zip(&found)
            .enumerate()
            .filter(|(_, (target, found))| {
                matches!(target, Target::Key(_))
                    && found.as_ref().is_some_and(|found| {
                        ledger
                            .get(found.id)
                            .is_none_or(|account| account.row.status.is_terminal())
                    })
            })
            .map(|(at, _)| at)
            .collect();
        if overtaken.is_empty() {
            return Ok((found, ledger));
        }
        let again: Vec<Target> = overtaken
            .iter()
            .filter_map(|at| targets.get(*at).cloned())
            .collect();
        let mut fresh = BTreeSet::new();
        let now_found = turn.txn.find(&again).await?;
        lock_partitions(turn, &now_found).await?;
        for (at, now) in overtaken.into_iter().zip(now_found) {
            fresh.extend(
                now.iter()
                    .map(|now| now.id)
                    .filter(|id| ledger.get(*id).is_none()),
            );
            if let Some(slot) = found.get_mut(at) {
                *slot = now;
            }
        }
        if fresh.is_empty() {
            return Ok((found, ledger));
        }
        let fresh: Vec<InstanceId> = fresh.into_iter().collect();
        ledger.add(turn.txn, &fresh).await?;
    }
    Err(Error::Conflict(
        "the run that a key refers to kept changing while it was being locked".into(),
    ))
}

/// Returns the newest run of each chain of which an ended run was addressed by its id (rule 2.5). A run that has not
/// ended is the newest of its chain.
pub(crate) async fn current<T: Txn>(
    turn: &mut Turn<'_, T>,
    targets: &[Target],
    found: &[Option<Found>],
    ledger: &mut Ledger<'_>,
) -> Result<HashMap<InstanceId, InstanceId>> {
    let chains: BTreeSet<InstanceId> = targets
        .iter()
        .zip(found)
        .filter(|(target, _)| matches!(target, Target::Id(_)))
        .filter_map(|(_, found)| {
            let row = &ledger.get(found.as_ref()?.id)?.row;
            row.status.is_terminal().then(|| row.chain())
        })
        .collect();
    if chains.is_empty() {
        return Ok(HashMap::new());
    }
    let chains: Vec<InstanceId> = chains.into_iter().collect();
    Ok(turn.txn.newest(&chains).await?.into_iter().collect())
}

async fn lock_partitions<T: Txn>(turn: &mut Turn<'_, T>, found: &[Option<Found>]) -> Result<()> {
    let keys: BTreeSet<&Key> = found
        .iter()
        .flatten()
        .filter_map(|found| found.partition.as_ref())
        .collect();
    turn.lock_partitions(keys).await
}
