//! Cancelling workflows: their code is notified, cleans up, and ends.

use abide::client::{Handle, NotDone, new_start};
use abide::engine::{Engine, EngineBuilder};
use abide::prelude::*;
use abide::testing::Kit;
use abide::workflow::{OneOf, OperationError};
use serde_json::{Value, json};

use crate::common::{Gate, Lab, Log};

const FLOW: Flow<String, Value> = Flow::new("cancellable");
const NOTE: Signal<u32> = Signal::new("note");
const KID: Job<u32, u32> = Job::new("kid");

/// Waits in the way that its input names, and cleans up when it is cancelled.
async fn code(wf: Workflow, how: String, gate: Gate, log: Log<String>) -> Result<Value, BoxError> {
    let waited = match &*how {
        "signal" => wf.signal(NOTE).await.map(drop),
        "timed" => wf.signal(NOTE).timeout(hours(1)).await.map(drop),
        "sleep" => wf.sleep(hours(1)).await,
        "condition" => wf.condition("never", || false).await,
        "child" => wf.child(new_start(KID, 1)).await.map(drop),
        "children" => wf
            .children([new_start(KID, 1), new_start(KID, 2)])
            .await
            .map(drop),
        "all" => {
            let (a, b, c) = wf
                .all((
                    wf.signal(NOTE),
                    wf.sleep(hours(1)),
                    wf.child(new_start(KID, 1)),
                ))
                .await;
            a.map(drop).and(b).and(c.map(drop))
        }
        "select" => match wf.select((wf.signal(NOTE), wf.sleep(hours(1)))).await {
            OneOf::First(one) => one.map(drop),
            OneOf::Second(two) => two,
            _ => Ok(()),
        },
        "retry" => {
            let step = wf.step("fails", || async { Err::<(), BoxError>("no".into()) });
            step.retry(Retry::every(hours(1))).await
        }
        _ => {
            let step = wf.step("long", || {
                let (gate, note) = (gate.clone(), NoteOnDrop(log.clone()));
                async move {
                    let _note = note;
                    gate.pass().await;
                    Ok::<_, BoxError>(())
                }
            });
            step.await
        }
    };
    let Err(OperationError::Cancelled { reason }) = waited else {
        return Ok(json!(format!("unexpected: {waited:?}")));
    };
    assert_eq!(wf.cancelled().as_deref(), Some(&*reason));
    for n in 1..=2 {
        let log = &log;
        wf.step(format!("clean {n}"), || async move {
            log.note(format!("clean {n}"));
            Ok::<_, BoxError>(())
        })
        .await?;
        wf.sleep(millis(5)).await?;
    }
    Ok(json!(reason))
}

struct NoteOnDrop(Log<String>);

impl Drop for NoteOnDrop {
    fn drop(&mut self) {
        self.0.note("dropped".into());
    }
}

async fn engine(lab: &Lab, kept: usize, gate: &Gate, log: &Log<String>) -> Engine {
    let (gate, log) = (gate.clone(), log.clone());
    let code = move |wf, how| code(wf, how, gate.clone(), log.clone());
    let engine = lab.engine().workflows_kept(kept).workflow(FLOW, code);
    let engine = engine.job(KID, |_| std::future::pending());
    let engine = engine.queue("default", 50).grace(millis(50));
    engine.start().await.unwrap()
}

async fn waiting(lab: &Lab, how: &str, gate: &Gate) -> Handle<Value> {
    let before = gate.arrivals();
    let run = lab.start(FLOW, how.to_owned()).key(how).await.unwrap();
    if how == "step" {
        gate.reached_by(before + 1).await;
    } else {
        lab.until(run.id(), "it to wait", |row| {
            row.wait_kind().is_some() && row.status != Status::Executing
        })
        .await;
    }
    run
}

on_every_store! {
    async fn it_reaches_the_code_at_whatever_it_waits_for_and_the_code_cleans_up(lab: Lab) {
        // rules 11.1 and 12.1
        for kept in [100, 0] {
            let (gate, log) = (Gate::closed(), Log::new());
            let engine = engine(&lab, kept, &gate, &log).await;
            for how in ["signal", "timed", "sleep", "condition", "child", "children", "all", "select", "retry", "step"] {
                let run = waiting(&lab, how, &gate).await;
                let cancelled = lab.cancel(how, "not wanted").source("desk").await.unwrap();
                assert!(!cancelled.ended, "{how}");
                let ended = lab.ended(run.id()).await;
                assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Cancelled, Some("not wanted")), "{how}");
                assert_eq!(ended.result, None);
                assert!(matches!(lab.result(&run).await, Err(NotDone::Ended { status: Status::Cancelled, .. })));
                let kinds = lab.kinds(run.id()).await;
                assert!(kinds.contains(&"cancel_requested") && kinds.last() == Some(&"cancelled"), "{how}: {kinds:?}");
            }
            let noted = log.read();
            assert_eq!(noted.iter().filter(|one| **one == "clean 1").count(), 10);
            assert_eq!(noted.iter().filter(|one| **one == "clean 2").count(), 10);
            assert_eq!(noted.iter().filter(|one| **one == "dropped").count(), 1, "the step that ran");
            gate.open();
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn one_that_never_ran_ends_at_once(lab: Lab) {
        // rule 11.1
        let run = lab.start(FLOW, "signal".to_owned()).key("never").await.unwrap();
        lab.signal("never", NOTE, &1).await.unwrap();
        assert!(lab.cancel("never", "too early").await.unwrap().ended);
        let (gate, log) = (Gate::closed(), Log::new());
        let engine = engine(&lab, 100, &gate, &log).await;
        let row = lab.now(run.id()).await;
        assert_eq!((row.status, row.last_error.as_deref()), (Status::Cancelled, Some("too early")));
        assert_eq!(log.len(), 0);
        let ended = lab.cancel(run.id(), "again").await.unwrap_err();
        assert!(ended.to_string().contains("cancelled"), "{ended}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn by_force_it_ends_at_once_and_nothing_is_cleaned_up(lab: Lab) {
        // rule 11.1
        let (gate, log) = (Gate::closed(), Log::new());
        let engine = engine(&lab, 100, &gate, &log).await;
        for how in ["signal", "child", "step"] {
            let run = waiting(&lab, how, &gate).await;
            let cancelled = lab.cancel(how, "now").force().await.unwrap();
            assert!(cancelled.ended && cancelled.children == usize::from(how == "child"));
            let row = lab.now(run.id()).await;
            assert_eq!((row.status, row.last_error.as_deref()), (Status::Cancelled, Some("now")));
        }
        // The step that ran is dropped.
        log.grown_to(1).await;
        assert_eq!(log.read(), ["dropped"]);
        gate.open();
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_second_cancel_does_not_disturb_the_cleaning_up_and_force_ends_it(lab: Lab) {
        // rule 11.1
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let code = move |wf: Workflow, _: String| {
            let gate = at_gate.clone();
            async move {
                wf.signal(NOTE).await.unwrap_err();
                let clean = wf.step("clean", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(1) } }).await;
                let after = wf.signal(NOTE).await;
                Err(format!("{clean:?} {after:?}").into())
            }
        };
        let engine = lab.engine().workflow(FLOW, code).start().await.unwrap();
        let run = lab.start(FLOW, String::new()).key("one").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.cancel("one", "first").await.unwrap();
        gate.reached_by(1).await;
        let again = lab.cancel("one", "second").await.unwrap();
        assert!(!again.ended);
        gate.open();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.cancel("one", "third").await.unwrap();
        lab.signal("one", NOTE, &5).await.unwrap();
        let row = lab.ended(run.id()).await;
        assert_eq!(row.status, Status::Cancelled);
        assert_eq!(row.last_error.as_deref(), Some("first; and its code failed: Ok(1) Ok(5)"));
        assert_eq!(gate.arrivals(), 1);
        let run = lab.start(FLOW, String::new()).key("two").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.cancel("two", "first").await.unwrap();
        lab.until(run.id(), "it to wait again", |row| row.status == Status::AwaitingSignal && row.step_seq > 2).await;
        assert!(lab.cancel("two", "for good").force().await.unwrap().ended);
        assert_eq!(lab.now(run.id()).await.last_error.as_deref(), Some("for good"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn however_its_code_returns_it_ends_cancelled(lab: Lab) {
        // rule 11.1: unless it was about to end already.
        let code = |wf: Workflow, how: String| async move {
            let waited = wf.signal(NOTE).await;
            match &*how {
                "done" => Ok(json!("fine")),
                "error" => Err("it broke".into()),
                "panic" => panic!("on fire"),
                _ => { waited?; Ok(json!(null)) }
            }
        };
        let engine = lab.engine().workflow(FLOW, code).start().await.unwrap();
        for (how, expected) in [("done", "stop"), ("error", "stop; and its code failed: it broke"), ("panic", "on fire"), ("as it is", "stop")] {
            let run = lab.start(FLOW, how.to_owned()).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            lab.cancel(run.id(), "stop").await.unwrap();
            let row = lab.ended(run.id()).await;
            assert_eq!(row.status, Status::Cancelled, "{how}");
            let error = row.last_error.clone().unwrap();
            assert!(error.starts_with("stop") && error.ends_with(expected), "{how}: {error}");
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_cleaning_up_outlives_its_worker(lab: Lab) {
        // rules 1.1, 5.3 and 11.1
        let (gate, log) = (Gate::closed(), Log::new());
        let build = |gate: Gate, log: Log<u32>| move |engine: EngineBuilder| {
            engine.name("w").lease(secs(600)).workflow(FLOW, move |wf: Workflow, _: String| {
                let (gate, log) = (gate.clone(), log.clone());
                async move {
                    let waited = wf.signal(NOTE).await;
                    for n in 1..=4 {
                        let (gate, log) = (&gate, &log);
                        wf.step(format!("clean {n}"), || async move {
                            log.note(n);
                            if n == 3 {
                                gate.pass().await;
                            }
                            Ok::<_, BoxError>(())
                        }).await?;
                    }
                    waited?;
                    Ok(json!(null))
                }
            })
        };
        let killable = lab.killable(build(gate.clone(), log.clone())).await;
        let run = lab.start(FLOW, String::new()).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.cancel(run.id(), "stop").await.unwrap();
        gate.reached_by(1).await;
        killable.die().await;
        gate.open();
        let engine = build(gate.clone(), log.clone())(lab.engine()).start().await.unwrap();
        let row = lab.ended(run.id()).await;
        assert_eq!((row.status, row.last_error.as_deref()), (Status::Cancelled, Some("stop")));
        assert_eq!(log.read(), [1, 2, 3, 3, 4]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn it_reaches_a_step_that_runs_from_another_process_at_once(lab: Lab) {
        // rules 6.6 and 11.1
        let (gate, log) = (Gate::closed(), Log::new());
        let at_gate = gate.clone();
        let noted = log.clone();
        let flow = move |wf, how| code(wf, how, at_gate.clone(), noted.clone());
        let engine = lab.engine().poll(hours(1)).workflow(FLOW, flow).start().await.unwrap();
        let outside = lab.again().await;
        for (n, force) in [(1, false), (2, true)] {
            let run = lab.start(FLOW, "step".to_owned()).await.unwrap();
            gate.reached_by(n).await;
            let since = std::time::Instant::now();
            let cancel = outside.cancel(run.id(), "stop");
            let cancelled = if force { cancel.force().await } else { cancel.await };
            assert_eq!(cancelled.unwrap().ended, force);
            let dropped = async || log.read().iter().filter(|one| **one == "dropped").count() == n;
            crate::common::eventually("the step to be dropped", dropped).await;
            assert!(force || since.elapsed() < millis(2_500), "it took {:?}", since.elapsed());
            let row = lab.ended(run.id()).await;
            assert_eq!((row.status, row.last_error.as_deref()), (Status::Cancelled, Some("stop")));
        }
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn the_cleaning_up_outlives_a_crash_after_every_commit() {
    // rules 1.1 and 11.1
    let log = Log::new();
    let noted = log.clone();
    let gate = Gate::closed();
    let kit = Kit::builder()
        .workflow(FLOW, move |wf, how| {
            code(wf, how, gate.clone(), noted.clone())
        })
        .build()
        .await
        .unwrap();
    let run = kit.start(FLOW, "sleep".to_owned()).await.unwrap();
    kit.settle().await;
    kit.kill_worker_after_every_commit(true);
    kit.cancel(run.id(), "stop").await.unwrap();
    for _ in 0..20 {
        kit.advance(millis(5)).await;
        if kit.worker_is_dead().await {
            kit.restart_worker().await.unwrap();
        }
    }
    kit.assert_status(&run, Status::Cancelled).await;
    assert_eq!(log.read(), ["clean 1", "clean 2"]);
}
