//! The operations of an operator: cancel, restart, repair.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{
    Cancel, Children, Closing, CommandKind, HistoryEvent, InstanceId, Json, Kind, Lane, Name,
    NewCommand, Operated, Row, Started, Status, Target, check_claimed_source,
};
use abide_core::rules::block::{Release, unblock};
use abide_core::rules::children::{self, Ended};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::graph::{graph_of, restarted};
use abide_core::rules::liveness::{Problem, problem};
use abide_core::rules::operate as rules;
use abide_core::rules::start::successor;

use super::commit::{close, lock_parents, notify_parents, pending_of};
use super::deliver::deliver;
use super::examine::around;
use super::restarted::hand_again;
use super::workers::locked;
use super::{resolve, start};
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Answer, Found, Loads, Result, Txn, Write};

/// Cancels instances, and their children too unless these are to be left (rule 11.1).
pub(crate) async fn cancel<T: Txn>(
    turn: &mut Turn<'_, T>,
    cancels: &[Cancel],
) -> Result<Vec<Operated>> {
    turn.limits.check_batch(cancels.len())?;
    for one in cancels {
        check_claimed_source(one.claimed_source.as_deref())?;
    }
    let mut answers = Vec::with_capacity(cancels.len());
    for one in cancels {
        answers.push(cancel_one(turn, one).await?);
    }
    Ok(answers)
}

async fn cancel_one<T: Txn>(turn: &mut Turn<'_, T>, cancel: &Cancel) -> Result<Operated> {
    let (root, mut ledger) = match find(turn, &cancel.target).await? {
        Ok(found) => found,
        Err(refused) => return Ok(refused),
    };
    let Some(row) = ledger.get(root).map(|account| account.row.clone()) else {
        return Ok(Operated::NoTarget);
    };
    if row.status.is_terminal() {
        return Ok(Operated::NotActive(row.status));
    }
    let mut targets = vec![root];
    if cancel.children == Children::Cascade {
        targets.extend(descendants(turn, &mut ledger, root).await?);
    }
    let needs: Vec<_> = targets
        .iter()
        .filter(|id| {
            ledger
                .get(**id)
                .is_some_and(|account| account.row.inbox.signals + account.row.inbox.updates > 0)
        })
        .map(|id| (*id, InboxNeeds::at_all()))
        .collect();
    let pending = pending_of(turn, &needs).await?;
    let mut closings: Vec<Closing> = Vec::new();
    let mut ends: BTreeMap<InstanceId, Vec<Ended>> = BTreeMap::new();
    let mut count = 0;
    let mut by_code = Vec::new();
    for id in targets {
        let Some(account) = ledger.get(id) else {
            continue;
        };
        if account.row.status.is_terminal() {
            continue;
        }
        count += usize::from(id != root);
        if !cancel.force && rules::code_handles_cancel(&account.row) {
            by_code.push(id);
            continue;
        }
        let left = pending.get(&id).map_or(&[][..], Vec::as_slice);
        let closed = rules::cancel(
            &mut account.row,
            left,
            &cancel.reason,
            turn.limits,
            turn.now,
        );
        closings.extend(closed.closings);
        account.history_events.extend(closed.history_events);
        if let Some(parent) = account.row.parent {
            ends.entry(parent).or_default().push(Ended {
                child: id,
                barrier: account.row.parent_barrier,
                status: Status::Cancelled,
            });
        }
    }
    notify_parents(turn, &mut ledger, ends).await?;
    close(turn, &closings).await?;
    ledger.write(turn).await?;
    let root_by_code = by_code.contains(&root);
    // Each gets one such command, however often it is cancelled.
    let requests: Vec<NewCommand> = by_code.into_iter().map(|id| request(cancel, id)).collect();
    if !requests.is_empty() {
        deliver(turn, &requests).await?;
    }
    Ok(match root_by_code {
        true => Operated::Cancelling {
            id: root,
            children: count,
        },
        false => Operated::Cancelled {
            id: root,
            children: count,
        },
    })
}

/// Creates the command that asks a workflow to cancel, so that its code can clean up first.
fn request(cancel: &Cancel, id: InstanceId) -> NewCommand {
    NewCommand {
        kind: CommandKind::Cancel,
        arguments: vec![Json::of(&cancel.reason).unwrap_or_default()].into(),
        dedup_key: Some(Name::stored(format!("cancel:{id}"))),
        source: cancel.source.clone(),
        claimed_source: cancel.claimed_source.clone(),
        ..NewCommand::signal(id, Name::stored("cancel"))
    }
}

/// Locks all descendants of a locked instance that have not ended, level by level. A locked instance gets no more
/// children. But a child can continue as a new run before it is locked (rule 2.4), and the new run has the same parent.
/// Then the parent's children are read again.
async fn descendants<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    root: InstanceId,
) -> Result<Vec<InstanceId>> {
    let mut all = Vec::new();
    let mut seen = BTreeSet::from([root]);
    let mut parents = vec![root];
    while !parents.is_empty() {
        let mut found = turn.txn.live_children(&parents).await?;
        found.retain(|child| seen.insert(child.id));
        let partitions = found
            .iter()
            .filter_map(|child| child.partition.as_ref())
            .collect();
        turn.lock_partitions(partitions).await?;
        let mut children: Vec<InstanceId> = found.iter().map(|child| child.id).collect();
        children.sort_unstable();
        ledger.add(turn.txn, &children).await?;
        let mut next = BTreeSet::new();
        for child in children {
            match ledger.get(child).map(|account| &account.row) {
                Some(row) if row.status == Status::Continued => next.extend(row.parent),
                Some(row) if !row.status.is_terminal() => {
                    next.insert(child);
                    all.push(child);
                }
                _ => {}
            }
        }
        parents = next.into_iter().collect();
    }
    Ok(all)
}

/// Opens a new run of failed or cancelled instances (rule 11.2).
pub(crate) async fn restart<T: Txn>(
    turn: &mut Turn<'_, T>,
    restarts: &[(Target, Option<Name>)],
) -> Result<Vec<Operated>> {
    turn.limits.check_batch(restarts.len())?;
    let mut answers = Vec::with_capacity(restarts.len());
    for (target, step) in restarts {
        answers.push(restart_one(turn, target, step.as_ref()).await?);
    }
    Ok(answers)
}

async fn restart_one<T: Txn>(
    turn: &mut Turn<'_, T>,
    target: &Target,
    step: Option<&Name>,
) -> Result<Operated> {
    // The restart starts under a key, and must exclude transactions that hold a signal for it. A run's key never
    // changes.
    let found = turn.txn.find(std::slice::from_ref(target)).await?;
    if let Some(key) = found.into_iter().flatten().find_map(|found| found.key) {
        turn.txn.lock_keys(&[key], &[]).await?;
    }
    let (id, mut ledger) = match find(turn, target).await? {
        Ok(found) => found,
        Err(refused) => return Ok(refused),
    };
    let Some(row) = ledger.get(id).map(|account| account.row.clone()) else {
        return Ok(Operated::NoTarget);
    };
    match row.status {
        Status::Failed | Status::Cancelled => {}
        Status::Reserved => return Ok(Operated::NotStarted),
        status => return Ok(Operated::NotRestartable(status)),
    }
    let Some((_, last)) = turn.txn.copies(&[id]).await?.into_iter().next() else {
        return Ok(Operated::NoTarget);
    };
    let state = match graph_of(row.machine.as_str()) {
        Some(_) => restarted(&last.state),
        None => None,
    };
    let state = state.unwrap_or_else(|| last.state.clone());
    let new = successor(&last, &row, step.unwrap_or(&row.step), state, turn.now);
    let new = [new];
    let mut started = start::insert(turn, &new).await?;
    // Its own last run may still hold the key, and passes it to the new run.
    let own = started.contains(&Started::Duplicate(id));
    if own
        && let Some(row) = new.first()
        && let Some(holder) = start::unique_holder(turn, row).await?
        && holder != id
    {
        return Ok(Operated::KeyTaken(holder));
    }
    if own || started.iter().all(|one| matches!(one, Started::New(_))) {
        turn.txn.write(Write::Supersede(&[id])).await?;
    }
    if own {
        started = start::insert(turn, &new).await?;
    }
    let run_number = row.run.number.saturating_add(1);
    let run_id = match started.first() {
        Some(Started::New(run_id)) => *run_id,
        Some(Started::Duplicate(holder)) => return Ok(Operated::KeyTaken(*holder)),
        None => return Ok(Operated::NoTarget),
    };
    if let Some(account) = ledger.get(id) {
        account.supersede();
        account
            .history_events
            .push(HistoryEvent::Continued { run_id, run_number });
    }
    let step = step.unwrap_or(&row.step);
    hand_again(turn, &mut ledger, &row, run_id, step).await?;
    reopen_barrier(turn, &mut ledger, &row).await?;
    ledger.write(turn).await?;
    Ok(Operated::Restarted {
        id: run_id,
        run_number,
    })
}

/// Makes the parent wait again for a child that is restarted.
async fn reopen_barrier<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    child: &Row,
) -> Result<()> {
    let Some(parent) = child.parent else {
        return Ok(());
    };
    if ledger.get(parent).is_none() {
        lock_parents(turn, ledger, &[parent]).await?;
    }
    if let Some(account) = ledger.get(parent) {
        children::reopened(&mut account.row, child.parent_barrier);
    }
    Ok(())
}

/// Finds and locks the newest run that a target refers to. Returns a refusal if the run cannot be operated on.
async fn find<'a, T: Txn>(
    turn: &mut Turn<'_, T>,
    target: &Target,
) -> Result<std::result::Result<(InstanceId, Ledger<'a>), Operated>> {
    let targets = std::slice::from_ref(target);
    let (found, mut ledger) = resolve::locked(turn, targets).await?;
    let Some(Found { id, .. }) = found.iter().flatten().next() else {
        return Ok(Err(Operated::NoTarget));
    };
    let current = resolve::current(turn, targets, &found, &mut ledger).await?;
    let chain = ledger.get(*id).map(|account| account.row.chain());
    let newer = chain.and_then(|chain| current.get(&chain)).copied();
    Ok(match newer {
        Some(newer) if newer != *id => Err(Operated::NotCurrent(newer)),
        _ => Ok((*id, ledger)),
    })
}

/// Repairs problems of instances (rule 11.3).
pub(crate) async fn repair<T: Txn>(
    turn: &mut Turn<'_, T>,
    targets: &[Target],
) -> Result<Vec<Operated>> {
    turn.limits.check_batch(targets.len())?;
    let mut answers = Vec::with_capacity(targets.len());
    for target in targets {
        answers.push(repair_one(turn, target).await?);
    }
    Ok(answers)
}

async fn repair_one<T: Txn>(turn: &mut Turn<'_, T>, target: &Target) -> Result<Operated> {
    let (id, mut ledger) = match find(turn, target).await? {
        Ok(found) => found,
        Err(refused) => return Ok(refused),
    };
    let Some(row) = ledger.get(id).map(|account| account.row.clone()) else {
        return Ok(Operated::NoTarget);
    };
    match row.status {
        Status::Reserved => return Ok(Operated::NotStarted),
        status if status.is_terminal() => return Ok(Operated::NotActive(status)),
        _ => {}
    }
    let around = around(turn, std::slice::from_ref(&row)).await?;
    let Some(found) = problem(&row, around.world(&row)) else {
        if row.is_blocked() {
            let why = match row.kind {
                Kind::Workflow => "its code did not fit its history",
                Kind::Machine => "a build could not run its step",
            };
            release(turn, ledger, &[id], Release::Repair, why).await?;
            return Ok(Operated::RepairDispatched);
        }
        if row.status == Status::Runnable
            && !row.unfit.is_empty()
            && let Some(account) = ledger.get(id)
        {
            // A worker that may be gone has released it: every build may try again.
            account.row.unfit.clear();
            account.history_events.push(HistoryEvent::Repaired {
                problem: "a build could not run its step".to_owned(),
            });
            ledger.write(turn).await?;
            return Ok(Operated::RepairDispatched);
        }
        return Ok(Operated::RepairNotNeeded);
    };
    let pending = pending_of(turn, &[(id, InboxNeeds::at_all())]).await?;
    let pending = pending.get(&id).map_or(&[][..], Vec::as_slice);
    if let Some(account) = ledger.get(id) {
        let event = rules::repair(&mut account.row, &found, pending, turn.now);
        account.history_events.push(event);
    }
    if found == Problem::NoFront {
        turn.partitions.extend(row.partition_key.clone());
    }
    ledger.write(turn).await?;
    Ok(Operated::RepairDispatched)
}

/// Releases instances that builds could not run, so that another build may try (rule 12.4): a bounded number per call.
pub(crate) async fn release_blocked<T: Txn>(
    turn: &mut Turn<'_, T>,
    (build, fresh): (Option<&Name>, bool),
    lanes: &[Lane],
    after: InstanceId,
    limit: usize,
) -> Result<Answer> {
    let (by, unless) = match (build, fresh) {
        (Some(build), true) => (Release::Fresh(build), None),
        (Some(build), false) => (Release::Live(build), Some(build)),
        (None, _) => (Release::Repair, None),
    };
    let page = turn.txn.blocked(lanes, unless, after, limit).await?;
    let chosen = turn.choose(page.clone(), |one| one.id, limit);
    let ledger = locked(turn, &chosen).await?;
    let ids: Vec<InstanceId> = chosen.iter().map(|touched| touched.id).collect();
    let why = "a worker came whose code may fit";
    let count = release(turn, ledger, &ids, by, why).await?;
    Ok(Answer::Released {
        count,
        next: (page.len() >= limit)
            .then(|| page.last().map(|last| last.id))
            .flatten(),
    })
}

async fn release<T: Txn>(
    turn: &mut Turn<'_, T>,
    mut ledger: Ledger<'_>,
    ids: &[InstanceId],
    by: Release<'_>,
    why: &str,
) -> Result<usize> {
    let mut count = 0;
    for id in ids {
        if let Some(account) = ledger.get(*id)
            && unblock(&mut account.row, by, turn.now)
        {
            count += 1;
            account.history_events.push(HistoryEvent::Repaired {
                problem: why.to_owned(),
            });
        }
    }
    ledger.write(turn).await?;
    Ok(count)
}
