//! The three shapes of change that write only some columns. The databases write no others, so this store must not
//! either.

use abide_core::model::{Awaits, Row, Status};

/// Applies an [`Advance`](crate::Advance) to a row.
pub(super) fn advanced(was: &Row, is: &Row) -> Row {
    Row {
        step: is.step.clone(),
        step_seq: is.step_seq,
        attempt: is.attempt,
        epoch: is.epoch,
        settled: is.settled,
        cause: is.cause,
        history_seq: is.history_seq,
        ..was.clone()
    }
}

/// Applies a [`Finish`](crate::Finish) to a row. A row that was not executing does not change.
pub(super) fn finished(was: &Row, is: &Row) -> Row {
    if was.status != Status::Executing {
        return was.clone();
    }
    Row {
        status: is.status,
        epoch: is.epoch,
        settled: is.settled,
        history_seq: is.history_seq,
        last_error: is.last_error.clone(),
        finished_at: is.finished_at,
        worker: None,
        lease: None,
        due_at: None,
        awaits: None,
        behind: false,
        ..was.clone()
    }
}

/// Applies a [`Wake`](crate::Wake) to a row.
pub(super) fn woken(was: &Row, is: &Row) -> Row {
    Row {
        status: is.status,
        due_at: is.due_at,
        behind: is.behind,
        cause: is.cause,
        history_seq: is.history_seq,
        inbox: is.inbox,
        awaits: was.awaits.as_ref().map(|awaits| came_to(awaits, is)),
        ..was.clone()
    }
}

/// Returns a row's wait, with the columns that a wake may change.
fn came_to(was: &Awaits, is: &Row) -> Awaits {
    let is = is.awaits.as_ref();
    Awaits {
        waits: is.map(|awaits| awaits.waits.clone()).unwrap_or_default(),
        resumed: is.and_then(|awaits| awaits.resumed),
        ..was.clone()
    }
}
