//! Committing: what each outcome does to its instance.

use std::time::Duration;

use abide_core::model::{Cause, Commit, Committed, Outcome, Refusal, Start, Status};

use super::build::{
    MINUTE, SECOND, commit, done, join, json, many, name, next, next_after, plain, retry, spawn,
    stop, wait,
};
use super::lab::Lab;

pub async fn next_moves_on_and_is_runnable_at_once(lab: Lab) {
    // rules 1.1 and 4.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, retry(0)).await;
    lab.pass(SECOND);
    assert_eq!(lab.step(worker, next("b")).await, Status::Runnable);
    let found = lab.get(id).await;
    assert_eq!(
        (
            found.row.step.as_str(),
            found.row.step_seq,
            found.row.attempt
        ),
        ("b", 2, 0)
    );
    assert_eq!(
        (found.state.as_str(), found.row.cause),
        ("{\"to\":1}", Cause::Next)
    );
    assert_eq!(
        (found.row.due_at, found.row.worker, found.updated_at),
        (Some(lab.now()), None, lab.now())
    );
    assert_eq!(
        (found.first_step, found.row.created_at),
        (name("start"), lab.now() - SECOND)
    );
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (
            claimed.step.as_str(),
            claimed.step_seq,
            claimed.state.as_str()
        ),
        ("b", 2, "{\"to\":1}")
    );
}

pub async fn next_with_a_delay_is_scheduled_until_then(lab: Lab) {
    // rule 3.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    assert_eq!(
        lab.step(worker, next_after("b", 1500)).await,
        Status::Scheduled
    );
    let due = lab.now() + Duration::from_millis(1500);
    let found = lab.get(id).await;
    assert_eq!(
        (found.step.as_str(), found.due_at, found.wait_kind()),
        ("b", Some(due), None)
    );
    lab.clock.set(due);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.cause, claimed.timed_out, claimed.due_at),
        (Cause::Next, false, due)
    );
}

pub async fn retry_runs_the_same_step_one_attempt_on(lab: Lab) {
    // rules 1.2 and 5.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    assert_eq!(lab.step(worker, retry(1000)).await, Status::Scheduled);
    lab.pass(SECOND);
    lab.fire().await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.step.as_str(), claimed.step_seq, claimed.attempt),
        ("start", 1, 1)
    );
    assert_eq!(
        (claimed.cause, claimed.state.as_str()),
        (Cause::Retry, "{\"again\":1}")
    );
    assert_eq!(
        lab.commit(claimed.claim, retry(0)).await,
        Committed::Moved(Status::Runnable)
    );
    assert_eq!(lab.get(id).await.attempt, 2);
}

pub async fn done_ends_with_a_result(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    let id = lab
        .start(Start {
            state: json("[7]"),
            ..plain()
        })
        .await;
    lab.pass(SECOND);
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    let found = lab.get(id).await;
    assert_eq!(
        (found.result, found.row.last_error),
        (Some(json("{\"sum\":42}")), None)
    );
    assert_eq!(
        (found.row.finished_at, found.row.due_at, found.row.worker),
        (Some(lab.now()), None, None)
    );
    assert_eq!(found.state, json("[7]"), "its last state stays");
}

pub async fn stop_ends_with_an_error(lab: Lab) {
    // rules 4.1 and 5.2
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    assert_eq!(
        lab.step(worker, stop("the card was declined: 🙁")).await,
        Status::Failed
    );
    let found = lab.get(id).await;
    assert_eq!(
        (found.result, found.row.last_error.as_deref()),
        (None, Some("the card was declined: 🙁"))
    );
    assert_eq!(found.row.finished_at, Some(lab.now()));
}

pub async fn nothing_happens_to_what_has_ended(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    let ids = lab.start_all(many(2)).await;
    lab.step(worker, done()).await;
    lab.step(worker, stop("no")).await;
    let before = [lab.get(ids[0]).await, lab.get(ids[1]).await];
    lab.pass(MINUTE);
    assert_eq!(
        (
            lab.fire().await,
            lab.reclaim().await,
            lab.claim_some(worker, 9).await.len()
        ),
        (0, 0, 0)
    );
    assert_eq!([lab.get(ids[0]).await, lab.get(ids[1]).await], before);
}

pub async fn an_error_that_was_handled_is_shown_until_the_next_step_is_done(lab: Lab) {
    // rule 5.2
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let failed = |claim, outcome| Commit {
        error: Some("timeout".into()),
        ..commit(claim, outcome)
    };
    let claimed = lab.claim(worker).await;
    lab.commit_all(vec![failed(claimed.claim, retry(0))]).await;
    assert_eq!(lab.get(id).await.last_error.as_deref(), Some("timeout"));
    lab.step(worker, next("b")).await;
    assert_eq!(lab.get(id).await.last_error, None);
}

pub async fn a_long_error_text_is_cut(lab: Lab) {
    // rule 16.3
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, stop(&"é".repeat(20_000))).await;
    let error = lab.get(id).await.row.last_error.unwrap();
    assert!(
        error.len() < 17_000 && error.ends_with("(40000 bytes in all)"),
        "{}",
        error.len()
    );
}

pub async fn a_refused_outcome_leaves_the_claim_as_it_was(lab: Lab) {
    // rules 4.2 and 16.3
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let before = lab.get(id).await;
    let big = json(&format!("\"{}\"", "x".repeat((1 << 20) - 1)));
    let names: Vec<String> = (0..101).map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let refused = [
        (
            Outcome::Next {
                step: name("b"),
                state: big.clone(),
                delay_ms: 0,
            },
            "limit_exceeded",
        ),
        (
            Outcome::Retry {
                state: big.clone(),
                delay_ms: 0,
            },
            "limit_exceeded",
        ),
        (
            Outcome::Done {
                result: big.clone(),
            },
            "limit_exceeded",
        ),
        (wait(&[], None), "bad_outcome"),
        (wait(&names, None), "limit_exceeded"),
        (spawn(many(10_001)), "limit_exceeded"),
        (
            spawn(vec![
                plain(),
                Start {
                    state: big,
                    ..plain()
                },
            ]),
            "limit_exceeded",
        ),
        (
            spawn(vec![
                plain(),
                Start {
                    version: Some(0),
                    ..plain()
                },
            ]),
            "bad_version",
        ),
    ];
    for (outcome, reason) in refused {
        let answer = lab.commit(claimed.claim.again(), outcome).await;
        assert!(
            matches!(&answer, Committed::Refused(refusal) if refusal.reason() == reason),
            "{answer:?}"
        );
    }
    assert_eq!(lab.get(id).await, before);
    assert!(lab.kinds(id).await.is_empty());
    assert_eq!(
        lab.commit(claimed.claim, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn results_and_states_of_exactly_the_limit_are_taken(lab: Lab) {
    // rule 16.3
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let full = json(&format!("\"{}\"", "x".repeat((1 << 20) - 2)));
    lab.step(
        worker,
        Outcome::Next {
            step: name("b"),
            state: full.clone(),
            delay_ms: 0,
        },
    )
    .await;
    lab.step(
        worker,
        Outcome::Done {
            result: full.clone(),
        },
    )
    .await;
    let found = lab.get(id).await;
    assert!(found.state == full && found.result == Some(full));
}

pub async fn a_batch_of_commits_is_answered_one_by_one(lab: Lab) {
    // rules 1.3 and 4.2
    let worker = lab.worker("w").await;
    let ids = lab.start_all(many(6)).await;
    let mut claims = lab
        .claim_some(worker, 6)
        .await
        .into_iter()
        .map(|claimed| claimed.claim);
    let mut claim = || claims.next().unwrap();
    let (first, lost) = (claim(), claim());
    lab.run(crate::Op::GiveBack(vec![lost.again()])).await;
    let twice = first.again();
    let commits = vec![
        commit(first, next("b")),
        commit(lost, done()),
        commit(claim(), wait(&[], None)),
        commit(claim(), join(many(1), None, None)),
        commit(claim(), stop("no")),
        commit(claim(), done()),
        commit(twice, next("b")),
    ];
    let answers = lab.commit_all(commits).await;
    let refusal = Refusal::BadOutcome {
        problem: "it waits for nothing: name a signal, or give it a timeout".into(),
    };
    let moved = Committed::Moved;
    let expected = [
        moved(Status::Runnable),
        Committed::Stale,
        Committed::Refused(refusal),
        moved(Status::AwaitingChildren),
        moved(Status::Failed),
        moved(Status::Done),
        Committed::Repeated(Status::Runnable),
    ];
    assert_eq!(answers, expected);
    let mut found = Vec::new();
    for id in ids {
        found.push(lab.status(id).await);
    }
    use Status::{AwaitingChildren, Done, Executing, Failed, Runnable};
    assert_eq!(
        found,
        [
            Runnable,
            Runnable,
            Executing,
            AwaitingChildren,
            Failed,
            Done
        ]
    );
}

pub async fn an_empty_batch_of_commits_is_answered_with_nothing(lab: Lab) {
    assert_eq!(lab.commit_all(Vec::new()).await, []);
}
