//! Histories of steps that are tried again and again: they do not grow without bound (rule 16.1).

use abide_core::model::{
    Declared, Entry, Folded, HistoryEvent, InstanceId, Name, Operation, OperationKind, Outcome,
    Policy, RetrySpec, Start, Status, TriedAgain, WorkerId,
};

use super::build::{MINUTE, done, name, next, plain, retry, signal, under, updates};
use super::coding::{Coded, ended, opened, sleep, workflow};
use super::failing::fail;
use super::lab::{Lab, OVER_LEASE};

/// The attempts that the last entry stands for.
async fn folded(lab: &Lab, id: InstanceId) -> Folded {
    let last = lab.events(id).await.pop().expect("the history has events");
    last.what.folded().expect("it stands for several").clone()
}

fn summary(folded: &Folded) -> (u32, u32, u32, u32) {
    (folded.first, folded.last, folded.count, folded.deaths)
}

/// Runs a step so often, with that outcome each time.
async fn run(lab: &Lab, worker: WorkerId, times: usize, outcome: impl Fn(usize) -> Outcome) {
    for time in 0..times {
        assert_eq!(lab.step(worker, outcome(time)).await, Status::Runnable);
    }
}

/// Reads the events after a number as a reader that goes on from there does, so many rows at a time.
async fn after(lab: &Lab, id: InstanceId, number: u32, rows: usize) -> Vec<Entry> {
    let rows = lab.store.history(id, number, rows).await.unwrap();
    let entries = rows.iter().flat_map(|row| row.unpack().unwrap());
    entries.filter(|entry| entry.seq > number).collect()
}

pub async fn attempts_after_the_tenth_are_one_entry(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    run(&lab, worker, 10, |_| retry(0)).await;
    let one_by_one = lab.kinds(id).await;
    assert_eq!(one_by_one, ["step_completed", "retried"].repeat(10));
    let since = lab.now();
    run(&lab, worker, 1, |_| retry(0)).await;
    lab.pass(MINUTE);
    run(&lab, worker, 89, |_| retry(0)).await;
    let events = lab.events(id).await;
    assert_eq!(events.len(), 21);
    let last = events.last().unwrap();
    let expected = Folded {
        first: 11,
        last: 100,
        count: 90,
        deaths: 0,
        since,
        last_error: None,
    };
    assert_eq!(last.what.folded(), Some(&expected));
    assert_eq!((last.at, last.seq), (lab.now(), 21 + 90));
    assert_eq!(lab.get(id).await.history_seq, last.seq);

    lab.step(worker, next("b")).await;
    run(&lab, worker, 11, |_| retry(0)).await;
    lab.step(worker, done()).await;
    let events = lab.events(id).await;
    let numbers: Vec<u32> = events.iter().map(|entry| entry.seq).collect();
    assert!(numbers.is_sorted() && numbers.len() == 21 + 1 + 20 + 1 + 2);
    let folds = events.iter().filter_map(|entry| entry.what.folded());
    let folds: Vec<_> = folds.map(summary).collect();
    assert_eq!(folds, [(11, 100, 90, 0), (11, 11, 1, 0)]);
}

pub async fn who_reads_on_from_a_number_finds_what_has_changed(lab: Lab) {
    // rule 16.1: the cursors of readers and streams go on being right.
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    run(&lab, worker, 12, |_| retry(0)).await;
    let mut cursor = lab.events(id).await.last().unwrap().seq;
    for _ in 0..5 {
        assert!(after(&lab, id, cursor, 9).await.is_empty());
        run(&lab, worker, 1, |_| retry(0)).await;
        let newer = after(&lab, id, cursor, 9).await;
        let [entry] = newer.as_slice() else {
            panic!("{newer:?}")
        };
        assert_eq!((entry.seq, entry.what.kind()), (cursor + 1, "retried"));
        cursor = entry.seq;
    }
    lab.step(worker, done()).await;
    let whole = lab.events(id).await;
    // A row at a time, from every number there is: the next entry comes, and no reader is stuck.
    for number in 1..=whole.last().unwrap().seq {
        let next = whole.iter().find(|entry| entry.seq > number);
        let found = after(&lab, id, number, 1).await;
        assert_eq!(found.first(), next, "after {number}");
    }
}

pub async fn failures_are_folded_with_the_last_error(lab: Lab) {
    // rule 16.1
    let declared = Declared {
        contract: None,
        retry: Some(RetrySpec {
            max_attempts: 40,
            delay_ms: 0,
            factor: None,
            max_delay_ms: None,
        }),
        ..under(&updates())
    };
    lab.declare(vec![declared]).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    run(&lab, worker, 39, |time| fail(&format!("no {time}"))).await;
    let found = folded(&lab, id).await;
    assert_eq!(summary(&found), (11, 39, 29, 0));
    assert_eq!(found.last_error.as_deref(), Some("no 38"));
    assert_eq!(lab.step(worker, fail("no more")).await, Status::Failed);
    let kinds = lab.kinds(id).await;
    assert_eq!(
        kinds[kinds.len() - 3..],
        ["retried", "step_failed", "failed"]
    );
}

pub async fn deaths_are_folded_among_attempts(lab: Lab) {
    // rules 5.5 and 16.1
    let policy = Policy {
        max_deaths: Some(50),
        ..Policy::default()
    };
    let start = Start {
        policy: Some(policy),
        ..plain()
    };
    let id = lab.start(start).await;
    let mut worker = lab.worker("w").await;
    run(&lab, worker, 10, |_| retry(0)).await;
    for _ in 0..3 {
        run(&lab, worker, 1, |_| retry(0)).await;
        lab.claim(worker).await;
        lab.pass(OVER_LEASE);
        assert_eq!(lab.reclaim().await, 1);
        lab.pass(10 * MINUTE);
        lab.fire().await;
        worker = lab.worker("w").await;
    }
    let last = lab.events(id).await.pop().unwrap();
    assert_eq!(summary(last.what.folded().unwrap()), (11, 16, 6, 3));
    assert!(
        matches!(&last.what, HistoryEvent::Reclaimed { worker, deaths: 3, attempt: 16, .. } if *worker == name("w")),
        "{last:?}"
    );
    assert_eq!(lab.events(id).await.len(), 21);
}

pub async fn what_comes_in_between_is_recorded_where_it_came(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    run(&lab, worker, 15, |_| retry(0)).await;
    lab.accept(signal(id, "hello")).await;
    run(&lab, worker, 5, |_| retry(0)).await;
    let events = lab.events(id).await;
    let [.., first, came, second] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(summary(first.what.folded().unwrap()), (11, 15, 5, 0));
    assert_eq!(came.what.kind(), "signal_received");
    assert_eq!(summary(second.what.folded().unwrap()), (16, 20, 5, 0));
    assert_eq!((came.seq, second.seq), (first.seq + 1, first.seq + 6));
}

pub async fn attempts_without_a_history_are_not_recorded(lab: Lab) {
    // rule 16.1
    let start = Start {
        history: Some(false),
        ..plain()
    };
    let id = lab.start(start).await;
    let worker = lab.worker("w").await;
    run(&lab, worker, 15, |_| retry(0)).await;
    assert!(lab.events(id).await.is_empty());
    assert_eq!(lab.get(id).await.history_seq, 0);
}

/// A step of a workflow's code that failed so often, and is to be tried again in a minute.
fn tried(lab: &Lab, operation: u32, attempts: u32) -> Operation {
    Operation::TriedAgain(TriedAgain {
        operation,
        name: charge(),
        attempts,
        error: format!("no {attempts}"),
        due_at: lab.now() + MINUTE,
        graph_step: None,
        folded: None,
    })
}

fn charge() -> Name {
    name("charge")
}

pub async fn a_step_of_a_workflow_that_is_tried_for_ever_is_one_entry(lab: Lab) {
    // rules 12.1 and 16.1: the last of its attempts is what replay must know.
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    for attempts in 1..=40 {
        let mut tells = vec![tried(&lab, 1, attempts)];
        if attempts == 1 {
            tells.insert(0, opened(1, OperationKind::Step, "charge"));
        }
        let parks = Coded::parks(sleep(1, lab.now() + MINUTE)).tells(tells);
        assert_eq!(lab.turn(worker, id, parks).await, Status::Scheduled);
        lab.pass(MINUTE);
        assert_eq!(lab.fire().await, 1);
    }
    let events = lab.events(id).await;
    assert!(events.len() <= 1 + 1 + 2 * 10 + 1, "{}", events.len());
    let last = events.last().unwrap();
    assert_eq!(summary(last.what.folded().unwrap()), (11, 40, 30, 0));
    assert!(
        matches!(&last.what, HistoryEvent::OperationRetried(again) if again.attempts == 40 && again.error == "no 40"),
        "{last:?}"
    );
    lab.turn(worker, id, Coded::then(ended())).await;
    assert_eq!(lab.kinds(id).await.last(), Some(&"done"));
}

/// Two steps of a workflow that fail in turn, so often, from that attempt on; each is due in a minute.
async fn fail_in_turn(lab: &Lab, worker: WorkerId, id: InstanceId, from: u32, to: u32) {
    for attempts in from..=to {
        for operation in [1, 2] {
            let mut tells = vec![tried(lab, operation, attempts)];
            if attempts == 1 {
                tells.insert(0, opened(operation, OperationKind::Step, "charge"));
            }
            let parks = Coded::parks(sleep(1, lab.now() + MINUTE)).tells(tells);
            assert_eq!(lab.turn(worker, id, parks).await, Status::Scheduled);
            lab.pass(MINUTE);
            assert_eq!(lab.fire().await, 1);
        }
    }
}

/// The folded attempts at each step, with the number of the entry.
async fn folds(lab: &Lab, id: InstanceId) -> Vec<(u32, u32, (u32, u32, u32, u32))> {
    let events = lab.events(id).await;
    let folds = events.iter().filter_map(|entry| match &entry.what {
        HistoryEvent::OperationRetried(again) => {
            Some((entry.seq, again.operation, summary(again.folded.as_ref()?)))
        }
        _ => None,
    });
    folds.collect()
}

pub async fn steps_of_a_workflow_that_fail_in_turn_are_one_entry_each(lab: Lab) {
    // rule 16.1: the attempts at one lay between those at the other, and nothing was folded.
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    fail_in_turn(&lab, worker, id, 1, 12).await;
    let before = lab.events(id).await.len();
    fail_in_turn(&lab, worker, id, 13, 60).await;
    let events = lab.events(id).await;
    assert_eq!(events.len(), before, "it has not grown");
    let last = lab.get(id).await.history_seq;
    let expected = [(last - 1, 1, (11, 60, 50, 0)), (last, 2, (11, 60, 50, 0))];
    assert_eq!(folds(&lab, id).await, expected);
    assert!(events.is_sorted_by_key(|entry| entry.seq));
    let last = events.last().unwrap();
    assert!(
        matches!(&last.what, HistoryEvent::OperationRetried(again) if again.error == "no 60"),
        "{last:?}"
    );
    // What comes in between is recorded where it came, and the attempts go on as one after it.
    lab.accept(signal(id, "hello")).await;
    let both = vec![tried(&lab, 1, 61), tried(&lab, 2, 61)];
    let parks = Coded::parks(sleep(1, lab.now() + MINUTE)).tells(both);
    lab.turn(worker, id, parks).await;
    let events = lab.events(id).await;
    let kinds: Vec<_> = events.iter().rev().map(|entry| entry.what.kind()).collect();
    let expected = ["operation_retried", "operation_retried", "signal_received"];
    assert_eq!(kinds[..3], expected);
    let summaries = folds(&lab, id).await.into_iter().map(|fold| fold.2);
    assert_eq!(summaries.collect::<Vec<_>>(), [(11, 61, 51, 0); 2]);
}

pub async fn who_reads_on_where_attempts_were_folded_away_is_not_stuck(lab: Lab) {
    // rule 16.1: entries move to the end, and the numbers that they had stay unused.
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    fail_in_turn(&lab, worker, id, 1, 11).await;
    let mut cursor = lab.events(id).await.last().unwrap().seq;
    for attempts in 12..=15 {
        fail_in_turn(&lab, worker, id, attempts, attempts).await;
        let newer = after(&lab, id, cursor, 9).await;
        let numbers: Vec<u32> = newer.iter().map(|entry| entry.seq).collect();
        assert_eq!(numbers, [cursor + 1, cursor + 2], "both have changed");
        cursor += 2;
    }
    // A row of several events, and then gaps.
    let both = vec![
        opened(3, OperationKind::Step, "charge"),
        tried(&lab, 3, 1),
        tried(&lab, 1, 16),
        opened(4, OperationKind::Step, "charge"),
        tried(&lab, 2, 16),
    ];
    let parks = Coded::parks(sleep(1, lab.now() + MINUTE)).tells(both);
    lab.turn(worker, id, parks).await;
    lab.pass(MINUTE);
    lab.fire().await;
    fail_in_turn(&lab, worker, id, 17, 18).await;
    let whole = lab.events(id).await;
    for number in 1..=whole.last().unwrap().seq {
        let next = whole.iter().find(|entry| entry.seq > number);
        let found = after(&lab, id, number, 1).await;
        assert_eq!(found.first(), next, "after {number}");
    }
}
