//! Gives a restarted run the signals of the failed step (rule 11.2).

use abide_core::model::{InstanceId, Kind, Name, Row, Status};
use abide_core::rules::start::hand_again as handed_again;

use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Result, Txn};

/// Copies the signals that the last step of a failed run received into the inbox of the next run, if that begins at the
/// same step. Another step did not wait for them, and a workflow begins at its first line, so those get nothing.
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
    turn.txn.insert_commands(&again.copies).await
}
