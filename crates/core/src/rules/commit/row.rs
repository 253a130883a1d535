//! What the end of a step changes in its row.

use std::time::Duration;

use crate::model::{
    Awaits, Cause, HistoryEvent, Name, Pending, Row, Sequence, Status, Timestamp, Wait, WaitKind,
};
use crate::rules::claims::{end_hold, queue_up};
use crate::rules::{children, inbox};

/// Begins a new step: its attempts are counted from 0, and the cause of the last wake is cleared.
pub(in crate::rules) fn begin(row: &mut Row, step: &Name) {
    row.step = step.clone();
    step_on(row);
}

/// Begins the next step, whatever its name.
pub(in crate::rules) fn step_on(row: &mut Row) {
    row.step_seq = row.step_seq.saturating_add(1);
    row.attempt = 0;
    row.deaths = 0;
    // The history event that combines the attempts at a step of a workflow's code stays open until that step ends.
    row.folding.retain(|folding| folding.operation.is_some());
    row.awaits = None;
    row.aside = None;
    row.inbox.handed = Sequence::default();
    row.timed_out = false;
    // A build that could not run the last step may run this one.
    row.unfit.clear();
}

pub(super) fn due_after(row: &mut Row, delay_ms: u64, cause: Cause, now: Timestamp) {
    if delay_ms == 0 {
        queue_up(row, now, cause);
    } else {
        row.status = Status::Scheduled;
        row.due_at = Some(now + Duration::from_millis(delay_ms));
        row.cause = cause;
    }
}

pub(super) fn park(
    row: &mut Row,
    wait: &Wait,
    names: Vec<Name>,
    buffered: Option<&Pending>,
    now: Timestamp,
) -> HistoryEvent {
    let deadline = wait.timeout_ms.map(|ms| now + Duration::from_millis(ms));
    let (status, kind) = match (wait.signals.is_empty(), wait.events.is_empty()) {
        (true, true) => (Status::Scheduled, WaitKind::Timer),
        (true, false) => (Status::AwaitingSignal, WaitKind::Event),
        (false, _) => (Status::AwaitingSignal, WaitKind::Signal),
    };
    row.status = status;
    row.due_at = deadline;
    row.cause = Cause::Timeout;
    let wait_id = inbox::wait_of(row, &names, buffered);
    row.awaits = Some(Awaits::new(kind, names.clone(), now, Some(wait_id.clone())));
    HistoryEvent::WaitOpened {
        wait_kind: kind,
        names,
        deadline,
        wait_id: Some(wait_id),
        waits: Vec::new(),
    }
}

/// Ends a row, whichever worker holds it.
pub(in crate::rules) fn end(row: &mut Row, status: Status, now: Timestamp) {
    let joined = status == Status::Failed && children::has_joined(row);
    // rule 11.2: a restart finds there that the step had joined children, and is handed them again.
    row.awaits = row.awaits.take().filter(|_| joined);
    if let Some(awaits) = &mut row.awaits {
        awaits.resumed = None;
    }
    end_hold(row);
    row.aside = None;
    row.status = status;
    row.due_at = None;
    row.behind = false;
    row.unfit.clear();
    row.finished_at = Some(now);
}
