//! Deletes finished instances whose retention is over.

use abide_core::rules::retention::{REQUESTS_KEPT, is_spared};

use crate::run::Turn;
use crate::{Answer, Result, SweepRequest, Txn};

/// Deletes a batch of finished instances with all that belongs to them; what a parent still joins is spared
/// (rule 16.2).
pub(crate) async fn sweep<T: Txn>(
    turn: &mut Turn<'_, T>,
    request: &SweepRequest,
) -> Result<Answer> {
    let found = turn
        .txn
        .expiring(request.before, request.after, request.limit)
        .await?;
    let next = (found.len() >= request.limit)
        .then(|| found.last().map(|last| last.cursor))
        .flatten();
    let gone: Vec<_> = found
        .iter()
        .filter(|one| !is_spared(&one.expired))
        .map(|one| one.cursor.id)
        .collect();
    if !gone.is_empty() {
        turn.txn.delete(&gone).await?;
    }
    // rule 7.8: what was held too long is recorded so, and what nobody ever took goes like what has finished.
    turn.txn.expire_held(turn.now, request.limit).await?;
    turn.txn
        .forget_records(request.before, request.limit)
        .await?;
    turn.txn
        .forget_events(request.before, request.limit)
        .await?;
    // rule 1.5: however long instances are kept, requests are remembered for a day.
    turn.txn
        .forget_requests(turn.now - REQUESTS_KEPT, request.limit)
        .await?;
    Ok(Answer::Swept {
        deleted: gone.len(),
        next,
    })
}
