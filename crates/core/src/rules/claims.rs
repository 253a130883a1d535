//! Claims: the fence at the commit, and what happens if a claim ends without a commit.

use std::time::Duration;

use super::deaths::{self, Case};
use crate::model::{
    Cause, Claim, Epoch, Heartbeat, HistoryEvent, Name, ResumeSource, Row, Settled, Status,
    Timestamp,
};

#[cfg(test)]
mod tests;

/// The validity of a claim when its outcome arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The claim is valid.
    Holds,
    /// An outcome was already committed under this claim: its answer was lost and it was sent again.
    Repeated,
    /// The claim was lost.
    Lost,
}

/// Returns the validity of a claim (rule 1.3). This also recognises a commit whose answer was lost: the row stores the
/// epoch under which it was made, even if others were made since (rule 1.7).
///
/// The epoch decides, not the time: if a lease, of the claim or of its worker, has expired and the claim was not taken
/// back yet, the step has not begun anywhere else, and its outcome is still valid.
///
/// A claim that was granted before a restart gave the instance to the next run of its parent names the previous run:
/// `moved` says that the two are runs of one chain (rule 11.2).
pub fn standing(row: &Row, claim: &Claim, moved: bool) -> Standing {
    if claim.partition() != row.partition_key.as_ref() || (names_other_parent(row, claim) && !moved)
    {
        // No such claim was granted. The rows that were locked for it are not the right ones.
        return Standing::Lost;
    }
    if row.status == Status::Executing
        && row.epoch == claim.epoch()
        && row.worker == Some(claim.worker())
    {
        Standing::Holds
    } else if is_settled(row.settled, claim.epoch()) {
        Standing::Repeated
    } else {
        Standing::Lost
    }
}

/// `true` if a claim names another parent than the row has.
pub fn names_other_parent(row: &Row, claim: &Claim) -> bool {
    claim.parent().map(|parent| parent.id) != row.parent
}

/// `true` if an outcome was committed under that epoch. `false` if the epoch is too old to be stored.
fn is_settled(settled: Settled, epoch: Epoch) -> bool {
    settled.last == epoch
        || distance(epoch, settled.last)
            .and_then(|distance| settled.before.checked_shr(distance - 1))
            .is_some_and(|bits| bits & 1 == 1)
}

/// Records that an outcome is committed under that epoch, which is later than all earlier ones (rule 1.7). An epoch of
/// another generation of the database is so far ahead that all earlier ones are forgotten (rule 1.6).
pub(super) fn settle(settled: &mut Settled, epoch: Epoch) {
    let all = settled.before << 1 | u64::from(settled.last > Epoch::default());
    let distance = distance(settled.last, epoch);
    settled.before = distance.map_or(0, |by| all.checked_shl(by - 1).unwrap_or(0));
    settled.last = epoch;
}

/// Returns the number of epochs from `one` to `other`. `None` if `one` is not before `other`, or too far before it.
fn distance(one: Epoch, other: Epoch) -> Option<u32> {
    let distance = u32::try_from(other.0.checked_sub(one.0)?).ok()?;
    (distance > 0).then_some(distance)
}

/// Renews the lease of a claim (rule 6.4). The answer is `Lost` if the claim is not valid, and also if its lease has
/// expired, taken back or not: an expired lease is never renewed. A claim without a lease of its own is valid as long
/// as its worker.
pub fn extend(
    row: &mut Row,
    (claim, moved): (&Claim, bool),
    lease: Duration,
    now: Timestamp,
) -> Heartbeat {
    let holds = standing(row, claim, moved) == Standing::Holds;
    if !holds || row.lease.is_some_and(|held| held.is_over(now)) {
        return Heartbeat::Lost;
    }
    row.lease = row.lease.map(|held| held.extended(now, lease));
    Heartbeat::Renewed
}

/// Ends the claim on a row, whichever worker holds it: from now on that claim is stale.
pub(super) fn end_hold(row: &mut Row) {
    row.epoch = Epoch(row.epoch.0 + 1);
    row.worker = None;
    row.lease = None;
}

/// Puts a row into its queue.
pub(super) fn queue_up(row: &mut Row, due_at: Timestamp, cause: Cause) {
    row.status = Status::Runnable;
    row.due_at = Some(due_at);
    row.cause = cause;
    // rule 6.3: it is behind until its partition is settled, in the same commit.
    row.behind = row.partition_key.is_some();
}

/// Wakes a row that waits: it goes into its queue or, if it runs only for updates, continues after them. A blocked row
/// stays blocked.
pub(super) fn come_back(row: &mut Row, now: Timestamp, cause: Cause, source: ResumeSource) {
    let blocked = row.is_blocked();
    match row.aside.take() {
        _ if blocked => {}
        None => queue_up(row, now, cause),
        // rule 5.6: its workers may have died because of its updates, so it stays where it waits.
        Some(_) if row.is_recovering() => {}
        Some(_) => row.cause = cause,
    }
    resume(row, source);
}

/// Records the source that ended the wait of a row, until the resulting outcome is committed (rule 13.1).
pub(super) fn resume(row: &mut Row, source: ResumeSource) {
    if let Some(awaits) = &mut row.awaits {
        awaits.resumed = Some(source);
    }
}

/// A row that was taken back from a worker that died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// The event to write into its history.
    pub history_event: HistoryEvent,
    /// The error, if its workers have died in this step as often as allowed: the row must then be
    /// [failed](super::deaths::fail).
    pub fails: Option<String>,
}

/// Takes a row back from a worker that died (rules 5.3, 5.5 to 5.7). The step runs again, with `attempt` and `deaths`
/// raised by 1, and no error handler is called. When the limit on deaths is reached, it does not run again. Returns
/// `None` if the row is not executing any more.
pub fn reclaim(row: &mut Row, worker: &Name, case: Case, now: Timestamp) -> Option<TakenBack> {
    // If updates came first, the step was not begun, so it is not an attempt.
    let attempt = row.attempt.saturating_add(u32::from(row.aside.is_none()));
    put_back(row, now)?;
    row.attempt = attempt;
    row.deaths = row.deaths.saturating_add(1);
    row.cause = Cause::Reclaim;
    let fails = deaths::spent(row, case.most);
    let due_at = match fails {
        Some(_) => None,
        None => set_apart(row, case, now),
    };
    let history_event = HistoryEvent::Reclaimed {
        step: row.step.clone(),
        attempt,
        worker: worker.clone(),
        deaths: row.deaths,
        due_at,
        folded: None,
    };
    Some(TakenBack {
        history_event,
        fails,
    })
}

/// Puts a row that a worker gives back into its queue, at its old position; `attempt` does not change (rule 5.4). A
/// step that is suspected of killing its workers waits again (rule 5.6). Returns `None` if the row is not executing.
pub fn give_back(row: &mut Row, case: Case, now: Timestamp) -> Option<()> {
    put_back(row, now)?;
    set_apart(row, case, now);
    Some(())
}

/// Makes a step wait if it is suspected of killing its workers. Returns when it is due.
fn set_apart(row: &mut Row, case: Case, now: Timestamp) -> Option<Timestamp> {
    let due_at = deaths::delay(row.deaths, case, now).map(|delay| now + delay);
    if due_at.is_some() {
        (row.status, row.due_at, row.behind) = (Status::Scheduled, due_at, false);
    }
    due_at
}

fn put_back(row: &mut Row, now: Timestamp) -> Option<()> {
    if row.status != Status::Executing {
        return None;
    }
    end_hold(row);
    queue_up(row, row.due_at.unwrap_or(now), row.cause);
    Some(())
}
