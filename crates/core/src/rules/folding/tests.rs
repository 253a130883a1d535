//! Cases of attempts that are folded, and of events that are not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::model::{
    Cause, Completed, Ending, Epoch, Json, Name, OperationKind, Settled, Status, TriedAgain,
};
use crate::rules::fixture;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn row(kind: Kind) -> Row {
    Row {
        kind,
        due_at: Some(NOW),
        epoch: Epoch(5),
        settled: Settled {
            last: Epoch(4),
            before: 0,
        },
        cause: Cause::Retry,
        ..fixture::row(Status::Runnable)
    }
}

fn failed(attempt: u32) -> Vec<HistoryEvent> {
    let step = Name::stored("start");
    vec![
        HistoryEvent::StepFailed {
            step: step.clone(),
            step_sequence: 1,
            error: format!("error {attempt}"),
            outcome: "retry".into(),
            next: None,
            attempt: attempt - 1,
            duration_us: 1,
        },
        HistoryEvent::Retried {
            step,
            attempt,
            due_at: NOW,
            folded: None,
        },
    ]
}

fn again(operation: u32, attempts: u32) -> Vec<HistoryEvent> {
    vec![HistoryEvent::OperationRetried(TriedAgain {
        operation,
        name: Name::stored("charge"),
        attempts,
        error: "no".into(),
        due_at: NOW,
        graph_step: None,
        folded: None,
    })]
}

fn timed_out() -> Vec<HistoryEvent> {
    vec![HistoryEvent::TimedOut {
        wait_kind: WaitKind::Timer,
        deadline: NOW,
        wait_id: None,
    }]
}

/// The rows that are written: the number of each, the row that goes, and the attempts that it stands for.
fn rows(written: &[Written]) -> Vec<(u32, Option<u32>, Option<u32>)> {
    let attempts = |one: &Written| Some(one.events.last()?.folded()?.count);
    let row = |one| (one, attempts(one));
    let rows = written.iter().map(row);
    rows.map(|(one, attempts)| (one.seq, one.replaces, attempts))
        .collect()
}

/// The one row that is written, when it is a fold.
fn fold(row: &mut Row, events: Vec<HistoryEvent>) -> Option<(u32, Option<u32>, u32)> {
    match rows(&write(row, events, NOW))[..] {
        [(seq, replaces, Some(count))] => Some((seq, replaces, count)),
        _ => None,
    }
}

fn appended(seq: u32, events: Vec<HistoryEvent>) -> Vec<Written> {
    vec![Written {
        seq,
        replaces: None,
        events,
    }]
}

fn ended(operation: u32) -> HistoryEvent {
    HistoryEvent::OperationCompleted(Completed {
        operation: Some(operation),
        operation_kind: OperationKind::Step,
        name: None,
        attempts: None,
        duration_us: None,
        message: None,
        arguments: None,
        graph_step: None,
        outcome: Ending::Value(Json::null()),
    })
}

#[test]
fn ten_attempts_are_recorded_one_by_one_and_the_others_as_one() {
    // rule 16.1
    let mut row = row(Kind::Machine);
    for attempt in 1..=10 {
        let written = write(&mut row, failed(attempt), NOW);
        assert_eq!(written, appended(2 * attempt, failed(attempt)));
    }
    assert_eq!((row.history_seq, row.folding.len()), (21, 0));
    for attempt in 11..=500 {
        let number = 22 + attempt - 11;
        let replaces = (attempt > 11).then_some(number - 1);
        let expected = (number, replaces, attempt - 10);
        assert_eq!(fold(&mut row, failed(attempt)), Some(expected));
        assert_eq!(row.history_seq, number, "each takes a number");
        assert_eq!(row.folding.len(), 1);
    }
}

#[test]
fn events_beside_an_attempt_are_never_folded() {
    // rule 16.1
    let mut row = row(Kind::Machine);
    let mut events = failed(40);
    events.push(HistoryEvent::Done);
    assert_eq!(
        write(&mut row, events.clone(), NOW),
        appended(2, events),
        "more than an attempt"
    );
    assert_eq!(fold(&mut row, failed(41)), Some((5, None, 1)));
    let between = vec![HistoryEvent::Done];
    write(&mut row, between, NOW);
    assert_eq!(
        fold(&mut row, failed(42)),
        Some((7, None, 1)),
        "it does not follow the one before it"
    );
    assert_eq!(row.folding.len(), 1, "the other one cannot go on");
}

#[test]
fn each_step_of_a_workflow_has_one_entry_whatever_is_recorded_in_between() {
    // rule 16.1: the events, and the rows that are written for them. The first row of an empty history is 2.
    let done = || vec![HistoryEvent::Done];
    let with = |lists: &[Vec<HistoryEvent>]| lists.concat();
    type Rows<'a> = &'a [(u32, Option<u32>, Option<u32>)];
    let table: [(&str, Vec<HistoryEvent>, Rows<'_>); 11] = [
        ("the tenth", again(1, 10), &[(2, None, None)]),
        ("a first", again(1, 11), &[(3, None, Some(1))]),
        ("another step", again(2, 11), &[(4, None, Some(1))]),
        ("the first again", again(1, 12), &[(5, Some(3), Some(2))]),
        ("the other again", again(2, 12), &[(6, Some(4), Some(2))]),
        (
            "both at once",
            with(&[again(1, 13), again(2, 13)]),
            &[(7, Some(5), Some(3)), (8, Some(6), Some(3))],
        ),
        ("a step one by one", again(3, 1), &[(9, None, None)]),
        ("something else", done(), &[(10, None, None)]),
        (
            "in the midst of others",
            with(&[done(), done(), again(1, 14), done()]),
            &[(11, None, None), (13, Some(7), Some(4)), (14, None, None)],
        ),
        ("the end of a step", vec![ended(1)], &[(15, None, None)]),
        ("the other goes on", again(2, 14), &[(16, Some(8), Some(4))]),
    ];
    let mut row = row(Kind::Workflow);
    for (name, events, expected) in table {
        let written = write(&mut row, events.clone(), NOW);
        assert_eq!(rows(&written), expected, "{name}");
        let count: usize = written.iter().map(|one| one.events.len()).sum();
        assert_eq!(count, events.len(), "{name}: everything is recorded");
    }
    let open: Vec<_> = row.folding.iter().map(|one| one.operation).collect();
    assert_eq!(open, [Some(2)], "what has ended is not kept");
}

#[test]
fn a_row_remembers_a_limited_number_of_steps_that_keep_failing() {
    // rules 16.1 and 16.3: those that failed last.
    let mut row = row(Kind::Workflow);
    let most = u32::try_from(FOLDED_AT_ONCE).unwrap();
    for round in 0..3 {
        for operation in 1..=most {
            let (_, replaces, count) = fold(&mut row, again(operation, 11 + round)).unwrap();
            assert_eq!((replaces.is_some(), count), (round > 0, round + 1));
        }
    }
    assert_eq!(row.folding.len(), FOLDED_AT_ONCE);
    fold(&mut row, again(most + 1, 11));
    assert_eq!(row.folding.len(), FOLDED_AT_ONCE);
    let count = |row: &mut Row, operation| fold(row, again(operation, 14)).unwrap().2;
    assert_eq!(count(&mut row, most), 4, "it goes on");
    assert_eq!(count(&mut row, 1), 1, "it begins anew");
}

#[test]
fn only_the_timer_between_folded_attempts_is_left_out() {
    // rule 16.1
    let mut row = row(Kind::Workflow);
    assert_eq!(write(&mut row, timed_out(), NOW), appended(2, timed_out()));
    write(&mut row, again(1, 11), NOW);
    write(&mut row, again(2, 11), NOW);
    assert_eq!(write(&mut row, timed_out(), NOW), []);
    assert_eq!(
        fold(&mut row, again(1, 12)),
        Some((5, Some(3), 2)),
        "and they go on as one"
    );
    row.kind = Kind::Machine;
    assert_eq!(
        write(&mut row, timed_out(), NOW),
        appended(6, timed_out()),
        "a machine's wait is recorded"
    );
}

#[test]
fn without_a_history_nothing_is_written_or_numbered() {
    // rule 16.1
    let mut row = Row {
        history: false,
        history_seq: 0,
        ..row(Kind::Machine)
    };
    assert_eq!(write(&mut row, failed(40), NOW), []);
    assert_eq!((row.history_seq, row.folding.len()), (0, 0));
}
