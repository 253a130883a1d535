//! Applying one turn of a workflow's code to its instance.

use std::collections::{BTreeMap, BTreeSet};

use super::claims::{come_back, end_hold, queue_up, resume};
use super::commit::{Facts, Moved, answer, begin, check_signals, close_rest, end, step_on};
use super::liveness::failing_step;
use super::{block, event, inbox};
use crate::model::{
    Attended, Awaits, Cause, ChildStarts, CommandKind, Commit, Epoch, EventSequence, Family,
    HistoryEvent, InstanceId, Kind, Limits, Name, Operation, OperationKind, OperationWait, Park,
    Pending, Refusal, ResumeKind, ResumeSource, Row, Sequence, Status, Then, Timestamp, Unended,
    WaitId, WaitKind, WorkflowTurn,
};

/// Refuses a turn that breaks a limit or is not consistent; nothing has been changed then (rule 4.2).
pub(super) fn check(turn: &WorkflowTurn, limits: &Limits) -> Result<(), Refusal> {
    for operation in &turn.operations {
        if let Operation::Completed(completed) = operation
            && let crate::model::Ending::Value(value) = &completed.outcome
            // The values of children and of signals were already checked one by one.
            && !matches!(
                completed.operation_kind,
                OperationKind::Children | OperationKind::Signal
            )
        {
            limits.check_result(value)?;
        }
    }
    for answered in &turn.updates {
        limits.check_payload(&answered.result)?;
    }
    for spawn in &turn.children {
        limits.check_children(spawn.starts.len())?;
        for start in &spawn.starts {
            limits.check_state(&start.state)?;
        }
    }
    match &turn.then {
        Then::Done { result } => limits.check_result(result),
        Then::ContinueAsNew { state, version } => {
            limits.check_state(state)?;
            match *version {
                Some(version) if version == 0 || i32::try_from(version).is_err() => {
                    Err(Refusal::BadVersion { version })
                }
                _ => Ok(()),
            }
        }
        Then::Park(park) => {
            let signals: BTreeSet<&Name> = park.signals.iter().map(|wait| &wait.name).collect();
            limits.check_names(signals.len() + park.events.len())?;
            limits.check_conditions(park.events.iter().map(|(_, event)| event))?;
            check_signals(signals.into_iter())?;
            if !park.events.is_empty() && park.until.is_none() {
                // rule 14.5
                return Err(Refusal::BadOutcome {
                    problem: "a wait for an event needs a timeout".into(),
                });
            }
            let events: Vec<_> = park.events.iter().map(|(_, event)| event.clone()).collect();
            event::check(&events)?;
            limits.check_names(park.conditions.len())?;
            if waits_for_something(turn, park) {
                Ok(())
            } else {
                Err(Refusal::BadOutcome {
                    problem:
                        "the workflow waits for nothing: for no signal, condition, child or time"
                            .into(),
                })
            }
        }
        Then::GoOn { .. } | Then::Stop { .. } | Then::Cancelled { .. } | Then::Block(_) => Ok(()),
    }
}

fn waits_for_something(turn: &WorkflowTurn, park: &Park) -> bool {
    !park.signals.is_empty()
        || !park.events.is_empty()
        || !park.conditions.is_empty()
        || park.until.is_some()
        || park.children.is_some()
        || turn.children.iter().any(|spawn| spawn.needed > 0)
}

/// Returns the signals whose records a turn needs.
pub(super) fn names(turn: &WorkflowTurn) -> Vec<Name> {
    let mut names: Vec<Name> = turn.takes.iter().map(|taken| taken.name.clone()).collect();
    if let Then::Park(park) = &turn.then {
        names.extend(park.names());
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Applies a turn to the row, whose claim is valid. [`count_children`] counts the children that it starts, when their
/// real number is known. If the workflow continues as new, the kernel records the history event, when the next run is
/// known.
pub(super) fn apply<'a>(
    row: &mut Row,
    commit: &Commit,
    turn: &'a WorkflowTurn,
    facts: Facts<'_>,
    moved: &mut Moved<'a>,
) {
    row.kind = Kind::Workflow;
    row.last_error = failing(row.last_error.take(), turn, facts);
    if let Then::Block(blocked) = &turn.then {
        moved
            .history_events
            .push(HistoryEvent::ReplayBlocked(blocked.clone()));
        block(row, &blocked.to_string(), facts);
        return;
    }
    moved.close(inbox::take(row, &turn.takes, facts.pending));
    moved.close(answer(row, &turn.updates, facts));
    let operations = turn.operations.iter().map(history_event);
    moved.history_events.extend(operations);
    // Other signals that were handed out were not taken, and stay pending.
    row.inbox.handed = Sequence::default();
    let left = moved.left(facts.pending);
    match &turn.then {
        Then::GoOn { running } => {
            let open = row
                .awaits
                .take()
                .and_then(|awaits| still_open(awaits, turn));
            step_on(row);
            row.awaits = open;
            moved.kept = commit.keep
                && (*running
                    || row.inbox.updates <= turn.held
                        && facts.waiting.is_none_or(|waiting| waiting >= row.priority));
            if moved.kept {
                row.epoch = Epoch(row.epoch.0 + 1);
                row.cause = Cause::Next;
            } else {
                end_hold(row);
                queue_up(row, facts.now, Cause::Next);
            }
        }
        Then::Park(given) => {
            let opened = park(row, turn, given, &left, facts.now);
            moved.history_events.extend(opened);
        }
        Then::Done { result } => {
            moved.result = Some(result);
            close_rest(row, &left, Status::Done, moved);
            end(row, Status::Done, facts.now);
            moved.history_events.push(HistoryEvent::Done);
        }
        Then::Stop { reason } => {
            let error = facts.limits.cut_error(reason);
            close_rest(row, &left, Status::Failed, moved);
            end(row, Status::Failed, facts.now);
            row.last_error = Some(error.clone());
            moved.history_events.push(HistoryEvent::Failed { error });
        }
        Then::Cancelled { reason } => {
            let reason = facts.limits.cut_error(reason);
            close_rest(row, &left, Status::Cancelled, moved);
            end(row, Status::Cancelled, facts.now);
            row.last_error = Some(reason.clone());
            moved
                .history_events
                .push(HistoryEvent::Cancelled { reason });
        }
        Then::ContinueAsNew { .. } => end(row, Status::Continued, facts.now),
        Then::Block(_) => {}
    }
    // rule 9.1: updates that the code knows of are answered when their handler is done, or exists; the others arrived
    // meanwhile.
    if row.inbox.updates > turn.held {
        inbox::step_aside(row, &left, facts.now);
    }
}

/// Returns the error to store in the row for a step of the code that keeps failing. It stays until a step ends, or the
/// run does.
fn failing(before: Option<String>, turn: &WorkflowTurn, facts: Facts<'_>) -> Option<String> {
    let ends_step = |operation: &Operation| match operation {
        Operation::Completed(completed) => completed.operation_kind == OperationKind::Step,
        _ => false,
    };
    let goes_on = matches!(turn.then, Then::GoOn { .. } | Then::Park(_));
    let kept = before.filter(|_| goes_on && !turn.operations.iter().any(ends_step));
    let mut operations = turn.operations.iter().rev();
    let newest = operations.find_map(|operation| match operation {
        Operation::TriedAgain(again) => failing_step(&again.name, again.attempts, &again.error),
        _ => None,
    });
    newest.map(|text| facts.limits.cut_error(&text)).or(kept)
}

fn history_event(operation: &Operation) -> HistoryEvent {
    match operation {
        Operation::Opened(opened) => HistoryEvent::OperationOpened(opened.clone()),
        Operation::Completed(completed) => HistoryEvent::OperationCompleted(completed.clone()),
        Operation::TriedAgain(again) => HistoryEvent::OperationRetried(again.clone()),
    }
}

/// Parks a row whose code does not match its history, until there is a build whose code does (rule 12.4).
fn block(row: &mut Row, reason: &str, facts: Facts<'_>) {
    // Its waits stay open: a signal that arrives is assigned to them.
    let open = row.awaits.take();
    let open = open.filter(|awaits| awaits.waits.iter().any(takes_commands));
    let unfit = std::mem::take(&mut row.unfit);
    step_on(row);
    row.unfit = unfit;
    row.awaits = open.map(|awaits| Awaits {
        resumed: None,
        ..awaits
    });
    row.family.needed = 0;
    block::park(row, reason, facts);
}

fn park(
    row: &mut Row,
    turn: &WorkflowTurn,
    park: &Park,
    left: &[Pending],
    now: Timestamp,
) -> Option<HistoryEvent> {
    let was = row.awaits.clone();
    begin(row, &row.step.clone());
    end_hold(row);
    let joins = park.children.is_some() || turn.children.iter().any(|spawn| spawn.needed > 0);
    let (status, kind) = if !park.signals.is_empty() {
        (Status::AwaitingSignal, WaitKind::Signal)
    } else if !park.events.is_empty() {
        (Status::AwaitingSignal, WaitKind::Event)
    } else if !park.conditions.is_empty() {
        (Status::AwaitingSignal, WaitKind::Condition)
    } else if joins {
        (Status::AwaitingChildren, WaitKind::Children)
    } else {
        (Status::Scheduled, WaitKind::Timer)
    };
    let awaited = park.names();
    let names = match kind {
        WaitKind::Condition => {
            let keys = park.conditions.iter().filter_map(|wait| wait.key.clone());
            keys.collect()
        }
        _ => awaited.clone(),
    };
    // Signals that arrived while the turn ran.
    let waits_for = |one: &&Pending| one.kind == CommandKind::Signal && awaited.contains(&one.name);
    let buffered = left.iter().find(waits_for);
    let waits = waits_of(row.id, park, left);
    let id = match waits.iter().find(|wait| takes_commands(wait)) {
        Some(first) => first.id.clone(),
        None => wait_of(row.id, park.operation),
    };
    let ids = |waits: &[OperationWait]| -> Vec<(u32, WaitId)> {
        let ids = waits.iter().map(|wait| (wait.operation, wait.id.clone()));
        ids.collect()
    };
    let same = was.filter(|awaits| {
        awaits.kind == kind
            && awaits.names == names
            && awaits.id.as_ref() == Some(&id)
            && ids(&awaits.waits) == ids(&waits)
    });
    (row.status, row.due_at, row.cause) = (status, park.until, Cause::Timeout);
    row.awaits = Some(Awaits {
        kind,
        names: names.clone(),
        since: same.as_ref().map_or(now, |awaits| awaits.since),
        id: Some(id.clone()),
        waits: waits.clone(),
        resumed: None,
    });
    row.inbox.handed = row.inbox.sequence;
    row.family.needed = 0;
    if let Some(Unended { seen, needed }) = park.children {
        // rule 10.2: the number of ends only grows. A child that was restarted meanwhile does not hide the end of
        // another.
        let ended = row.family.ended.saturating_sub(seen);
        let ended = u32::try_from(ended).unwrap_or(u32::MAX);
        row.family.needed = needed.saturating_sub(ended);
        if row.family.needed == 0 {
            queue_up(row, now, Cause::Children);
            resume(row, ResumeSource::of(ResumeKind::Children));
        }
    }
    if let Some(first) = buffered {
        queue_up(row, now, Cause::Signal);
        resume(
            row,
            ResumeSource::command(first.id, first.kind, &first.name),
        );
    }
    same.is_none().then_some(HistoryEvent::WaitOpened {
        wait_kind: kind,
        names,
        deadline: park.until,
        wait_id: Some(id),
        waits,
    })
}

/// Returns the id of an operation's own wait.
fn wait_of(id: InstanceId, operation: u32) -> WaitId {
    WaitId::stored(format!("wait:{id}:{operation}"))
}

/// `true` if a signal or an event ends the wait, and not a condition that the code evaluates.
fn takes_commands(wait: &OperationWait) -> bool {
    wait.kind != WaitKind::Condition
}

/// Returns the waits of a park for signals, events and conditions, by operation, each with its id. A wait that takes a
/// signal which arrived before it adopts the id that the signal was received under (rule 7.6). The first wait takes the
/// first signal of its name.
fn waits_of(id: InstanceId, park: &Park, left: &[Pending]) -> Vec<OperationWait> {
    let open = |operation, kind, name: Option<&Name>, deadline| OperationWait {
        operation,
        kind,
        name: name.cloned(),
        id: wait_of(id, operation),
        deadline,
        command_id: None,
    };
    let signals = park.signals.iter();
    let signals = signals.map(|wait| {
        let name = Some(&wait.name);
        open(wait.operation, WaitKind::Signal, name, wait.deadline)
    });
    let events = park.events.iter();
    let events =
        events.map(|(number, event)| open(*number, WaitKind::Event, Some(&event.event_type), None));
    let conditions = park.conditions.iter();
    let conditions = conditions.map(|wait| {
        let key = wait.key.as_ref();
        open(wait.operation, WaitKind::Condition, key, wait.deadline)
    });
    let mut waits: Vec<OperationWait> = signals.chain(events).chain(conditions).collect();
    waits.sort_by_key(|wait| wait.operation);
    for one in left.iter().filter(|one| one.kind == CommandKind::Signal) {
        let is_event = one.name.event_type().is_some();
        let takes = |wait: &&mut OperationWait| match is_event {
            true => Some(&wait.id) == one.wait_id.as_ref(),
            false => wait.wants(&one.name),
        };
        if let Some(wait) = waits.iter_mut().find(takes) {
            wait.id = one.received_under();
            wait.command_id = Some(one.id);
        }
    }
    waits
}

/// Returns the waits that a turn leaves open if the code continues: signals that arrive meanwhile are assigned to them.
fn still_open(awaits: Awaits, turn: &WorkflowTurn) -> Option<Awaits> {
    let ended: BTreeSet<u32> = ended(turn).collect();
    let mut waits = awaits.waits;
    waits.retain(|wait| !ended.contains(&wait.operation));
    let name_of = |wait: &OperationWait| match wait.kind {
        WaitKind::Condition => None,
        WaitKind::Event => wait.name.as_ref().map(Name::of_event),
        _ => wait.name.clone(),
    };
    let mut names: Vec<Name> = waits.iter().filter_map(name_of).collect();
    names.sort_unstable();
    names.dedup();
    let id = waits.iter().find(|wait| takes_commands(wait))?.id.clone();
    Some(Awaits {
        names,
        id: Some(id),
        waits,
        resumed: None,
        ..awaits
    })
}

/// Returns the operations that a turn begins and that wait for events, each with the event type; operations that also
/// end in the turn are left out.
pub(super) fn begun(turn: &WorkflowTurn) -> BTreeMap<u32, &Name> {
    let operations = turn.operations.iter();
    let events = operations.filter_map(|operation| match operation {
        Operation::Opened(opened) if opened.signature.operation_kind == OperationKind::Event => {
            Some((opened.operation, opened.signature.name.as_ref()?))
        }
        _ => None,
    });
    let mut begun: BTreeMap<u32, &Name> = events.collect();
    if !begun.is_empty() {
        for number in ended(turn) {
            begun.remove(&number);
        }
    }
    begun
}

fn ended(turn: &WorkflowTurn) -> impl Iterator<Item = u32> {
    turn.operations.iter().filter_map(|one| match one {
        Operation::Completed(completed) => completed.operation,
        _ => None,
    })
}

/// Records, for each operation that waits for events, the event up to which it has missed none (rule 14.6). For
/// operations that the turn begins, that is the newest event of their type; the types are locked. For operations that
/// continue to wait, it stays as recorded before.
pub fn attend(row: &mut Row, turn: &WorkflowTurn, newest: impl Fn(&Name) -> EventSequence) {
    match &turn.then {
        Then::Park(park) => {
            let (noted, begun) = (std::mem::take(&mut row.attended), begun(turn));
            let attended = park.events.iter().map(|(operation, wait)| {
                let before = attended(&noted, *operation);
                let before = before.filter(|_| !begun.contains_key(operation));
                Attended {
                    operation: *operation,
                    sequence: before.unwrap_or_else(|| newest(&wait.event_type)),
                }
            });
            row.attended = attended.collect();
        }
        Then::GoOn { .. } => {
            if !row.attended.is_empty() {
                let ended: BTreeSet<u32> = ended(turn).collect();
                row.attended.retain(|one| !ended.contains(&one.operation));
            }
            let begun = begun(turn).into_iter();
            row.attended.extend(begun.map(|(operation, of)| Attended {
                operation,
                sequence: newest(of),
            }));
        }
        // A run that has ended waits for nothing; a blocked run waits as before.
        _ => {}
    }
}

/// Returns the event up to which an operation has missed none.
pub fn attended(noted: &[Attended], operation: u32) -> Option<EventSequence> {
    let of = |number: u32| noted.iter().find(|one| one.operation == number);
    of(operation).or_else(|| of(0)).map(|one| one.sequence)
}

/// Counts the children that a turn has really started; `inserted` has one number for each operation that starts
/// children, in order. If such an operation waits, but none of its children was started because all keys were taken,
/// there is nothing to wait for.
pub fn count_children(
    row: &mut Row,
    turn: &WorkflowTurn,
    inserted: &[u32],
    now: Timestamp,
) -> Vec<HistoryEvent> {
    let mut events = Vec::with_capacity(inserted.len());
    let mut wakes = false;
    for (spawn, count) in turn.children.iter().zip(inserted.iter().copied()) {
        let requested = u32::try_from(spawn.starts.len()).unwrap_or(u32::MAX);
        events.push(HistoryEvent::ChildrenSpawned {
            barrier: ChildStarts::barrier(spawn.operation),
            count,
            duplicates: requested.saturating_sub(count),
        });
        let Family {
            pending, needed, ..
        } = &mut row.family;
        *pending = pending.saturating_add(count);
        if spawn.needed == 0 {
            continue;
        }
        match (spawn.needed.min(count), *needed) {
            (0, _) => wakes = true,
            (first, 0) => *needed = first,
            (first, second) => *needed = first.min(second),
        }
    }
    let parked = matches!(
        row.stands(),
        Status::AwaitingSignal | Status::AwaitingChildren
    );
    if wakes && parked && matches!(turn.then, Then::Park(_)) {
        let source = ResumeSource::of(ResumeKind::Children);
        come_back(row, now, Cause::Children, source);
    }
    if !matches!(turn.then, Then::Park(_)) {
        row.family.needed = 0;
    }
    events
}

#[cfg(test)]
mod tests;
