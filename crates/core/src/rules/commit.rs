//! What a step's outcome does to its instance.

use std::time::Duration;

use super::claims::{end_hold, queue_up};
use crate::model::{
    Awaits, Cause, Commit, Epoch, Happening, Json, Limits, Outcome, Priority, Refusal, Row, Status,
    Timestamp, Wait, WaitKind,
};

/// What the world looks like when an outcome is committed.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The time.
    pub now: Timestamp,
    /// The limits in force.
    pub limits: &'a Limits,
    /// How urgent the most urgent work is that waits for this worker.
    pub waiting: Option<Priority>,
}

/// What an outcome comes to, beside the row that it changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved<'a> {
    /// The state to write.
    pub state: Option<&'a Json>,
    /// The result to write.
    pub result: Option<&'a Json>,
    /// What to write into the history.
    pub told: Vec<Happening>,
    /// Whether the worker goes on holding the instance.
    pub kept: bool,
}

/// Refuses an outcome that breaks a limit or contradicts itself; nothing has been touched then (rule 4.2).
pub fn check(outcome: &Outcome, limits: &Limits) -> Result<(), Refusal> {
    if let Some(state) = outcome.state() {
        limits.check_state(state)?;
    }
    match outcome {
        Outcome::Done { result } => limits.check_result(result),
        Outcome::Wait(wait) if wait.signals.is_empty() && wait.timeout_ms.is_none() => {
            Err(Refusal::BadOutcome {
                problem: "it waits for nothing: name a signal, or give it a timeout".into(),
            })
        }
        Outcome::Wait(wait) => limits.check_names(wait.signals.len()),
        Outcome::Spawn { children, .. } => {
            limits.check_children(children.len())?;
            children
                .iter()
                .try_for_each(|child| limits.check_state(&child.state))
        }
        Outcome::Next { .. } | Outcome::Retry { .. } | Outcome::Stop { .. } => Ok(()),
    }
}

/// Applies a checked outcome to the row of the claim that holds it (the table of section 4). A spawn leaves the parking
/// to [`children::park`](super::children::park), when it is known how many children there really are.
pub fn apply<'a>(row: &mut Row, commit: &'a Commit, facts: Facts<'_>) -> Moved<'a> {
    let Facts {
        now,
        limits,
        waiting,
    } = facts;
    let mut moved = Moved {
        state: commit.outcome.state(),
        told: vec![ran(row, commit, limits)],
        ..Moved::default()
    };
    row.settled = row.epoch;
    row.last_error = commit.error.as_deref().map(|error| limits.cut_error(error));

    match &commit.outcome {
        Outcome::Next { step, delay_ms, .. } => {
            begin(row, step);
            // rule 4.3: a chain of steps stays with its worker, unless more urgent work waits for it.
            moved.kept = commit.keep
                && *delay_ms == 0
                && waiting.is_none_or(|waiting| waiting >= row.priority);
            if moved.kept {
                row.epoch = Epoch(row.epoch.0 + 1);
                row.cause = Cause::Next;
            } else {
                end_hold(row);
                due_after(row, *delay_ms, Cause::Next, now);
            }
        }
        Outcome::Retry { delay_ms, .. } => {
            row.attempt = row.attempt.saturating_add(1);
            end_hold(row);
            due_after(row, *delay_ms, Cause::Retry, now);
            if let Some(due_at) = row.due_at {
                moved.told.push(Happening::Retried {
                    step: row.step.clone(),
                    attempt: row.attempt,
                    due_at,
                });
            }
        }
        Outcome::Wait(wait) => {
            begin(row, &wait.next);
            end_hold(row);
            moved.told.push(park(row, wait, now));
        }
        Outcome::Spawn { next, .. } => {
            begin(row, next);
            end_hold(row);
        }
        Outcome::Done { result } => {
            moved.result = Some(result);
            end(row, Status::Done, now);
            moved.told.push(Happening::Done);
        }
        Outcome::Stop { reason } => {
            let error = limits.cut_error(reason);
            end(row, Status::Failed, now);
            row.last_error = Some(error.clone());
            moved.told.push(Happening::Failed { error });
        }
    }
    moved
}

/// The event that tells how the step itself went.
fn ran(row: &Row, commit: &Commit, limits: &Limits) -> Happening {
    let (step, step_sequence, attempt) = (row.step.clone(), row.step_seq, row.attempt);
    let duration_us = u64::try_from(commit.took.as_micros()).unwrap_or(u64::MAX);
    let outcome = commit.outcome.name().to_owned();
    let next = match &commit.outcome {
        Outcome::Next { step, .. } => Some(step.clone()),
        Outcome::Wait(wait) => Some(wait.next.clone()),
        Outcome::Spawn { next, .. } => Some(next.clone()),
        Outcome::Retry { .. } | Outcome::Done { .. } | Outcome::Stop { .. } => None,
    };
    match &commit.error {
        Some(error) => {
            let error = limits.cut_error(error);
            Happening::StepFailed {
                step,
                step_sequence,
                error,
                outcome,
                next,
                attempt,
                duration_us,
            }
        }
        None => Happening::StepCompleted {
            step,
            step_sequence,
            outcome,
            next,
            attempt,
            duration_us,
        },
    }
}

/// A new step begins: its attempts are counted anew, and what woke the last one is over.
fn begin(row: &mut Row, step: &crate::model::Name) {
    row.step = step.clone();
    row.step_seq = row.step_seq.saturating_add(1);
    row.attempt = 0;
    row.awaits = None;
    row.timed_out = false;
}

fn due_after(row: &mut Row, delay_ms: u64, cause: Cause, now: Timestamp) {
    if delay_ms == 0 {
        queue_up(row, now, cause);
    } else {
        row.status = Status::Scheduled;
        row.due_at = Some(now + Duration::from_millis(delay_ms));
        row.cause = cause;
    }
}

fn park(row: &mut Row, wait: &Wait, now: Timestamp) -> Happening {
    let deadline = wait.timeout_ms.map(|ms| now + Duration::from_millis(ms));
    let (status, kind) = if wait.signals.is_empty() {
        (Status::Scheduled, WaitKind::Timer)
    } else {
        (Status::AwaitingSignal, WaitKind::Signal)
    };
    row.status = status;
    row.due_at = deadline;
    row.cause = Cause::Timeout;
    row.awaits = Some(Awaits {
        kind,
        names: wait.signals.clone(),
        since: now,
    });
    Happening::WaitOpened {
        wait_kind: kind,
        names: wait.signals.clone(),
        deadline,
    }
}

fn end(row: &mut Row, status: Status, now: Timestamp) {
    end_hold(row);
    row.status = status;
    row.due_at = None;
    row.awaits = None;
    row.behind = false;
    row.finished_at = Some(now);
}
