//! What one turn of a workflow's code does to its instance.

use std::collections::{BTreeMap, BTreeSet};

use super::claims::{come_back, end_hold, queue_up};
use super::commit::{Facts, Moved, answer, begin, check_signals, close_rest, end, step_on};
use super::{event, inbox};
use crate::model::{
    Attended, Awaits, Brood, Cause, CommandKind, Commit, Epoch, EventSequence, Family, Happening,
    Kind, Limits, Name, Operation, OperationKind, Park, Pending, Refusal, Row, Sequence, Status,
    Then, Timestamp, Unended, WaitId, WaitKind, WorkflowTurn,
};

/// Refuses a turn that breaks a limit or contradicts itself; nothing has been touched then (rule 4.2).
pub(super) fn check(turn: &WorkflowTurn, limits: &Limits) -> Result<(), Refusal> {
    for operation in &turn.operations {
        if let Operation::Completed(completed) = operation
            && let crate::model::Ending::Value(value) = &completed.outcome
            // Those of children and of signals have been checked one by one.
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
    for brood in &turn.children {
        limits.check_children(brood.starts.len())?;
        for start in &brood.starts {
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
            limits.check_names(park.signals.len() + park.events.len())?;
            limits.check_conditions(park.events.iter().map(|(_, event)| event))?;
            check_signals(&park.signals)?;
            if !park.events.is_empty() && park.until.is_none() {
                // rule 14.5
                return Err(Refusal::BadOutcome {
                    problem: "a wait for an event needs a timeout".into(),
                });
            }
            let events: Vec<_> = park.events.iter().map(|(_, event)| event.clone()).collect();
            event::check(&events)?;
            limits.check_names(park.conditions.as_ref().map_or(0, Vec::len))?;
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
        || park.conditions.is_some()
        || park.until.is_some()
        || park.children.is_some()
        || turn.children.iter().any(|brood| brood.needed > 0)
}

/// The signals whose records a turn has to know of.
pub(super) fn names(turn: &WorkflowTurn) -> Vec<Name> {
    let mut names: Vec<Name> = turn.takes.iter().map(|taken| taken.name.clone()).collect();
    if let Then::Park(park) = &turn.then {
        names.extend(park.names());
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Applies a turn to the row of the claim that holds it. Children that it starts are counted by [`born`], when it is
/// known how many there really are; a continuation is told of by the kernel, when it is known which run follows.
pub(super) fn apply<'a>(
    row: &mut Row,
    commit: &Commit,
    turn: &'a WorkflowTurn,
    facts: Facts<'_>,
    moved: &mut Moved<'a>,
) {
    row.kind = Kind::Workflow;
    row.last_error = None;
    if let Then::Block(blocked) = &turn.then {
        row.last_error = Some(facts.limits.cut_error(&blocked.to_string()));
        moved.told.push(Happening::ReplayBlocked(blocked.clone()));
        block(row);
        return;
    }
    moved.close(inbox::take(row, &turn.takes, facts.pending));
    moved.close(answer(row, &turn.updates, facts));
    moved.told.extend(turn.operations.iter().map(told));
    // What else was handed was not taken, and stays.
    row.inbox.handed = Sequence::default();
    let left = || {
        let taken = |one: &&Pending| moved.closings.iter().any(|closed| closed.id == one.id);
        let left = facts.pending.iter().filter(|one| !taken(one));
        left.cloned().collect::<Vec<_>>()
    };
    match &turn.then {
        Then::GoOn { running } => {
            step_on(row);
            moved.kept = commit.keep
                && (*running
                    || row.inbox.updates == 0
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
            let left = left();
            let opened = park(row, turn, given, &left, facts.now);
            moved.told.extend(opened);
        }
        Then::Done { result } => {
            moved.result = Some(result);
            close_rest(row, &left(), Status::Done, moved);
            end(row, Status::Done, facts.now);
            moved.told.push(Happening::Done);
        }
        Then::Stop { reason } => {
            let error = facts.limits.cut_error(reason);
            close_rest(row, &left(), Status::Failed, moved);
            end(row, Status::Failed, facts.now);
            row.last_error = Some(error.clone());
            moved.told.push(Happening::Failed { error });
        }
        Then::Cancelled { reason } => {
            let reason = facts.limits.cut_error(reason);
            close_rest(row, &left(), Status::Cancelled, moved);
            end(row, Status::Cancelled, facts.now);
            row.last_error = Some(reason.clone());
            moved.told.push(Happening::Cancelled { reason });
        }
        Then::ContinueAsNew { .. } => end(row, Status::Continued, facts.now),
        Then::Block(_) => {}
    }
    if row.inbox.updates > 0 {
        inbox::step_aside(row, facts.now);
    }
}

fn told(operation: &Operation) -> Happening {
    match operation {
        Operation::Opened(opened) => Happening::OperationOpened(opened.clone()),
        Operation::Completed(completed) => Happening::OperationCompleted(completed.clone()),
        Operation::TriedAgain(again) => Happening::OperationRetried(again.clone()),
    }
}

/// Parks a row whose code does not fit its history, until somebody says that it does (rule 12.4).
fn block(row: &mut Row) {
    step_on(row);
    end_hold(row);
    row.status = Status::Scheduled;
    row.due_at = None;
    row.cause = Cause::Replay;
    row.behind = false;
    row.family.needed = 0;
}

/// Lets a blocked row be tried again. Whether it was blocked.
pub fn unblock(row: &mut Row, now: Timestamp) -> bool {
    let blocked = row.is_blocked();
    if blocked {
        row.last_error = None;
        queue_up(row, now, Cause::Replay);
    }
    blocked
}

fn park(
    row: &mut Row,
    turn: &WorkflowTurn,
    park: &Park,
    left: &[Pending],
    now: Timestamp,
) -> Option<Happening> {
    let was = row.awaits.clone();
    begin(row, &row.step.clone());
    end_hold(row);
    let joins = park.children.is_some() || turn.children.iter().any(|brood| brood.needed > 0);
    let (status, kind) = if !park.signals.is_empty() {
        (Status::AwaitingSignal, WaitKind::Signal)
    } else if !park.events.is_empty() {
        (Status::AwaitingSignal, WaitKind::Event)
    } else if park.conditions.is_some() {
        (Status::AwaitingSignal, WaitKind::Condition)
    } else if joins {
        (Status::AwaitingChildren, WaitKind::Children)
    } else {
        (Status::Scheduled, WaitKind::Timer)
    };
    let awaited = park.names();
    let names = match kind {
        WaitKind::Condition => park.conditions.clone().unwrap_or_default(),
        _ => awaited.clone(),
    };
    // What came while the turn ran.
    let waits_for = |one: &&Pending| one.kind == CommandKind::Signal && awaited.contains(&one.name);
    let buffered = left.iter().find(waits_for);
    let own = WaitId::stored(format!("wait:{}:{}", row.id, park.operation));
    // rule 7.6: a wait for one name adopts the id of the signal that was there before it.
    let adopted = buffered
        .filter(|_| names.len() == 1)
        .map(|first| inbox::own_wait(first.id));
    let same = was.filter(|awaits| {
        let ids = [Some(&own), adopted.as_ref()];
        awaits.kind == kind
            && awaits.names == names
            && awaits.id.is_some()
            && ids.contains(&awaits.id.as_ref())
    });
    let opened = same.is_none();
    let id = adopted.unwrap_or(own);
    (row.status, row.due_at, row.cause) = (status, park.until, Cause::Timeout);
    row.awaits = Some(same.unwrap_or(Awaits {
        kind,
        names: names.clone(),
        since: now,
        id: Some(id.clone()),
    }));
    row.inbox.handed = row.inbox.sequence;
    row.family.needed = 0;
    if let Some(Unended { seen, needed }) = park.children {
        // rule 10.2: ends only grow. A child that was started again meanwhile does not hide the end of another.
        let ended = row.family.ended.saturating_sub(seen);
        let ended = u32::try_from(ended).unwrap_or(u32::MAX);
        row.family.needed = needed.saturating_sub(ended);
        if row.family.needed == 0 {
            queue_up(row, now, Cause::Children);
        }
    }
    if buffered.is_some() {
        queue_up(row, now, Cause::Signal);
    }
    opened.then_some(Happening::WaitOpened {
        wait_kind: kind,
        names,
        deadline: park.until,
        wait_id: Some(id),
    })
}

/// The operations that a turn begins and that wait for events, each with the type; those that it ends too are left out.
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

/// Notes up to which event each operation that waits for events has missed none (rule 14.6): those that the turn begins,
/// up to the newest of their types, which are locked; those that it waits for on, as far as was noted before.
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
        // What has ended waits for nothing; what is blocked waits as before.
        _ => {}
    }
}

/// Up to which event an operation has missed none.
pub fn attended(noted: &[Attended], operation: u32) -> Option<EventSequence> {
    let of = |number: u32| noted.iter().find(|one| one.operation == number);
    of(operation).or_else(|| of(0)).map(|one| one.sequence)
}

/// Counts the children that a turn has really started: of each brood, in order, how many. A brood that is waited for and
/// has none, because all keys were taken, is nothing to wait for.
pub fn born(
    row: &mut Row,
    turn: &WorkflowTurn,
    inserted: &[u32],
    now: Timestamp,
) -> Vec<Happening> {
    let mut told = Vec::with_capacity(inserted.len());
    let mut wakes = false;
    for (brood, count) in turn.children.iter().zip(inserted.iter().copied()) {
        let asked = u32::try_from(brood.starts.len()).unwrap_or(u32::MAX);
        told.push(Happening::ChildrenSpawned {
            barrier: Brood::barrier(brood.operation),
            count,
            duplicates: asked.saturating_sub(count),
        });
        let Family {
            pending, needed, ..
        } = &mut row.family;
        *pending = pending.saturating_add(count);
        if brood.needed == 0 {
            continue;
        }
        match (brood.needed.min(count), *needed) {
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
        come_back(row, now, Cause::Children);
    }
    if !matches!(turn.then, Then::Park(_)) {
        row.family.needed = 0;
    }
    told
}

#[cfg(test)]
mod tests;
