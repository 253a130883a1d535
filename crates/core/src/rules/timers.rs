//! Timers: rows that are due, and leases that have expired.

use super::claims::{TakenBack, queue_up, reclaim, resume};
use super::deaths::Case;
use crate::model::{
    Cause, Epoch, HistoryEvent, Name, ResumeKind, ResumeSource, Row, Status, Timestamp, WaitKind,
};

/// The effect of firing a due row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The event to write into its history, if any.
    pub history_event: Option<HistoryEvent>,
}

/// Makes a due row runnable: one that was scheduled, or one whose wait has reached its deadline, which is a wake and
/// not a failure (rules 7.5, 10.3). Returns `None` if it is not due.
pub fn fire(row: &mut Row, now: Timestamp) -> Option<Fired> {
    let due_at = row.due_at.filter(|due| *due <= now)?;
    let waited = match row.status {
        // The cause decides: a step that was woken by a timer and is retried later still has its wait.
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
        resume(row, ResumeSource::of(ResumeKind::Timeout));
        row.timed_out = true;
        // rule 7.5: a signal that is accepted from now on does not belong to this step, however often it is tried.
        row.inbox.handed = row.inbox.sequence;
    }
    Some(Fired {
        history_event: waited.map(|wait_kind| HistoryEvent::TimedOut {
            wait_kind,
            deadline: due_at,
            wait_id: row.awaits.as_ref().and_then(|awaits| awaits.id.clone()),
        }),
    })
}

/// The consequence of an expired lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lapse {
    /// The worker is considered dead. The row is back in its queue, or must fail, as the value says.
    Reclaimed(TakenBack),
    /// The step has exceeded its time limit, which is a failure. It must be committed under the epoch that the row has
    /// now.
    PastLimit,
}

/// Takes back a row whose claim has an expired lease (rules 5.3, 5.4). Returns `None` if the lease has not expired.
pub fn lapse(row: &mut Row, worker: &Name, case: Case, now: Timestamp) -> Option<Lapse> {
    let lease = row.lease.filter(|lease| lease.is_over(now))?;
    if lease.is_past_limit(now) {
        // A new epoch, so that a later commit of the step is not taken for a repeat of this failure.
        row.epoch = Epoch(row.epoch.0 + 1);
        Some(Lapse::PastLimit)
    } else {
        reclaim(row, worker, case, now).map(Lapse::Reclaimed)
    }
}

/// Returns the error of a step that has exceeded its time limit.
pub fn over_limit(step_timeout_ms: Option<u64>) -> String {
    match step_timeout_ms {
        Some(ms) => format!("the step ran longer than its time limit of {ms} ms"),
        // The declaration of its machine has changed meanwhile.
        None => "the step ran longer than its time limit".to_owned(),
    }
}
