//! Opens the next run of a chain.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{HistoryEvent, InstanceId, Json, Name, NewRow, Outcome, Started, Then};
use abide_core::rules::start::successor;

use super::start;
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Error, Loads, Result, Txn, Write};

/// Opens the next runs of instances that continue as new, in the same commit: with the same key, the same place at the
/// parent's barrier, and all pending commands (rule 2.4).
pub(crate) async fn go_on<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    continued: Vec<(InstanceId, &Outcome)>,
) -> Result<()> {
    if continued.is_empty() {
        return Ok(());
    }
    let mut ids: Vec<InstanceId> = continued.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    let copies: BTreeMap<InstanceId, NewRow> = turn.txn.copies(&ids).await?.into_iter().collect();
    let mut rows = Vec::with_capacity(continued.len());
    for (id, outcome) in &continued {
        let (Some(account), Some(last), Some((step, state, version))) =
            (ledger.get(*id), copies.get(id), continuation(outcome))
        else {
            return Err(Error::Broken(format!(
                "instance {id} continues as new and is not there"
            )));
        };
        let step = step.unwrap_or(&last.step);
        let mut row = successor(last, &account.row, step, state.clone(), turn.now);
        if let Some(version) = version {
            (row.version, row.contract) = (version, None);
        }
        rows.push(row);
    }
    take_newest_contracts(turn, &mut rows).await?;
    turn.txn.write(Write::Supersede(&ids)).await?;
    let started = start::insert(turn, &rows).await?;
    let mut moves = Vec::with_capacity(continued.len());
    for (((id, _), row), started) in continued.iter().zip(&rows).zip(started) {
        let Started::New(run_id) = started else {
            return Err(Error::Conflict(format!(
                "the key of instance {id} was taken while it continued as new"
            )));
        };
        if let Some(account) = ledger.get(*id) {
            if account.row.inbox.signals + account.row.inbox.updates > 0 {
                moves.push((*id, run_id));
            }
            (account.row.inbox.signals, account.row.inbox.updates) = (0, 0);
            account.row.inbox.settle_bytes();
            account.supersede();
            account.history_events.push(HistoryEvent::Continued {
                run_id,
                run_number: row.run.number,
            });
        }
    }
    if moves.is_empty() {
        Ok(())
    } else {
        turn.txn.write(Write::MovePending(&moves)).await
    }
}

/// Returns the step, if it is given, the state, and the version, if it is given, with which a chain continues.
fn continuation(outcome: &Outcome) -> Option<(Option<&Name>, &Json, Option<u32>)> {
    match outcome {
        Outcome::ContinueAsNew {
            step,
            state,
            version,
        } => Some((Some(step), state, *version)),
        Outcome::Workflow(turn) => match &turn.then {
            Then::ContinueAsNew { state, version } => Some((None, state, *version)),
            _ => None,
        },
        _ => None,
    }
}

/// Assigns runs the contracts that their machines declare now (rule 8.2). Runs of undeclared machines keep theirs.
async fn take_newest_contracts<T: Txn>(turn: &mut Turn<'_, T>, rows: &mut [NewRow]) -> Result<()> {
    let machines: BTreeSet<Name> = rows.iter().map(|row| row.machine.clone()).collect();
    let machines: Vec<Name> = machines.into_iter().collect();
    let declared = turn.txn.declared(&machines).await?;
    for row in rows {
        let mut declared = declared.iter();
        let own = declared.find(|one| one.machine == row.machine && one.version == row.version);
        if let Some(own) = own {
            row.contract = own.contract;
        }
    }
    Ok(())
}
