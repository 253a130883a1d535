//! The run that follows another in its chain.

use std::collections::BTreeMap;

use abide_core::model::{Happening, InstanceId, Json, Name, NewRow, Outcome, Started, Then};
use abide_core::rules::start::successor;

use super::start;
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Error, Result, Txn};

/// Opens the runs that follow those which continue as new, in the same commit: with the same key, the same place at the
/// parent's barrier, and all that is pending (rule 2.4).
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
            (row.version, row.contract) = (version, contract_of(turn, &row, version).await?);
        }
        rows.push(row);
    }
    turn.txn.supersede(&ids).await?;
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
            account.told.push(Happening::Continued {
                run_id,
                run_number: row.run.number,
            });
        }
    }
    if moves.is_empty() {
        Ok(())
    } else {
        turn.txn.move_pending(&moves).await
    }
}

/// Where and with what a chain goes on: at which step, when that is said.
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

/// The contract that a version of a row's machine declares.
async fn contract_of<T: Txn>(
    turn: &mut Turn<'_, T>,
    row: &NewRow,
    version: u32,
) -> Result<Option<abide_core::model::ContractId>> {
    let machine: Name = row.machine.clone();
    let declared = turn.txn.declared(&[machine]).await?;
    Ok(declared
        .into_iter()
        .find(|declared| declared.version == version)
        .and_then(|declared| declared.contract))
}
