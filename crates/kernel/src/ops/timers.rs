//! Makes runnable what is due.

use abide_core::rules::timers;

use super::workers::locked;
use crate::run::Turn;
use crate::{Answer, Result, Txn};

/// Makes runnable what is due: what was scheduled, and what waited to its deadline (rules 6.5, 7.5, 10.3).
pub(crate) async fn fire<T: Txn>(turn: &mut Turn<'_, T>, limit: usize) -> Result<Answer> {
    let due = turn.txn.due(turn.now, limit).await?;
    let more = due.len() >= limit;
    let mut ledger = locked(turn, &due).await?;
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
    ledger
        .write(turn.txn, turn.now, &mut turn.effects, &mut turn.partitions)
        .await?;
    Ok(Answer::Touched { count, more })
}
