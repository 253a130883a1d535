//! Gives a restarted run the signals or the children of the failed step (rule 11.2).

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{Claim, InstanceId, Kind, Name, Row, Status};
use abide_core::rules::children::{adopt as adopted, has_joined};
use abide_core::rules::claims::names_other_parent;
use abide_core::rules::start::hand_again as handed_again;

use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Loads, Result, Txn, Write};

/// Hands the next run what the last step of a failed run was handed, if it begins at the same step: copies of the
/// signals, or the children that it had joined. Another step did not wait for them, and a workflow begins at its first
/// line, so those get nothing.
pub(super) async fn hand_again<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    failed: &Row,
    run_id: InstanceId,
    step: &Name,
) -> Result<()> {
    if failed.kind != Kind::Machine || failed.status != Status::Failed || *step != failed.step {
        return Ok(());
    }
    if has_joined(failed) {
        return adopt(turn, ledger, failed, run_id).await;
    }
    let signals = turn.txn.applied(failed.id, failed.step_seq).await?;
    if signals.is_empty() && !failed.timed_out {
        return Ok(());
    }
    ledger.add(turn.txn, &[run_id]).await?;
    let numbers = turn.txn.number(signals.len()).await?;
    let signals = signals.into_iter().zip(numbers).collect();
    let Some(account) = ledger.get(run_id) else {
        return Ok(());
    };
    let again = handed_again(&mut account.row, failed, signals, turn.now);
    account.history_events.extend(again.history_event);
    if again.copies.is_empty() {
        return Ok(());
    }
    turn.txn.write(Write::InsertCommands(&again.copies)).await
}

/// Gives the children that the failed step had joined to the next run. They change their parent, so that they are kept
/// as long as that run may read them (rule 16.2), and their ends are counted there.
async fn adopt<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    failed: &Row,
    run_id: InstanceId,
) -> Result<()> {
    let barrier = failed.family.barrier;
    let live = lock_live_children(turn, ledger, failed.id).await?;
    let pending = live.into_iter().filter(|child| {
        let account = ledger.get(*child);
        account.is_some_and(|account| account.row.parent_barrier == barrier)
    });
    let pending = u32::try_from(pending.count()).unwrap_or(u32::MAX);
    let count = turn.txn.adopt((failed.id, barrier), run_id).await?;
    ledger.add(turn.txn, &[run_id]).await?;
    if let Some(account) = ledger.get(run_id) {
        let event = adopted(&mut account.row, failed, (count, pending), turn.now);
        account.history_events.push(event);
    }
    Ok(())
}

/// Locks the children of a locked instance that have not ended. A child that continued as a new run before it was
/// locked has given its place to that run (rule 2.4); then the children are read again.
async fn lock_live_children<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    parent: InstanceId,
) -> Result<BTreeSet<InstanceId>> {
    let mut live = BTreeSet::new();
    loop {
        let found = turn.txn.live_children(&[parent]).await?.into_iter();
        let fresh: Vec<InstanceId> = found
            .map(|child| child.id)
            .filter(|id| ledger.get(*id).is_none())
            .collect();
        if fresh.is_empty() {
            return Ok(live);
        }
        ledger.add(turn.txn, &fresh).await?;
        live.extend(fresh.into_iter().filter(|id| {
            let account = ledger.get(*id);
            account.is_some_and(|account| !account.row.status.is_terminal())
        }));
    }
}

/// Returns the instances whose claims name the run of their parent that they had before a restart gave them to its next
/// run: both are runs of one chain, or the previous one was deleted. There are almost never any, and then nothing is
/// read.
pub(super) async fn moved<'c, T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    claims: impl Iterator<Item = &'c Claim>,
) -> Result<BTreeSet<InstanceId>> {
    let mut pairs = Vec::new();
    for claim in claims {
        let row = ledger.get(claim.id()).map(|account| &account.row);
        if let Some(row) = row.filter(|row| names_other_parent(row, claim))
            && let (Some(named), Some(parent)) = (claim.parent(), row.parent)
        {
            pairs.push((row.id, named.id, parent));
        }
    }
    if pairs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let parents: BTreeSet<InstanceId> = pairs
        .iter()
        .flat_map(|(_, named, parent)| [*named, *parent])
        .collect();
    let parents: Vec<InstanceId> = parents.into_iter().collect();
    let copies = turn.txn.copies(&parents).await?.into_iter();
    let chains: BTreeMap<InstanceId, InstanceId> = copies
        .map(|(id, row)| (id, row.run.first.unwrap_or(id)))
        .collect();
    let of_one_chain = |(_, named, parent): &(InstanceId, InstanceId, InstanceId)| {
        let named = chains.get(named);
        named.is_none() || named == chains.get(parent)
    };
    let moved = pairs.iter().filter(|pair| of_one_chain(pair));
    Ok(moved.map(|(id, ..)| *id).collect())
}
