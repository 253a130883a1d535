//! What happens when a row's time has come.

use super::claims::queue_up;
use crate::model::{Cause, Happening, Row, Status, Timestamp, WaitKind};

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
