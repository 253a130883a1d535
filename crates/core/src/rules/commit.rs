//! Applying the outcome of a step to its instance.

mod answer;
mod check;
mod needs;
mod row;

use std::borrow::Cow;

use super::claims::{end_hold, queue_up, resume, settle};
use super::handing::was_handed;
use super::{block, children, inbox, retry, workflow};
use crate::model::{
    Cause, Closing, CommandKind, Commit, Epoch, HistoryEvent, Json, Limits, Name, Outcome, Pending,
    Priority, Refusal, ResumeSource, RetrySpec, Row, Sequence, Status, Timestamp,
};

pub use check::{awaited_signals, check, check_answers, check_declared};
pub use needs::{InboxNeeds, inbox_needs};

pub(super) use answer::answer;
pub(super) use check::check_signals;
pub(super) use row::{begin, end, step_on};

use answer::{fail_update, go_on};
use row::{due_after, park};

/// The facts outside of the row that applying an outcome depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The time.
    pub now: Timestamp,
    /// The limits that apply.
    pub limits: &'a Limits,
    /// The priority of the most urgent work that waits for this worker.
    pub waiting: Option<Priority>,
    /// The pending commands of the inbox, by sequence; at least those that [`inbox_needs`] returns.
    pub pending: &'a [Pending],
    /// The retry policy that the instance was started with, or that its machine declares.
    pub retry: Option<&'a RetrySpec>,
    /// The key that another instance holds and that running again would take; it prevents the retry (rule 2.8).
    pub taken: Option<&'a Refusal>,
    /// The build of the worker that commits; given if the outcome says that it cannot run the step.
    pub build: Option<&'a Name>,
}

/// The effects of an outcome, apart from the changes of the row.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved<'a> {
    /// The state to write.
    pub state: Option<&'a Json>,
    /// The result to write.
    pub result: Option<&'a Json>,
    /// The events to write into the history.
    pub history_events: Vec<HistoryEvent>,
    /// `true` if the worker keeps its claim on the instance.
    pub kept: bool,
    /// The changes to write to the records of commands.
    pub closings: Vec<Closing>,
}

impl Moved<'_> {
    pub(super) fn close(&mut self, closed: inbox::Closed) {
        self.closings.extend(closed.closings);
        self.history_events.extend(closed.history_events);
    }

    /// Returns those of `pending` that stay pending.
    pub fn left(&self, pending: &[Pending]) -> Vec<Pending> {
        let stays = |one: &&Pending| self.closings.iter().all(|closed| closed.id != one.id);
        pending.iter().filter(stays).cloned().collect()
    }
}

/// Applies a checked outcome to the row, whose claim is valid (the table of section 4). After a spawn,
/// [`children::park`] parks the row, when the real number of children is known. After a `continue_as_new`, the kernel
/// records the history event, when the next run is known.
pub fn apply<'a>(row: &mut Row, commit: &'a Commit, facts: Facts<'_>) -> Moved<'a> {
    let mut moved = Moved {
        state: commit.outcome.state(),
        ..Moved::default()
    };
    settle(&mut row.settled, row.epoch);
    let outcome = match &commit.outcome {
        Outcome::Answer { updates, then, .. } => {
            moved.close(answer(row, updates, facts));
            match then {
                Some(then) => {
                    // The step did not run, so the signals that it would have been handed stay for the next wait.
                    row.inbox.handed = Sequence::default();
                    then.as_ref()
                }
                None => {
                    moved.kept = go_on(row, commit.keep, &moved.left(facts.pending), facts.now);
                    return moved;
                }
            }
        }
        Outcome::Workflow(turn) => {
            workflow::apply(row, commit, turn, facts, &mut moved);
            return moved;
        }
        Outcome::Block { reason } => {
            block::block(row, reason, facts, &mut moved);
            return moved;
        }
        Outcome::Fail { error } if row.aside.is_some() => {
            fail_update(row, error, facts, &mut moved);
            return moved;
        }
        outcome => {
            if row.aside.is_some() {
                // It was claimed for its updates, and was handed no signal.
                row.inbox.handed = Sequence::default();
            }
            outcome
        }
    };
    let verdict = Verdict::of(row, commit, outcome, facts);
    moved
        .history_events
        .push(ran(row, commit, outcome, &verdict, facts.limits));
    let error = verdict.error.as_deref();
    row.last_error = error.map(|error| facts.limits.cut_error(error));
    perform(row, commit, outcome, &verdict, facts, &mut moved);
    moved
}

/// Returns the row as a checked outcome would leave it if all children that it starts are new, for decisions before the
/// outcome is applied. For an outcome that continues as new, the row has the status of the new run.
pub fn ahead(row: &Row, commit: &Commit, facts: Facts<'_>) -> Row {
    let mut row = row.clone();
    apply(&mut row, commit, facts);
    let count_of = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    match commit.outcome.last() {
        Outcome::Spawn { children, join, .. } => {
            let count = count_of(children.len());
            children::park(&mut row, (count, 0), *join, None, &[], facts.now);
        }
        Outcome::Workflow(turn) => {
            let counts = turn.children.iter().map(|spawn| spawn.starts.len());
            let counts: Vec<u32> = counts.map(count_of).collect();
            workflow::count_children(&mut row, turn, &counts, facts.now);
        }
        _ => {}
    }
    if row.status == Status::Continued {
        row.status = Status::Runnable;
    }
    row
}

/// The error of a step, and the decision whether it is retried.
struct Verdict<'c> {
    /// The error that its error handler was called for, or that its outcome reports.
    error: Option<Cow<'c, str>>,
    /// The delay before the retry, if the policy of its instance or of its machine allows one.
    retry: Option<u64>,
}

impl<'c> Verdict<'c> {
    fn of(row: &Row, commit: &'c Commit, outcome: &'c Outcome, facts: Facts<'_>) -> Self {
        match outcome {
            Outcome::Fail { error } => match facts.taken {
                Some(taken) => Self {
                    error: Some(format!("{error}; not retried: {taken}").into()),
                    retry: None,
                },
                None => Self {
                    error: Some(error.into()),
                    retry: retry::next(facts.retry, row.attempt),
                },
            },
            _ => Self {
                error: commit.error.as_deref().map(Cow::from),
                retry: None,
            },
        }
    }
}

/// Performs the outcome on the row.
fn perform<'a>(
    row: &mut Row,
    commit: &Commit,
    outcome: &'a Outcome,
    verdict: &Verdict<'_>,
    facts: Facts<'_>,
    moved: &mut Moved<'a>,
) {
    let Facts {
        now,
        waiting,
        pending,
        ..
    } = facts;
    match outcome {
        Outcome::Next { step, delay_ms, .. } => {
            moved.close(inbox::consume(row, pending));
            begin(row, step);
            // rule 4.3: a chain of steps stays with its worker, unless more urgent work or an update waits.
            moved.kept = commit.keep
                && *delay_ms == 0
                && row.inbox.updates == 0
                // rule 5.4: a time limit belongs to one step.
                && row.lease.is_none_or(|lease| lease.limit.is_none())
                && waiting.is_none_or(|waiting| waiting >= row.priority);
            if moved.kept {
                row.epoch = Epoch(row.epoch.0 + 1);
                row.cause = Cause::Next;
            } else {
                end_hold(row);
                due_after(row, *delay_ms, Cause::Next, now);
            }
        }
        Outcome::Retry { delay_ms, .. } => again(row, *delay_ms, now, moved),
        Outcome::Fail { error } => match verdict.retry {
            Some(delay_ms) => again(row, delay_ms, now, moved),
            None => {
                let error = verdict.error.as_deref().unwrap_or(error);
                stop(row, error, facts, moved);
            }
        },
        Outcome::Wait(wait) => {
            let names = wait.names();
            // rule 7.4: only a signal that the parking step was not handed wakes it.
            let buffered = pending.iter().find(|one| {
                one.kind == CommandKind::Signal
                    && names.contains(&one.name)
                    && !was_handed(row, one)
            });
            begin(row, &wait.next);
            end_hold(row);
            moved
                .history_events
                .push(park(row, wait, names, buffered, now));
            if let Some(first) = buffered {
                queue_up(row, now, Cause::Signal);
                resume(
                    row,
                    ResumeSource::command(first.id, first.kind, &first.name),
                );
            }
            // If woken, it is handed everything that is there; if parked, it has seen everything that it waits for.
            row.inbox.handed = row.inbox.sequence;
        }
        Outcome::Spawn { next, .. } => {
            moved.close(inbox::consume(row, pending));
            begin(row, next);
            end_hold(row);
        }
        Outcome::Done { result } => {
            moved.result = Some(result);
            close(row, pending, Status::Done, moved);
            end(row, Status::Done, now);
            moved.history_events.push(HistoryEvent::Done);
        }
        Outcome::Stop { reason } => stop(row, reason, facts, moved),
        Outcome::ContinueAsNew { .. } => {
            moved.close(inbox::consume(row, pending));
            end(row, Status::Continued, now);
        }
        // `Answer` was unwrapped above; a workflow's turn and a block are applied as a whole.
        Outcome::Answer { .. } | Outcome::Workflow(_) | Outcome::Block { .. } => {}
    }
    // rule 9.1: an instance that parks with pending updates is taken aside for them at once.
    if row.inbox.updates > 0 {
        inbox::step_aside(row, &moved.left(pending), now);
    }
}

/// Runs the same step again after a delay, with `attempt` raised by 1; the signals that it was handed stay for it
/// (rule 4.1).
fn again(row: &mut Row, delay_ms: u64, now: Timestamp, moved: &mut Moved<'_>) {
    row.attempt = row.attempt.saturating_add(1);
    row.aside = None;
    end_hold(row);
    due_after(row, delay_ms, Cause::Retry, now);
    if let Some(due_at) = row.due_at {
        moved.history_events.push(HistoryEvent::Retried {
            step: row.step.clone(),
            attempt: row.attempt,
            due_at,
            folded: None,
        });
    }
}

/// Ends the instance as `failed`.
pub(super) fn stop(row: &mut Row, reason: &str, facts: Facts<'_>, moved: &mut Moved<'_>) {
    let error = facts.limits.cut_error(reason);
    close(row, facts.pending, Status::Failed, moved);
    end(row, Status::Failed, facts.now);
    row.last_error = Some(error.clone());
    moved.history_events.push(HistoryEvent::Failed { error });
}

/// Consumes the signals that the step was handed, and closes the rest of the inbox.
fn close(row: &mut Row, pending: &[Pending], status: Status, moved: &mut Moved<'_>) {
    let left: Vec<Pending> = pending
        .iter()
        .filter(|one| !was_handed(row, one))
        .filter(|one| moved.closings.iter().all(|closed| closed.id != one.id))
        .cloned()
        .collect();
    moved.close(inbox::consume(row, pending));
    close_rest(row, &left, status, moved);
}

/// Closes the remaining inbox of an instance that ends.
pub(super) fn close_rest(row: &mut Row, left: &[Pending], status: Status, moved: &mut Moved<'_>) {
    moved.close(inbox::discard(row, left, status));
}

/// Returns the history event that describes the step itself.
fn ran(
    row: &Row,
    commit: &Commit,
    outcome: &Outcome,
    verdict: &Verdict<'_>,
    limits: &Limits,
) -> HistoryEvent {
    let (step, step_sequence, attempt) = (row.step.clone(), row.step_seq, row.attempt);
    let duration_us = u64::try_from(commit.took.as_micros()).unwrap_or(u64::MAX);
    let next = match outcome {
        Outcome::Next { step, .. } => Some(step.clone()),
        Outcome::Wait(wait) => Some(wait.next.clone()),
        Outcome::Spawn { next, .. } => Some(next.clone()),
        Outcome::ContinueAsNew { step, .. } => Some(step.clone()),
        Outcome::Retry { .. }
        | Outcome::Done { .. }
        | Outcome::Stop { .. }
        | Outcome::Fail { .. }
        | Outcome::Answer { .. }
        | Outcome::Workflow(_)
        | Outcome::Block { .. } => None,
    };
    // A failure is recorded like the outcome of an error handler.
    let outcome = match (outcome, verdict.retry) {
        (Outcome::Fail { .. }, Some(_)) => "retry".to_owned(),
        (Outcome::Fail { .. }, None) => "stop".to_owned(),
        (outcome, _) => outcome.name().to_owned(),
    };
    match &verdict.error {
        Some(error) => {
            let error = limits.cut_error(error);
            HistoryEvent::StepFailed {
                step,
                step_sequence,
                error,
                outcome,
                next,
                attempt,
                duration_us,
            }
        }
        None => HistoryEvent::StepCompleted {
            step,
            step_sequence,
            outcome,
            next,
            attempt,
            duration_us,
        },
    }
}
