//! The three shapes of change that touch only some columns. The databases write no others, so this store must not either.

use abide_core::model::{Row, Status};

/// What an [`Advance`](crate::Advance) makes of a row.
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

/// What a [`Finish`](crate::Finish) makes of a row; of one that was not executing, nothing.
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

/// What a [`Wake`](crate::Wake) makes of a row.
pub(super) fn woken(was: &Row, is: &Row) -> Row {
    Row {
        status: is.status,
        due_at: is.due_at,
        behind: is.behind,
        cause: is.cause,
        history_seq: is.history_seq,
        inbox: is.inbox,
        ..was.clone()
    }
}
