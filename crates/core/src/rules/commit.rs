//! Applying the outcome of a step to its instance.

use std::borrow::Cow;
use std::time::Duration;

use super::claims::{end_hold, queue_up, resume, settle};
use super::contract::Terms;
use super::{block, children, event, inbox, retry, workflow};
use crate::model::{
    Answered, Awaits, Cause, Closing, CommandId, CommandKind, CommandStatus, Commit, Epoch,
    HistoryEvent, Inbox, Json, Limits, Name, Outcome, Pending, Priority, Refusal, ResumeSource,
    RetrySpec, Row, Sequence, Status, Then, Timestamp, Wait, WaitKind,
};

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

/// The part of an inbox that must be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct InboxNeeds {
    /// The signals with these names.
    pub names: Vec<Name>,
    /// The updates.
    pub updates: bool,
    /// Everything.
    pub all: bool,
}

impl InboxNeeds {
    /// Selects everything.
    pub fn at_all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    /// Adds the selection of another.
    pub fn join(&mut self, other: Self) {
        self.updates |= other.updates;
        self.all |= other.all;
        for name in other.names {
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }
}

/// Returns the part of its inbox that must be loaded before an outcome is applied to a row. Most rows have nothing
/// pending.
pub fn inbox_needs(row: &Row, outcome: &Outcome) -> Option<InboxNeeds> {
    let Inbox {
        signals, updates, ..
    } = row.inbox;
    let mut needs = InboxNeeds {
        updates: updates > 0
            && match outcome {
                Outcome::Answer { .. } => true,
                Outcome::Workflow(turn) => {
                    !turn.updates.is_empty() || matches!(turn.then, Then::Park(_))
                }
                // It continues to wait, and must record which update it runs for.
                Outcome::Wait(_) | Outcome::Spawn { .. } => true,
                _ => false,
            },
        ..InboxNeeds::default()
    };
    match outcome.last() {
        Outcome::Done { .. } | Outcome::Stop { .. } | Outcome::Fail { .. } => {
            needs.all = signals > 0 || updates > 0;
        }
        Outcome::Workflow(_) if outcome.may_end() => needs.all = signals > 0 || updates > 0,
        Outcome::Workflow(turn) if signals > 0 => needs.names = workflow::names(turn),
        Outcome::Wait(wait) if signals > 0 => needs.names.extend(wait.names()),
        Outcome::Next { .. } | Outcome::Spawn { .. } | Outcome::ContinueAsNew { .. }
            if signals > 0 && row.inbox.handed > Sequence::default() =>
        {
            let awaits = row.awaits.as_ref();
            needs
                .names
                .extend(awaits.into_iter().flat_map(|awaits| awaits.names.clone()));
        }
        _ => {}
    }
    (needs != InboxNeeds::default()).then_some(needs)
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

/// Refuses an outcome that breaks a limit or is not consistent; nothing has been changed then (rule 4.2).
pub fn check(outcome: &Outcome, limits: &Limits) -> Result<(), Refusal> {
    if let Some(state) = outcome.state() {
        limits.check_state(state)?;
    }
    match outcome {
        Outcome::Done { result } => limits.check_result(result),
        Outcome::Wait(wait) if !wait.events.is_empty() => {
            check_signals(wait.signals.iter())?;
            limits.check_names(wait.signals.len() + wait.events.len())?;
            check_deadline(wait.timeout_ms)?;
            limits.check_conditions(wait.events.iter())?;
            event::check(&wait.events)
        }
        Outcome::Wait(wait) if wait.signals.is_empty() && wait.timeout_ms.is_none() => {
            Err(Refusal::BadOutcome {
                problem: "it waits for nothing: name a signal, or give it a timeout".into(),
            })
        }
        Outcome::Wait(wait) => {
            check_signals(wait.signals.iter())?;
            limits.check_names(wait.signals.len())
        }
        Outcome::Spawn { children, join, .. } => {
            limits.check_children(children.len())?;
            children::check_join(*join, children.len())?;
            children
                .iter()
                .try_for_each(|child| limits.check_state(&child.state))
        }
        Outcome::ContinueAsNew { state, version, .. } => {
            limits.check_state(state)?;
            match *version {
                Some(version) if version == 0 || i32::try_from(version).is_err() => {
                    Err(Refusal::BadVersion { version })
                }
                _ => Ok(()),
            }
        }
        Outcome::Answer { updates, then, .. } => {
            for answered in updates {
                limits.check_payload(&answered.result)?;
            }
            match then.as_deref() {
                Some(Outcome::Answer { .. } | Outcome::Workflow(_)) => Err(Refusal::BadOutcome {
                    problem: "an answer cannot follow an answer: put the updates in one".into(),
                }),
                Some(Outcome::Block { .. }) => Err(Refusal::BadOutcome {
                    problem: "a block cannot follow an answer: a build that cannot run the instance answers no updates"
                        .into(),
                }),
                Some(then) => check(then, limits),
                None => Ok(()),
            }
        }
        Outcome::Workflow(turn) => workflow::check(turn, limits),
        Outcome::Next { .. }
        | Outcome::Retry { .. }
        | Outcome::Stop { .. }
        | Outcome::Fail { .. }
        | Outcome::Block { .. } => Ok(()),
    }
}

/// Returns the signals that an outcome waits for, each with the operation of a workflow that waits for it.
pub fn awaited_signals(outcome: &Outcome) -> Vec<(&Name, Option<u32>)> {
    match outcome.last() {
        Outcome::Wait(wait) => wait.signals.iter().map(|name| (name, None)).collect(),
        Outcome::Workflow(turn) => match &turn.then {
            Then::Park(park) => {
                let signals = park.signals.iter();
                signals
                    .map(|wait| (&wait.name, Some(wait.operation)))
                    .collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Refuses a wait for a signal that the instance's contract does not declare: it could not be sent (rule 8.6).
pub fn check_declared(outcome: &Outcome, terms: &Terms) -> Result<(), Refusal> {
    let mut awaited = awaited_signals(outcome).into_iter();
    match awaited.find(|(name, _)| !terms.takes(name)) {
        None => Ok(()),
        Some((name, operation)) => Err(Refusal::UndeclaredSignal {
            signal: name.clone(),
            operation,
        }),
    }
}

/// Refuses an answer to anything but an update that is pending here, under the valid claim of the row. The updates that
/// came with a claim stay pending as long as the claim is held, so such an answer is meant for another instance, or was
/// given before (rule 9.2).
pub fn check_answers(outcome: &Outcome, pending: &[Pending]) -> Result<(), Refusal> {
    let Outcome::Answer { updates, .. } = outcome else {
        return Ok(());
    };
    let is_pending = |id: CommandId| {
        let mut found = pending.iter();
        found.any(|one| one.id == id && one.kind != CommandKind::Signal)
    };
    let ids = updates.iter().map(|answered| answered.update_id);
    let mut astray: Vec<String> = ids
        .filter(|id| !is_pending(*id))
        .map(|id| id.to_string())
        .collect();
    astray.dedup();
    if astray.is_empty() {
        return Ok(());
    }
    Err(Refusal::BadOutcome {
        problem: format!(
            "it answers {}, and no update of that id is pending here: answer those that the claim came with",
            astray.join(", ")
        ),
    })
}

/// Refuses a wait for a signal whose name cannot be sent.
pub(super) fn check_signals<'n>(
    mut signals: impl Iterator<Item = &'n Name>,
) -> Result<(), Refusal> {
    match signals.find(|name| name.event_type().is_some()) {
        None => Ok(()),
        Some(name) => Err(Refusal::BadOutcome {
            problem: format!("{name} is not a signal: wait for the event"),
        }),
    }
}

/// Refuses a wait for an event without a deadline (rule 14.5).
pub(super) fn check_deadline(timeout_ms: Option<u64>) -> Result<(), Refusal> {
    match timeout_ms {
        Some(1..) => Ok(()),
        _ => Err(Refusal::BadOutcome {
            problem: "a wait for an event needs a timeout, of a millisecond at least".into(),
        }),
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

/// Handles a failure of an instance that ran only for updates: the first update has failed, which changes nothing else
/// (rule 9.2). It is not known which of the other updates were there when it was claimed; they are handed out again.
fn fail_update(row: &mut Row, error: &str, facts: Facts<'_>, moved: &mut Moved<'_>) {
    let first = facts
        .pending
        .iter()
        .find(|one| one.kind != CommandKind::Signal);
    let failed: Vec<Answered> = first
        .map(|update| Answered {
            update_id: update.id,
            result: Json::null(),
            error: Some(error.to_owned()),
        })
        .into_iter()
        .collect();
    moved.close(answer(row, &failed, facts));
    moved.kept = go_on(row, false, &moved.left(facts.pending), facts.now);
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
                    && !inbox::was_handed(row, one)
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
        .filter(|one| !inbox::was_handed(row, one))
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

/// Writes the answers to pending updates. A second answer to the same update, and an answer to one that is not pending,
/// are ignored.
pub(super) fn answer(row: &mut Row, updates: &[Answered], facts: Facts<'_>) -> inbox::Closed {
    let mut closed = inbox::Closed::default();
    let mut highest = row.inbox.cursor;
    for answered in updates {
        let update = facts
            .pending
            .iter()
            .find(|one| one.id == answered.update_id && one.kind != CommandKind::Signal);
        let twice = closed
            .closings
            .iter()
            .any(|closing: &Closing| closing.id == answered.update_id);
        let (Some(update), false) = (update, twice) else {
            continue;
        };
        let (update_id, name, message_sequence) = (update.id, update.name.clone(), update.sequence);
        let command_sequence = update.command_sequence;
        let error = answered
            .error
            .as_deref()
            .map(|error| facts.limits.cut_error(error));
        closed.closings.push(Closing {
            id: update_id,
            status: match error {
                Some(_) => CommandStatus::Failed,
                None => CommandStatus::Completed,
            },
            wait_id: None,
            step_sequence: Some(row.step_seq),
            operation: None,
            graph_step: None,
            result: error.is_none().then(|| answered.result.clone()),
            error: error.clone(),
        });
        closed.history_events.extend(match error {
            // The operations that a cancellation reached record its effect.
            _ if update.kind == CommandKind::Cancel => None,
            Some(error) => Some(HistoryEvent::UpdateFailed {
                update_id,
                name,
                message_sequence,
                command_sequence,
                error,
            }),
            None => Some(HistoryEvent::UpdateCompleted {
                update_id,
                name,
                message_sequence,
                command_sequence,
            }),
        });
        highest = highest.max(message_sequence);
    }
    let count = u32::try_from(closed.closings.len()).unwrap_or(u32::MAX);
    row.inbox.updates = row.inbox.updates.saturating_sub(count);
    row.inbox.settle_bytes();
    closed.history_events.extend(inbox::advance(row, highest));
    closed
}

/// Continues after updates have been answered: with those that arrived meanwhile, with the step, or back where the
/// instance was. Returns `true` if the worker keeps its claim, to run the step.
fn go_on(row: &mut Row, keep: bool, left: &[Pending], now: Timestamp) -> bool {
    match row.aside {
        None if keep && row.inbox.updates == 0 => {
            row.epoch = Epoch(row.epoch.0 + 1);
            return true;
        }
        Some(aside) if row.inbox.updates == 0 => {
            end_hold(row);
            inbox::step_back(row, aside);
        }
        _ => {
            end_hold(row);
            queue_up(row, now, row.cause);
            inbox::turn_to_next_update(row, left);
        }
    }
    false
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

/// Begins a new step: its attempts are counted from 0, and the cause of the last wake is cleared.
pub(super) fn begin(row: &mut Row, step: &Name) {
    row.step = step.clone();
    step_on(row);
}

/// Begins the next step, whatever its name.
pub(super) fn step_on(row: &mut Row) {
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

fn due_after(row: &mut Row, delay_ms: u64, cause: Cause, now: Timestamp) {
    if delay_ms == 0 {
        queue_up(row, now, cause);
    } else {
        row.status = Status::Scheduled;
        row.due_at = Some(now + Duration::from_millis(delay_ms));
        row.cause = cause;
    }
}

fn park(
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
pub(super) fn end(row: &mut Row, status: Status, now: Timestamp) {
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
