//! History: the exact events, in order, in the commit that they tell about.

use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Commit, HistoryEvent, InstanceId, Start, Status, WaitId, WaitKind,
};

use super::build::{
    MINUTE, SECOND, commit, done, join, keep, keyed, many, name, next, next_after, plain, retry,
    spawn, stop, urgent, wait,
};
use super::lab::{Lab, OVER_LEASE};
use crate::Op;

async fn happenings(lab: &Lab, id: InstanceId) -> Vec<HistoryEvent> {
    lab.events(id)
        .await
        .into_iter()
        .map(|entry| entry.what)
        .collect()
}

fn completed(
    step: &str,
    step_sequence: u32,
    outcome: &str,
    to: Option<&str>,
    attempt: u32,
) -> HistoryEvent {
    let (outcome, next) = (outcome.to_owned(), to.map(name));
    HistoryEvent::StepCompleted {
        step: name(step),
        step_sequence,
        outcome,
        next,
        attempt,
        duration_us: 3000,
    }
}

pub async fn a_run_is_recorded_from_its_first_step_to_its_end(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, next("b")).await;
    lab.step(worker, retry(1000)).await;
    let due_at = lab.now() + SECOND;
    lab.clock.set(due_at);
    lab.fire().await;
    lab.step(worker, next_after("c", 1000)).await;
    lab.pass(SECOND);
    lab.fire().await;
    lab.step(worker, done()).await;
    let expected = [
        completed("start", 1, "next", Some("b"), 0),
        completed("b", 2, "retry", None, 0),
        HistoryEvent::Retried {
            step: name("b"),
            attempt: 1,
            due_at,
            folded: None,
        },
        completed("b", 2, "next", Some("c"), 1),
        completed("c", 3, "done", None, 0),
        HistoryEvent::Done,
    ];
    assert_eq!(happenings(&lab, id).await, expected);
    let numbers: Vec<u32> = lab.events(id).await.iter().map(|entry| entry.seq).collect();
    assert_eq!(
        numbers,
        [2, 3, 4, 5, 6, 7],
        "the row itself is event 1, started"
    );
    assert_eq!(lab.events(id).await[0].at, due_at - SECOND);
    assert_eq!(lab.events(id).await[5].at, lab.now());
}

pub async fn a_wait_and_its_deadline_are_recorded(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, wait(&["paid"], Some(60_000))).await;
    let first = lab.now() + MINUTE;
    lab.clock.set(first + SECOND);
    lab.fire().await;
    lab.step(worker, wait(&[], Some(60_000))).await;
    let second = lab.now() + MINUTE;
    lab.clock.set(second);
    lab.fire().await;
    lab.step(worker, wait(&["x", "y"], None)).await;
    let wait_id = |step: u32| Some(WaitId::stored(format!("wait:{id}:{step}")));
    let opened = |step, wait_kind, names: &[&str], deadline| HistoryEvent::WaitOpened {
        wait_kind,
        names: names.iter().map(|text| name(text)).collect(),
        deadline,
        wait_id: wait_id(step),
        waits: Vec::new(),
    };
    let expected = [
        completed("start", 1, "wait", Some("woken"), 0),
        opened(2, WaitKind::Signal, &["paid"], Some(first)),
        HistoryEvent::TimedOut {
            wait_kind: WaitKind::Signal,
            deadline: first,
            wait_id: wait_id(2),
        },
        completed("woken", 2, "wait", Some("woken"), 0),
        opened(3, WaitKind::Timer, &[], Some(second)),
        HistoryEvent::TimedOut {
            wait_kind: WaitKind::Timer,
            deadline: second,
            wait_id: wait_id(3),
        },
        completed("woken", 3, "wait", Some("woken"), 0),
        opened(4, WaitKind::Signal, &["x", "y"], None),
    ];
    assert_eq!(happenings(&lab, id).await, expected);
}

pub async fn children_are_recorded_in_the_history_of_their_parent(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let taken = lab
        .start(Start {
            priority: urgent(9).priority,
            ..keyed("k")
        })
        .await;
    let parent = lab.start(plain()).await;
    lab.step(
        worker,
        join(
            vec![urgent(1), keyed("k"), urgent(1), urgent(1)],
            Some(2),
            None,
        ),
    )
    .await;
    let barrier = BarrierNumber(1);
    let children = lab.store.children(parent, barrier).await.unwrap();
    lab.step(worker, done()).await;
    lab.step(worker, stop("no")).await;
    let joined = lab.claim(worker).await;
    lab.step(worker, done()).await;
    lab.commit(joined.claim, done()).await;
    let ended = |at: usize, status| HistoryEvent::ChildEnded {
        child: children[at].id,
        barrier,
        status,
    };
    let expected = [
        completed("start", 1, "spawn", Some("joined"), 0),
        HistoryEvent::ChildrenSpawned {
            barrier,
            count: 3,
            duplicates: 1,
        },
        ended(0, Status::Done),
        ended(1, Status::Failed),
        HistoryEvent::ChildrenJoined {
            barrier,
            missing: 1,
        },
        ended(2, Status::Done),
        completed("joined", 2, "done", None, 0),
        HistoryEvent::Done,
    ];
    assert_eq!(happenings(&lab, parent).await, expected);
    assert!(lab.kinds(taken).await.is_empty());
}

pub async fn errors_are_recorded_with_what_was_answered_for_them(lab: Lab) {
    // rules 5.2 and 16.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let failed = |error: &str, outcome| (error.to_owned(), outcome);
    for (error, outcome) in [
        failed("timeout", retry(0)),
        failed("refused", stop("gave up")),
    ] {
        let claimed = lab.claim(worker).await;
        let took = Duration::from_micros(7);
        lab.commit_all(vec![Commit {
            error: Some(error),
            took,
            ..commit(claimed.claim, outcome)
        }])
        .await;
    }
    let failed = |error: &str, outcome: &str, attempt| HistoryEvent::StepFailed {
        step: name("start"),
        step_sequence: 1,
        error: error.to_owned(),
        outcome: outcome.to_owned(),
        next: None,
        attempt,
        duration_us: 7,
    };
    let expected = [
        failed("timeout", "retry", 0),
        HistoryEvent::Retried {
            step: name("start"),
            attempt: 1,
            due_at: lab.now(),
            folded: None,
        },
        failed("refused", "stop", 1),
        HistoryEvent::Failed {
            error: "gave up".into(),
        },
    ];
    assert_eq!(happenings(&lab, id).await, expected);
}

pub async fn a_reclaim_is_recorded_and_giving_back_is_not(lab: Lab) {
    // rules 5.3, 5.4 and 16.1
    let worker = lab.worker("worker-7").await;
    let id = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    lab.run(Op::GiveBack(vec![claim])).await;
    lab.claim(worker).await;
    lab.pass(OVER_LEASE);
    lab.reclaim().await;
    let expected = [HistoryEvent::Reclaimed {
        step: name("start"),
        attempt: 1,
        worker: name("worker-7"),
        deaths: 1,
        due_at: None,
        folded: None,
    }];
    assert_eq!(happenings(&lab, id).await, expected);
}

pub async fn a_kept_claim_is_recorded_step_by_step(lab: Lab) {
    // rules 4.3 and 16.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let kept = lab
        .commit_all(vec![keep(claimed.claim, next("b"))])
        .await
        .pop();
    let Some(abide_core::model::Committed::Kept(claim, _)) = kept else {
        panic!("{kept:?}")
    };
    lab.commit(claim, done()).await;
    let expected = [
        completed("start", 1, "next", Some("b"), 0),
        completed("b", 2, "done", None, 0),
        HistoryEvent::Done,
    ];
    assert_eq!(happenings(&lab, id).await, expected);
}

pub async fn a_machine_can_switch_its_history_off(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let id = lab
        .start(Start {
            history: Some(false),
            ..plain()
        })
        .await;
    lab.step(worker, spawn(many(1))).await;
    lab.step(worker, done()).await;
    lab.step(worker, retry(0)).await;
    lab.step(worker, stop("no")).await;
    assert!(lab.kinds(id).await.is_empty());
    assert_eq!(lab.get(id).await.last_error.as_deref(), Some("no"));
}

pub async fn a_history_is_read_from_where_one_stopped(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    for _ in 0..9 {
        lab.step(worker, retry(0)).await;
    }
    lab.step(worker, done()).await;
    let all = lab.events(id).await;
    assert_eq!(all.len(), 20);
    let (mut read, mut after) = (Vec::new(), 0);
    loop {
        let rows = lab.store.history(id, after, 2).await.unwrap();
        assert!(rows.len() <= 2);
        let entries = rows.iter().flat_map(|row| row.unpack().unwrap());
        let Some(last) = entries.clone().map(|entry| entry.seq).max() else {
            break;
        };
        assert!(last > after, "{last} was read before");
        read.extend(entries);
        after = last;
    }
    assert_eq!(read, all);
    // In the middle of a row: the whole row is answered, for it has something that was not seen.
    let rows = lab.store.history(id, 2, 1).await.unwrap();
    assert_eq!(rows[0].seq, 2);
    assert!(lab.store.history(id, 21, 9).await.unwrap().is_empty());
    assert!(
        lab.store
            .history(InstanceId(id.0 + 99), 0, 9)
            .await
            .unwrap()
            .is_empty()
    );
}
