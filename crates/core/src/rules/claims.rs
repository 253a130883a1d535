//! Who holds an instance: the fence at the commit, and what happens when a hold ends without one.

use std::time::Duration;

use crate::model::{Cause, Claim, Epoch, Happening, Heartbeat, Name, Row, Status, Timestamp};

/// What a claim is worth when its outcome arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The claim holds.
    Holds,
    /// This very outcome was committed already: the answer got lost and it was sent again.
    Repeated,
    /// The claim was lost.
    Lost,
}

/// What a claim is worth now (rule 1.3). A commit whose answer got lost is settled here: the epoch it was made under is
/// in the row.
///
/// The epoch decides, and not the time: when a lease, of the claim or of its worker, has run out and nobody has taken the
/// claim back yet, the step has not begun anywhere else, and its outcome is as good as ever.
pub fn standing(row: &Row, claim: &Claim) -> Standing {
    let parent = claim.parent().map(|parent| parent.id);
    if claim.partition() != row.partition_key.as_ref() || parent != row.parent {
        // Nobody was granted that. What was locked for its sake is not what would have to be.
        return Standing::Lost;
    }
    if row.status == Status::Executing
        && row.epoch == claim.epoch()
        && row.worker == Some(claim.worker())
    {
        Standing::Holds
    } else if row.settled == claim.epoch() {
        Standing::Repeated
    } else {
        Standing::Lost
    }
}

/// Renews the lease of a hold (rule 6.4). It is lost when it does not stand, and when its lease has run out, taken back
/// or not: a lease that has run out is not believed in again. One without a lease of its own is as good as its worker.
pub fn extend(row: &mut Row, claim: &Claim, lease: Duration, now: Timestamp) -> Heartbeat {
    if standing(row, claim) != Standing::Holds || row.lease.is_some_and(|held| held.is_over(now)) {
        return Heartbeat::Lost;
    }
    row.lease = row.lease.map(|held| held.extended(now, lease));
    Heartbeat::Renewed
}

/// Ends the hold on a row, whoever has it: its holder is stale from now on.
pub(super) fn end_hold(row: &mut Row) {
    row.epoch = Epoch(row.epoch.0 + 1);
    row.worker = None;
    row.lease = None;
}

/// Puts a row in its queue.
pub(super) fn queue_up(row: &mut Row, due_at: Timestamp, cause: Cause) {
    row.status = Status::Runnable;
    row.due_at = Some(due_at);
    row.cause = cause;
    // rule 6.3: it stands behind until its partition is settled, in the same commit.
    row.behind = row.partition_key.is_some();
}

/// Wakes a row that waits: into its queue, or, when it runs for nothing but updates, so that it runs on after them.
pub(super) fn come_back(row: &mut Row, now: Timestamp, cause: Cause) {
    match row.aside.take() {
        None => queue_up(row, now, cause),
        Some(_) => row.cause = cause,
    }
}

/// Takes a row from a worker that died: the step runs again, one attempt on, and no error handler is asked (rule 5.3).
/// `None` when that worker does not hold it any more.
pub fn reclaim(row: &mut Row, worker: &Name, now: Timestamp) -> Option<Happening> {
    // A step that was not begun, because updates go first, was not tried either.
    let attempt = row.attempt.saturating_add(u32::from(row.aside.is_none()));
    give_back(row, now)?;
    row.attempt = attempt;
    row.cause = Cause::Reclaim;
    Some(Happening::Reclaimed {
        step: row.step.clone(),
        attempt,
        worker: worker.clone(),
    })
}

/// Puts a row that a worker gives back into its queue, at its old place; `attempt` stays (rule 5.4). `None` when it is
/// not executing.
pub fn give_back(row: &mut Row, now: Timestamp) -> Option<()> {
    if row.status != Status::Executing {
        return None;
    }
    end_hold(row);
    queue_up(row, row.due_at.unwrap_or(now), row.cause);
    Some(())
}
