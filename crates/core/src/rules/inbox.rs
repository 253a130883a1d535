//! The inbox: taking commands in, handing them to steps, and consuming them.

mod updates;

use super::claims::come_back;
use super::contract;
use super::handing::was_handed;
use crate::model::{
    Awaits, Cause, Closing, Command, CommandId, CommandKind, CommandStatus, HistoryEvent, Json,
    Name, OperationWait, Pending, ResumeSource, Row, Sequence, Status, Taken, Timestamp, WaitId,
    WaitKind,
};

pub(super) use updates::{step_aside, step_back, turn_to_next_update};

use updates::set_aside;

/// The only stream of messages of an instance.
const STREAM: &str = "inbox";

/// Puts an accepted command into the inbox and wakes the instance if it waits for it (rules 7.1 and 7.2). The wait that
/// it belongs to is decided here, once (rule 7.6); for an event, `matched` is the wait that it has matched. Completes the
/// command's record and returns the event to write into the history.
pub fn receive(
    row: &mut Row,
    command: &mut Command,
    matched: Option<&WaitId>,
    now: Timestamp,
) -> HistoryEvent {
    row.inbox.sequence = Sequence(row.inbox.sequence.0 + 1);
    row.inbox.bytes = row
        .inbox
        .bytes
        .saturating_add(command.arguments.size() as u64);
    let message_sequence = row.inbox.sequence;
    let command_sequence = Some(row.inbox.number_command());
    command.instance = Some(row.id);
    command.chain = Some(row.chain());
    command.sequence = Some(message_sequence);
    command.command_sequence = command_sequence;
    let (id, kind, name) = (command.id, command.kind, command.name.clone());
    let (source, claimed_source) = (command.source.clone(), command.claimed_source.clone());
    if kind == CommandKind::Signal {
        row.inbox.signals += 1;
        let taken_by = match_wait(row, id, &name, matched, now);
        let wait_id = matched.cloned().or(taken_by);
        let wait_id = wait_id.unwrap_or_else(|| own_wait(id));
        command.status = CommandStatus::Received;
        command.wait_id = Some(wait_id.clone());
        return match name.event_type() {
            Some(event_type) => HistoryEvent::EventMatched {
                command_id: id,
                event_type: Name::stored(event_type),
                event_id: Name::stored(source.unwrap_or_default()),
                message_sequence,
                command_sequence,
                wait_id,
            },
            None => HistoryEvent::SignalReceived {
                command_id: id,
                name,
                message_sequence,
                command_sequence,
                wait_id,
                source,
                claimed_source,
            },
        };
    }
    row.inbox.updates += 1;
    set_aside(row, Some(ResumeSource::command(id, kind, &name)), now);
    command.status = CommandStatus::Accepted;
    match kind {
        CommandKind::Cancel => HistoryEvent::CancelRequested {
            command_id: id,
            message_sequence,
            command_sequence,
            reason: reason_of(&command.arguments),
            source,
            claimed_source,
        },
        _ => HistoryEvent::UpdateAccepted {
            update_id: id,
            name,
            message_sequence,
            command_sequence,
            source,
            claimed_source,
        },
    }
}

/// Returns the reason of a cancellation.
pub fn reason_of(arguments: &Json) -> String {
    contract::yields(arguments).to().unwrap_or_default()
}

/// Returns the id of the wait that takes a signal or an event of that name, in a row that it wakes or that is about to
/// run.
fn match_wait(
    row: &mut Row,
    id: CommandId,
    name: &Name,
    matched: Option<&WaitId>,
    now: Timestamp,
) -> Option<WaitId> {
    row.awaits.as_ref().filter(|awaits| awaits.takes(name))?;
    match row.stands() {
        // rule 5.6: it is treated like a row that was woken and has not begun.
        Status::Scheduled if row.is_recovering() && !row.timed_out => {}
        Status::Scheduled if row.is_recovering() => return match_open(row, id, name),
        Status::AwaitingSignal => {
            let cause = match name.event_type() {
                Some(_) => Cause::Event,
                None => Cause::Signal,
            };
            let source = ResumeSource::command(id, CommandKind::Signal, name);
            come_back(row, now, cause, source);
        }
        // Woken and not begun: it is handed this one too, unless it has timed out (rule 7.5).
        Status::Runnable if !row.timed_out => {}
        Status::Runnable | Status::Executing => return match_open(row, id, name),
        Status::Scheduled if row.is_blocked() => return match_open(row, id, name),
        _ => return None,
    }
    row.inbox.handed = row.inbox.sequence;
    row.awaits.as_mut()?.assign(id, name, matched, None)
}

/// Returns the id of the wait of a workflow's operation that takes a signal while the code runs, or is about to run.
/// Whatever the code runs for, its other waits are open until a turn that ends them is committed.
fn match_open(row: &mut Row, id: CommandId, name: &Name) -> Option<WaitId> {
    let awaits = row.awaits.as_mut()?;
    let passed = row.due_at.filter(|_| row.timed_out);
    match awaits.waits.is_empty() {
        true => None,
        false => awaits.assign(id, name, None, passed),
    }
}

/// Returns the id of a wait that is opened at this step.
pub(super) fn wait_of(row: &Row, names: &[Name], buffered: Option<&Pending>) -> WaitId {
    match buffered {
        // rule 7.6: a wait for one name adopts the id of the signal that arrived before it.
        Some(first) if names.len() == 1 => first.received_under(),
        _ => WaitId::stored(format!("wait:{}:{}", row.id, row.step_seq)),
    }
}

/// Returns the wait id of a buffered signal.
pub(super) fn own_wait(id: CommandId) -> WaitId {
    WaitId::stored(format!("signal:{id}"))
}

impl Pending {
    /// Returns the id of the wait that it was received under, which never changes (rule 7.6).
    pub(super) fn received_under(&self) -> WaitId {
        self.wait_id.clone().unwrap_or_else(|| own_wait(self.id))
    }
}

impl Awaits {
    /// Returns the id of the wait that takes a signal or an event. If a workflow has several waits for a signal, that
    /// is the first one that has no signal yet and whose deadline has not passed.
    fn assign(
        &mut self,
        id: CommandId,
        name: &Name,
        matched: Option<&WaitId>,
        passed: Option<Timestamp>,
    ) -> Option<WaitId> {
        if self.waits.is_empty() {
            return self.id.clone();
        }
        let is_over = |wait: &OperationWait| {
            let deadline = wait.deadline.zip(passed);
            deadline.is_some_and(|(deadline, passed)| deadline <= passed)
        };
        let is_it = |wait: &&mut OperationWait| match matched {
            Some(matched) => wait.id == *matched,
            None => wait.wants(name) && !is_over(wait),
        };
        let wait = self.waits.iter_mut().find(is_it)?;
        wait.command_id.get_or_insert(id);
        Some(wait.id.clone())
    }
}

impl OperationWait {
    /// `true` if it waits for a signal of that name, and none has arrived.
    pub(super) fn wants(&self, name: &Name) -> bool {
        self.kind == WaitKind::Signal
            && self.name.as_ref() == Some(name)
            && self.command_id.is_none()
    }
}

/// Returns the first signal that a parked row waits for and that did not wake it.
pub(super) fn first_missed(row: &Row, pending: &[Pending]) -> Option<ResumeSource> {
    let awaits = row.awaits.as_ref()?;
    let missed = pending.iter().find(|one| {
        one.kind == CommandKind::Signal
            && one.sequence > row.inbox.handed
            && awaits.takes(&one.name)
    })?;
    let (id, kind) = (missed.id, missed.kind);
    Some(ResumeSource::command(id, kind, &missed.name))
}

/// The effect of the end of a step on commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// The changes to write to their records.
    pub closings: Vec<Closing>,
    /// The events to write into the history.
    pub history_events: Vec<HistoryEvent>,
}

/// Consumes exactly the signals that the step was handed (rule 4.1), and moves the cursor (rule 7.7).
pub fn consume(row: &mut Row, pending: &[Pending]) -> Closed {
    // rule 7.6: a wait for several names keeps its own id, and the signals that it takes are recorded under that.
    let of_set = row.awaits.as_ref().filter(|awaits| awaits.names.len() > 1);
    let of_set = of_set.and_then(|awaits| awaits.id.clone());
    let handed = pending.iter().filter(|one| was_handed(row, one));
    let handed: Vec<Consumed<'_>> = handed
        .map(|signal| Consumed {
            signal,
            wait_id: of_set.clone().unwrap_or_else(|| signal.received_under()),
            by: None,
        })
        .collect();
    apply(row, handed)
}

/// Consumes exactly the signals that a workflow took (rule 12.2), and moves the cursor.
pub fn take(row: &mut Row, taken: &[Taken], pending: &[Pending]) -> Closed {
    let find = |taken: &Taken| {
        let is_it = |one: &&Pending| one.kind == CommandKind::Signal && one.id == taken.id;
        pending.iter().find(is_it)
    };
    let mut found: Vec<Consumed<'_>> = Vec::with_capacity(taken.len());
    for by in taken {
        let Some(signal) = find(by) else { continue };
        // A signal that is named twice is taken once.
        if found.iter().all(|other| other.signal.id != signal.id) {
            found.push(Consumed {
                signal,
                wait_id: signal.received_under(),
                by: Some(by),
            });
        }
    }
    apply(row, found)
}

/// A signal that is consumed.
struct Consumed<'a> {
    signal: &'a Pending,
    /// The wait id to write to its record.
    wait_id: WaitId,
    /// The operation of a workflow's code that took it.
    by: Option<&'a Taken>,
}

fn apply(row: &mut Row, signals: Vec<Consumed<'_>>) -> Closed {
    let mut closed = Closed::default();
    let mut highest = row.inbox.cursor;
    for consumed in signals {
        let (one, wait_id) = (consumed.signal, consumed.wait_id);
        let operation = consumed.by.and_then(|taken| taken.operation);
        let graph_step = consumed.by.and_then(|taken| taken.graph_step.clone());
        closed.history_events.push(HistoryEvent::SignalApplied {
            command_id: one.id,
            name: one.name.clone(),
            message_sequence: one.sequence,
            command_sequence: one.command_sequence,
            wait_id: wait_id.clone(),
            step: row.step.clone(),
            step_sequence: row.step_seq,
            operation,
            graph_step: graph_step.clone(),
        });
        closed.closings.push(Closing {
            id: one.id,
            status: CommandStatus::Applied,
            wait_id: Some(wait_id),
            step_sequence: Some(row.step_seq),
            operation,
            graph_step,
            result: None,
            error: None,
        });
        highest = highest.max(one.sequence);
    }
    let count = u32::try_from(closed.closings.len()).unwrap_or(u32::MAX);
    row.inbox.signals = row.inbox.signals.saturating_sub(count);
    row.inbox.settle_bytes();
    closed.history_events.extend(advance(row, highest));
    closed
}

/// Moves the cursor forward. Returns a history event if it moved (rule 7.7).
pub(super) fn advance(row: &mut Row, to: Sequence) -> Option<HistoryEvent> {
    let from = row.inbox.cursor;
    (to > from).then(|| {
        row.inbox.cursor = to;
        HistoryEvent::MessageCursorAdvanced {
            stream: STREAM.to_owned(),
            from,
            to,
        }
    })
}

/// Closes the whole inbox of an instance that ends: what is left will not be consumed (rules 4.1 and 9.2).
pub fn discard(row: &mut Row, left: &[Pending], ended_as: Status) -> Closed {
    let mut closed = Closed::default();
    for one in left {
        let (id, name, message_sequence) = (one.id, one.name.clone(), one.sequence);
        let command_sequence = one.command_sequence;
        let unhandled = || format!("the instance ended as {ended_as} before it was handled");
        let (status, error, history_event) = match one.kind {
            CommandKind::Signal => (
                CommandStatus::Discarded,
                None,
                Some(HistoryEvent::SignalDiscarded {
                    command_id: id,
                    name,
                    message_sequence,
                    command_sequence,
                }),
            ),
            CommandKind::Update => (
                CommandStatus::Failed,
                Some(unhandled()),
                Some(HistoryEvent::UpdateFailed {
                    update_id: id,
                    name,
                    message_sequence,
                    command_sequence,
                    error: unhandled(),
                }),
            ),
            CommandKind::Cancel => (CommandStatus::Failed, Some(unhandled()), None),
        };
        closed.history_events.extend(history_event);
        closed.closings.push(Closing {
            id,
            status,
            wait_id: None,
            step_sequence: None,
            operation: None,
            graph_step: None,
            result: None,
            error,
        });
    }
    (row.inbox.signals, row.inbox.updates) = (0, 0);
    row.inbox.settle_bytes();
    closed
}
