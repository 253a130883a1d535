//! Recording the attempts at one step: the first ones one by one, the others combined in one history event.

use crate::model::{Folded, Folding, HistoryEvent, Kind, Row, Timestamp, WaitKind};

/// Number of attempts at one step that are recorded one by one (rule 16.1).
pub const UNFOLDED_ATTEMPTS: u32 = 10;

/// Maximum number of steps of one workflow whose attempts are folded at the same time (rule 16.1): each adds some
/// hundred bytes to the row.
pub const FOLDED_AT_ONCE: usize = 256;

/// A row to write into a history.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of its first event.
    pub seq: u32,
    /// The number of the row that this one replaces, if any.
    pub replaces: Option<u32>,
    /// The events.
    pub events: Vec<HistoryEvent>,
}

/// Decides which history rows record the new events of an instance, and numbers them.
///
/// After the first attempts, each further attempt at a step is folded into one history event with those before it. A
/// workflow has one such event for each of its steps that keeps failing, whatever happens in between; a machine's step
/// has one for as long as nothing else happens. The event takes one more number and moves to the end of the history, so
/// events are in the order of their numbers, and a reader that continues from a number finds the event again.
///
/// Only the row is read for this: it stores where the event of each step that keeps failing is.
pub fn write(row: &mut Row, events: Vec<HistoryEvent>, now: Timestamp) -> Vec<Written> {
    if events.is_empty() || !row.history || is_timer_between(row, &events) {
        return Vec::new();
    }
    if let Some(attempt) = Attempt::alone(&events).filter(Attempt::is_folded) {
        let last = events.into_iter().next_back();
        return last
            .map(|event| fold(row, attempt, event, now))
            .into_iter()
            .collect();
    }
    // Most commits have neither folded attempts nor ends of operations.
    let is_special = |event: &HistoryEvent| {
        matches!(event, HistoryEvent::OperationCompleted(_))
            || Attempt::at_operation(event).is_some_and(|attempt| attempt.is_folded())
    };
    if !events.iter().any(is_special) {
        let seq = row.history_seq.saturating_add(1);
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        row.history_seq = row.history_seq.saturating_add(count);
        let replaces = None;
        return vec![Written {
            seq,
            replaces,
            events,
        }];
    }
    let mut written: Vec<Written> = Vec::new();
    for event in events {
        let attempt = Attempt::at_operation(&event).filter(Attempt::is_folded);
        if let Some(attempt) = attempt {
            written.push(fold(row, attempt, event, now));
            continue;
        }
        if let HistoryEvent::OperationCompleted(completed) = &event {
            row.folding
                .retain(|folding| folding.operation != completed.operation);
        }
        row.history_seq = row.history_seq.saturating_add(1);
        match written.last_mut() {
            Some(last) if !last.is_fold() => last.events.push(event),
            _ => written.push(Written {
                seq: row.history_seq,
                replaces: None,
                events: vec![event],
            }),
        }
    }
    written
}

/// Folds an attempt with those before it, and moves their event to the end.
fn fold(row: &mut Row, attempt: Attempt, event: HistoryEvent, now: Timestamp) -> Written {
    let open = row.folding.iter().position(|folding| {
        folding.operation == attempt.operation
            && (folding.operation.is_some() || folding.seq == row.history_seq)
    });
    let before = open.map(|at| row.folding.remove(at));
    row.history_seq = row.history_seq.saturating_add(1);
    let died = u32::from(attempt.died);
    let folding = match before {
        Some(before) => Folding {
            seq: row.history_seq,
            count: before.count.saturating_add(1),
            deaths: before.deaths.saturating_add(died),
            ..before
        },
        None => Folding {
            seq: row.history_seq,
            operation: attempt.operation,
            first: attempt.number,
            count: 1,
            deaths: died,
            since: now,
        },
    };
    remember(row, folding);
    let folded = Folded {
        first: folding.first,
        last: attempt.number,
        count: folding.count,
        deaths: folding.deaths,
        since: folding.since,
        last_error: attempt.error,
    };
    Written {
        seq: folding.seq,
        replaces: before.map(|before| before.seq),
        events: vec![with(event, folded)],
    }
}

/// Stores the events that may grow, in the order of their numbers. For a machine's step only the last one can grow. If
/// there are too many, the one that has not changed for the longest time is left as it is.
fn remember(row: &mut Row, folding: Folding) {
    row.folding.retain(|one| one.operation.is_some());
    let excess = (row.folding.len() + 1).saturating_sub(FOLDED_AT_ONCE);
    row.folding.drain(..excess);
    row.folding.push(folding);
}

/// `true` if the only new event is the timer of a workflow's step that is retried again and again: the event of its
/// attempts already says when it was due.
fn is_timer_between(row: &Row, events: &[HistoryEvent]) -> bool {
    let is_timer = matches!(
        events,
        [HistoryEvent::TimedOut {
            wait_kind: WaitKind::Timer,
            ..
        }]
    );
    let tries_again = row
        .folding
        .last()
        .is_some_and(|folding| folding.seq == row.history_seq && folding.operation.is_some());
    is_timer && tries_again && row.kind == Kind::Workflow
}

impl Written {
    fn is_fold(&self) -> bool {
        self.events.iter().any(|event| event.folded().is_some())
    }
}

/// An attempt at a step.
struct Attempt {
    operation: Option<u32>,
    number: u32,
    died: bool,
    error: Option<String>,
}

impl Attempt {
    fn is_folded(&self) -> bool {
        self.number > UNFOLDED_ATTEMPTS
    }

    /// Returns the attempt at a machine's step, or at a workflow's turn, that a commit records, if it records nothing
    /// else.
    fn alone(events: &[HistoryEvent]) -> Option<Self> {
        match events {
            [
                ran @ (HistoryEvent::StepFailed { .. } | HistoryEvent::StepCompleted { .. }),
                HistoryEvent::Retried { attempt, .. },
            ] => Some(Self {
                operation: None,
                number: *attempt,
                died: false,
                error: match ran {
                    HistoryEvent::StepFailed { error, .. } => Some(error.clone()),
                    _ => None,
                },
            }),
            [HistoryEvent::Reclaimed { attempt, .. }] => Some(Self {
                operation: None,
                number: *attempt,
                died: true,
                error: None,
            }),
            _ => None,
        }
    }

    /// Returns the attempt at a step of a workflow's code that an event records; the commit may record other events
    /// too.
    fn at_operation(event: &HistoryEvent) -> Option<Self> {
        match event {
            HistoryEvent::OperationRetried(again) => Some(Self {
                operation: Some(again.operation),
                number: again.attempts,
                died: false,
                error: Some(again.error.clone()),
            }),
            _ => None,
        }
    }
}

/// Returns the event with the attempts that it combines.
fn with(mut event: HistoryEvent, attempts: Folded) -> HistoryEvent {
    match &mut event {
        HistoryEvent::Retried { folded, .. } | HistoryEvent::Reclaimed { folded, .. } => {
            *folded = Some(attempts);
        }
        HistoryEvent::OperationRetried(again) => again.folded = Some(attempts),
        _ => {}
    }
    event
}

#[cfg(test)]
mod tests;
