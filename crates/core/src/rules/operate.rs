//! What an operator does to an instance: cancel it, put it right.

use super::claims::{end_hold, queue_up};
use super::commit::end;
use super::inbox::{self, Closed};
use super::liveness::Problem;
use crate::model::{
    Cause, CommandKind, Epoch, Happening, Kind, Limits, Pending, Row, Sequence, Status, Timestamp,
};

/// Cancels an instance, whatever it does; whoever runs it is stale from now on (rule 11.1). Nobody will take what is
/// pending. The row must not have ended.
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
    closed.told.push(Happening::Cancelled { reason });
    closed
}

/// Whether a cancellation goes to the code, which cleans up first: that of a workflow which has begun to run and can go
/// on.
pub fn asks_code(row: &Row) -> bool {
    let begun = row.settled > Epoch::default() || row.status == Status::Executing;
    row.kind == Kind::Workflow && begun && !row.is_blocked() && !row.status.is_terminal()
}

/// Puts right what is wrong with a row (rule 11.3). Where it should stand cannot be known any more, so it runs: a step
/// that finds nothing to do waits again.
pub fn repair(row: &mut Row, problem: Problem, pending: &[Pending], now: Timestamp) -> Happening {
    let count = |kind| {
        let count = pending.iter().filter(|one| one.kind == kind).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    row.inbox.signals = count(CommandKind::Signal);
    row.inbox.updates = count(CommandKind::Update) + count(CommandKind::Cancel);
    row.inbox.settle_bytes();
    match problem {
        Problem::Miscounted | Problem::NobodyAtFront => {}
        Problem::MissedSignal => {
            queue_up(row, now, Cause::Signal);
            row.inbox.handed = row.inbox.sequence;
        }
        Problem::MissedChildren => {
            row.family.needed = 0;
            queue_up(row, now, Cause::Children);
        }
        Problem::MissedUpdate => inbox::step_aside(row, now),
        Problem::NobodyHolds => {
            end_hold(row);
            row.attempt = row.attempt.saturating_add(1);
            queue_up(row, now, Cause::Reclaim);
        }
        Problem::NeverDue | Problem::WaitsForNothing => {
            queue_up(row, now, Cause::Timeout);
            row.timed_out = true;
            row.inbox.handed = Sequence(row.inbox.sequence.0);
        }
    }
    Happening::Repaired {
        problem: problem.text().to_owned(),
    }
}
