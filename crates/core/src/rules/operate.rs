//! Operations of an operator on an instance: cancel and repair.

use super::claims::{end_hold, queue_up, resume};
use super::commit::end;
use super::inbox::{self, Closed};
use super::liveness::Problem;
use crate::model::{
    Cause, CommandKind, Epoch, HistoryEvent, Kind, Limits, Pending, ResumeKind, ResumeSource, Row,
    Sequence, Status, Timestamp,
};

/// Cancels an instance, whatever it does; a claim on it is stale from now on (rule 11.1). Pending commands will not be
/// consumed. The row must not have ended.
pub fn cancel(
    row: &mut Row,
    pending: &[Pending],
    reason: &str,
    limits: &Limits,
    now: Timestamp,
) -> Closed {
    let reason = limits.cut_error(reason);
    let mut closed = inbox::discard(row, pending, Status::Cancelled);
    end(row, Status::Cancelled, now);
    row.last_error = Some(reason.clone());
    closed
        .history_events
        .push(HistoryEvent::Cancelled { reason });
    closed
}

/// `true` if a cancellation goes to the code, which cleans up first: for a workflow that has begun to run and is not
/// blocked.
pub fn code_handles_cancel(row: &Row) -> bool {
    let begun = row.settled.last > Epoch::default() || row.status == Status::Executing;
    row.kind == Kind::Workflow && begun && !row.is_blocked() && !row.status.is_terminal()
}

/// Repairs a problem of a row (rule 11.3). Where the row should be is no longer known, so it runs: a step that finds
/// nothing to do waits again.
pub fn repair(
    row: &mut Row,
    problem: &Problem,
    pending: &[Pending],
    now: Timestamp,
) -> HistoryEvent {
    let count = |kind| {
        let count = pending.iter().filter(|one| one.kind == kind).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    row.inbox.signals = count(CommandKind::Signal);
    row.inbox.updates = count(CommandKind::Update) + count(CommandKind::Cancel);
    row.inbox.settle_bytes();
    match problem {
        Problem::Miscounted | Problem::NoFront => {}
        Problem::MissedSignal(_) => {
            queue_up(row, now, Cause::Signal);
            if let Some(source) = inbox::first_missed(row, pending) {
                resume(row, source);
            }
            row.inbox.handed = row.inbox.sequence;
        }
        Problem::MissedChildren => {
            row.family.needed = 0;
            queue_up(row, now, Cause::Children);
            resume(row, ResumeSource::of(ResumeKind::Children));
        }
        Problem::MissedUpdate(_) => inbox::step_aside(row, pending, now),
        Problem::NotHeld => {
            end_hold(row);
            row.attempt = row.attempt.saturating_add(1);
            queue_up(row, now, Cause::Reclaim);
        }
        Problem::NeverDue | Problem::WaitsForNothing | Problem::UndeclaredSignal(_) => {
            queue_up(row, now, Cause::Timeout);
            resume(row, ResumeSource::of(ResumeKind::Timeout));
            row.timed_out = true;
            row.inbox.handed = Sequence(row.inbox.sequence.0);
        }
    }
    HistoryEvent::Repaired {
        problem: problem.text(),
    }
}
