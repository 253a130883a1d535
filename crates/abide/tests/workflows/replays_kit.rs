//! Tests that check today's code against yesterday's history.

use std::panic::AssertUnwindSafe;

use abide::client::new_start;
use abide::testing::{Kit, assert_replays, replays};
use abide::time::hours;
use abide::workflow::RunHistory;
use abide::{Flow, Job, Signal, Status};
use serde_json::{Value, json};

use crate::common::Lab;
use crate::workflows::recorded::{Code, ok};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");
const KID: Job<u32, u32> = Job::new("kid");

const CODE: Code = |wf, input| {
    Box::pin(async move {
        let a = wf.step("a", || async { ok(input["n"].as_u64()) }).await?;
        let token = wf.uuid();
        let (kid, go) = wf.all((wf.child(new_start(KID, 2)), wf.signal(GO))).await;
        wf.sleep(hours(1)).await?;
        if input["fails"] == json!(true) {
            return Err("on request".into());
        }
        Ok(json!([a, token.len(), kid?, go?]))
    })
};

/// A run in that state, exported.
async fn exported(status: Status) -> RunHistory {
    let kit = Kit::builder()
        .workflow(RUN, CODE)
        .job(KID, |n| async move { Ok(n + 1) });
    let kit = kit.build().await.unwrap();
    let input = json!({ "n": 1, "fails": status == Status::Failed });
    let run = kit.start(RUN, input).key("one").await.unwrap();
    kit.settle().await;
    if status != Status::AwaitingSignal {
        kit.signal("one", GO, &4).await.unwrap();
        kit.advance(hours(2)).await;
    }
    let run = kit.export(run.id()).await.unwrap().unwrap();
    assert_eq!(run.status, status);
    run
}

#[tokio::test]
async fn code_replays_its_own_histories_however_far_they_have_come() {
    // rule 12.4, before it is deployed
    for status in [Status::AwaitingSignal, Status::Done, Status::Failed] {
        let run = exported(status).await;
        assert_replays(RUN, CODE, &run);
        assert_eq!(replays(RUN, CODE, &run), Ok(()));
    }
}

/// The reason why code does not fit a run.
fn problem(code: Code, run: &RunHistory) -> String {
    replays(RUN, code, run).unwrap_err()
}

#[tokio::test]
async fn code_that_does_not_fit_is_reported() {
    // rule 12.4
    let (open, done, failed) = (
        exported(Status::AwaitingSignal).await,
        exported(Status::Done).await,
        exported(Status::Failed).await,
    );
    let renamed: Code =
        |wf, _| Box::pin(async move { Ok(json!(wf.step("b", || async { ok(1) }).await?)) });
    for run in [&open, &done, &failed] {
        let problem = problem(renamed, run);
        assert!(
            problem.contains(
                r#"at operation 1 the history has step "a", and the code asks for step "b""#
            ),
            "{problem}"
        );
    }
    let returns: Code =
        |wf, _| Box::pin(async move { Ok(json!(wf.step("a", || async { ok(1) }).await?)) });
    assert!(problem(returns, &open).contains("the code asks for nothing: it has returned"));
    let other: Code = |wf, input| {
        Box::pin(async move {
            CODE(wf, input).await?;
            Ok(json!("another"))
        })
    };
    let text = problem(other, &done);
    assert!(
        text.contains("the run ended with [1,36,3,4]")
            && text.contains(r#"the code returns "another""#),
        "{text}"
    );
    assert_eq!(replays(RUN, other, &open), Ok(()), "it has not come so far");
    assert_eq!(replays(RUN, other, &failed), Ok(()));
    let fails: Code = |wf, input| {
        Box::pin(async move {
            CODE(wf, input).await?;
            Err("now it fails".into())
        })
    };
    assert_eq!(
        problem(fails, &done),
        "the run is done, and the code fails: now it fails"
    );
    let well: Code = |wf, mut input| {
        input["fails"] = json!(false);
        CODE(wf, input)
    };
    assert_eq!(
        problem(well, &failed),
        "the run has failed, and the code returns [1,36,3,4]"
    );
    let more: Code = |wf, input| {
        Box::pin(async move {
            let came = CODE(wf.clone(), input).await;
            wf.signal(GO).await?;
            came
        })
    };
    for (run, status) in [(&done, "done"), (&failed, "failed")] {
        let text = problem(more, run);
        assert_eq!(
            text,
            format!("the run is {status}, and at the end of its history the code waits for more")
        );
    }
    const TYPED: Flow<u32, Value> = Flow::new("run");
    let typed = |_: abide::Workflow, n: u32| async move { Ok(json!(n)) };
    let text = replays(TYPED, typed, &open).unwrap_err();
    assert!(
        text.contains("the history has its input") && text.contains("u32"),
        "{text}"
    );
    const OTHER: Flow<Value, Value> = Flow::new("other");
    let text = replays(OTHER, CODE, &open).unwrap_err();
    assert_eq!(
        text,
        r#"the history is that of "run", and the code that of "other""#
    );
    let bare: Code = |_, _| Box::pin(async { std::future::pending().await });
    assert!(problem(bare, &open).contains("not a durable operation"));
}

#[tokio::test]
async fn an_assertion_that_fails_says_which_run_and_why() {
    // rule 12.4
    let run = exported(Status::Done).await;
    let wrong: Code = |wf, _| {
        Box::pin(async move {
            wf.now();
            ok(json!(1))
        })
    };
    let assertion = AssertUnwindSafe(|| assert_replays(RUN, wrong, &run));
    let panic = std::panic::catch_unwind(assertion).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(
        text.starts_with(&format!(
            "run {} of run does not replay: at operation 1",
            run.id
        )),
        "{text}"
    );
    assert!(
        text.contains(r#"step "a""#) && text.contains("now"),
        "{text}"
    );
}

on_every_store! {
    async fn a_history_travels_as_a_file(lab: Lab) {
        // rules 12.4 and 16.1
        let engine = lab.engine().workflow(RUN, CODE).job(KID, |n| async move { Ok(n + 1) }).start().await.unwrap();
        let run = lab.start(RUN, json!({ "n": 1, "text": "\u{1F980} \"quoted\" \n" })).key("one").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.signal("one", GO, &4).await.unwrap();
        lab.until(run.id(), "it to sleep", |row| row.status == Status::Scheduled).await;
        let exported = lab.export("one").await.unwrap().unwrap();
        assert_eq!((exported.id, exported.version, exported.status), (run.id(), 1, Status::Scheduled));
        assert_eq!(exported.history, lab.events(run.id()).await);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        exported.to_file(&path).unwrap();
        let read = RunHistory::from_file(&path).unwrap();
        assert_eq!(read, exported);
        assert_replays(RUN, CODE, &read);
        assert_eq!(lab.export("missing").await.unwrap(), None);
        std::fs::write(&path, "not a history").unwrap();
        let error = RunHistory::from_file(&path).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
        let error = RunHistory::from_file(dir.path().join("nowhere.json")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        engine.shutdown().await;
        lab.cancel(run.id(), "enough").force().await.unwrap();
    }
}

#[tokio::test]
async fn runs_that_were_blocked_or_cancelled_replay_too() {
    // rules 12.4 and 11.1
    let kit = Kit::builder()
        .workflow(RUN, CODE)
        .job(KID, |n| async move { Ok(n + 1) });
    let kit = kit.build().await.unwrap();
    for force in [false, true] {
        let run = kit.start(RUN, json!({ "n": 1 })).await.unwrap();
        kit.settle().await;
        let cancel = kit.cancel(run.id(), "never mind");
        if force {
            cancel.force().await.unwrap()
        } else {
            cancel.await.unwrap()
        };
        // The code cleans up, for an hour.
        kit.advance(hours(2)).await;
        let run = kit.export(run.id()).await.unwrap().unwrap();
        assert_eq!(run.status, Status::Cancelled, "force: {force}");
        assert_eq!(replays(RUN, CODE, &run), Ok(()), "force: {force}");
    }
}
