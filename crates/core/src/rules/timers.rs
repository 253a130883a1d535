//! What happens when a row's time has come.

use super::claims::{queue_up, reclaim};
use crate::model::{Cause, Epoch, Happening, Name, Row, Status, Timestamp, WaitKind};

/// What a due row has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// What to write into its history, if anything.
    pub happening: Option<Happening>,
}

/// Makes a due row runnable: one that was scheduled, or one whose wait has reached its deadline, which is a wake and no
/// failure (rules 7.5, 10.3). `None` when it is not due after all.
pub fn fire(row: &mut Row, now: Timestamp) -> Option<Fired> {
    let due_at = row.due_at.filter(|due| *due <= now)?;
    let waited = match row.status {
        // By its cause: a step that a timer has woken and that is tried again later still knows of its wait.
        Status::Scheduled => (row.cause == Cause::Timeout).then_some(WaitKind::Timer),
        Status::AwaitingSignal | Status::AwaitingChildren => {
            row.awaits.as_ref().map(|awaits| awaits.kind)
        }
        _ => return None,
    };
    let cause = if waited.is_some() {
        Cause::Timeout
    } else {
        row.cause
    };
    queue_up(row, due_at, cause);
    if waited.is_some() {
        row.timed_out = true;
        // rule 7.5: what is accepted from now on is not this step's, however often it is tried.
        row.inbox.handed = row.inbox.sequence;
    }
    Some(Fired {
        happening: waited.map(|wait_kind| Happening::TimedOut {
            wait_kind,
            deadline: due_at,
            wait_id: row.awaits.as_ref().and_then(|awaits| awaits.id.clone()),
        }),
    })
}

/// What a lease that has run out comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lapse {
    /// The worker is taken for dead, and the row is back in its queue; this tells of it.
    Reclaimed(Happening),
    /// The step has passed its time limit, which is a failure of it, to be committed under the epoch that the row has now.
    PastLimit,
}

/// Takes a row back whose hold has a lease that has run out (rules 5.3, 5.4). `None` when it has not after all.
pub fn lapse(row: &mut Row, worker: &Name, now: Timestamp) -> Option<Lapse> {
    let lease = row.lease.filter(|lease| lease.is_over(now))?;
    if lease.is_past_limit(now) {
        // Under an epoch of its own: what the step commits later must not be taken for this failure, sent again.
        row.epoch = Epoch(row.epoch.0 + 1);
        Some(Lapse::PastLimit)
    } else {
        reclaim(row, worker, now).map(Lapse::Reclaimed)
    }
}

/// What a step that has passed its time limit is told to have failed of.
pub fn over_limit(step_timeout_ms: Option<u64>) -> String {
    match step_timeout_ms {
        Some(ms) => format!("the step ran longer than its time limit of {ms} ms"),
        // Its machine was declared anew meanwhile.
        None => "the step ran longer than its time limit".to_owned(),
    }
}
