//! Queries of a workflow's own state.

use abide::client::QueryError;
use abide::engine::Engine;
use abide::machine::Messages;
use abide::message::Query;
use abide::time::hours;
use abide::{Flow, Job, Signal, Status, Update, Workflow};
use serde_json::{Value, json};

use crate::common::{Gate, Lab, Script};
use crate::workflows::recorded::{Code, ok};

const RUN: Flow<Value, Value> =
    Flow::new("run").messages(|| Messages::new().signal(GO).update(ADD));
const GO: Signal<u32> = Signal::new("go");
const ADD: Update<u32, u32> = Update::new("add");
const SUM: Query<(), u32> = Query::new("sum");
const TIMES: Query<u32, u32> = Query::new("times");
const LATE: Query<(), String> = Query::new("late");
const KID: Job<u32, u32> = Job::new("kid");

/// Sums the numbers that it receives, and answers queries.
fn summing(gate: Gate) -> impl abide::workflow::WorkflowCode<Value, Value> {
    move |wf: Workflow, _: Value| {
        let gate = gate.clone();
        async move {
            let (sum, gate) = (wf.state(0), &gate);
            wf.on_query(SUM, {
                let sum = sum.clone();
                move |()| ok(sum.get())
            });
            wf.on_query(TIMES, {
                let sum = sum.clone();
                move |n: u32| {
                    assert!(n < 100, "far too many");
                    if n > 9 {
                        return Err("at most nine times".into());
                    }
                    ok(sum.get() * n)
                }
            });
            wf.on_update(ADD, {
                let sum = sum.clone();
                move |n| {
                    ok(sum.update(|sum| {
                        *sum += n;
                        *sum
                    }))
                }
            });
            let go = wf.signal(GO).await?;
            sum.update(|sum| *sum += go);
            wf.on_query(LATE, |()| ok("it has gone".to_owned()));
            wf.step("held", || async move {
                gate.pass().await;
                ok(())
            })
            .await?;
            sum.update(|sum| *sum += 1000);
            Ok(json!(sum.get()))
        }
    }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, QueryError>) -> String {
    match answer {
        Err(QueryError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

on_every_store! {
    async fn a_query_is_answered_wherever_the_run_stands(lab: Lab) {
        // section 9 and the issue: read-only queries on the workflow's own state
        for kept in [0, 100] {
            let gate = Gate::closed();
            let engine = lab.engine().workflow(RUN, summing(gate.clone())).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).key("sum").delay(hours(1)).await.unwrap();
            assert_eq!(engine.query("sum", SUM, &()).await.unwrap(), 0, "before its first turn");
            lab.cancel(run.id(), "start anew").await.unwrap();
            let run = lab.start(RUN, json!(null)).key("sum").await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            assert_eq!(engine.query("sum", SUM, &()).await.unwrap(), 0);
            assert_eq!(lab.update("sum", ADD, &5).await.unwrap(), 5);
            let before = (lab.now(run.id()).await, lab.events(run.id()).await);
            assert_eq!(engine.query(run.id(), SUM, &()).await.unwrap(), 5, "parked, after an update");
            assert_eq!(engine.query("sum", TIMES, &3).await.unwrap(), 15);
            let why = refused(engine.query("sum", LATE, &()).await);
            assert!(why.contains(r#"no query "late""#) && why.contains("sum, times"), "{why}");
            assert_eq!((lab.now(run.id()).await, lab.events(run.id()).await), before, "nothing was written");
            lab.signal("sum", GO, &10).await.unwrap();
            gate.reached_by(1).await;
            assert_eq!(engine.query("sum", SUM, &()).await.unwrap(), 15, "while a step runs");
            assert_eq!(engine.query("sum", LATE, &()).await.unwrap(), "it has gone");
            gate.open();
            assert_eq!(lab.came_to(&run).await, json!(1015));
            assert_eq!(engine.query(run.id(), SUM, &()).await.unwrap(), 1015, "when it has ended");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_query_that_cannot_be_answered_says_why(lab: Lab) {
        // the issue
        const NONE: Query<(), u32> = Query::new("none");
        const WRONG: Query<String, u32> = Query::new("times");
        const SHAPE: Query<(), String> = Query::new("sum");
        let engine = lab.engine().workflow(RUN, summing(Gate::closed())).job(KID, |n| async move { Ok(n) });
        let engine: Engine = engine.machine(Script::any()).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let id = run.id();
        assert!(refused(engine.query(id, NONE, &()).await).contains(r#"no query "none""#));
        assert_eq!(refused(engine.query(id, TIMES, &10).await), "at most nine times");
        assert!(refused(engine.query(id, TIMES, &100).await).contains("far too many"));
        refused(engine.query(id, WRONG, &"three".into()).await);
        let answer = engine.query(id, SHAPE, &()).await;
        assert!(matches!(answer, Err(QueryError::Error(abide::Error::Mismatch { .. }))), "{answer:?}");
        let answer = engine.query("missing", SUM, &()).await;
        assert!(matches!(answer, Err(QueryError::NoTarget(_))), "{answer:?}");
        // A job, and a machine, have no such state; and of some there is no code here.
        let kid = lab.start(KID, 1).await.unwrap();
        let why = refused(engine.query(kid.id(), SUM, &()).await);
        assert!(why.contains("only workflows do"), "{why}");
        const OTHER: Flow<Value, Value> = Flow::new("other");
        let other = lab.start(OTHER, json!(null)).await.unwrap();
        let answer = engine.query(other.id(), SUM, &()).await;
        let Err(QueryError::NoCode { machine, version }) = answer else { panic!("{answer:?}") };
        assert_eq!((machine.as_str(), version), ("other", 1));
        assert_eq!(engine.query(id, SUM, &()).await.unwrap(), 0, "and the run is as well as ever");
        lab.came_to(&kid).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_run_whose_code_does_not_fit_answers_with_what_differs(lab: Lab) {
        // rule 12.4
        const OLD: Code = |wf, _| Box::pin(async move { wf.now(); Ok(json!(wf.signal(GO).await?)) });
        const NEW: Code = |wf, _| Box::pin(async move {
            wf.on_query(SUM, |()| ok(1));
            Ok(json!(wf.signal(GO).await?))
        });
        let engine = lab.engine().workflow(RUN, OLD).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        engine.shutdown().await;
        let engine = lab.engine().workflow(RUN, NEW).start().await.unwrap();
        let why = refused(engine.query(run.id(), SUM, &()).await);
        assert!(why.contains("the history has now") && why.contains(r#"signal "go""#), "{why}");
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        engine.shutdown().await;
        let engine = lab.engine().workflow(RUN, OLD).start().await.unwrap();
        lab.signal(run.id(), GO, &1).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(1));
        engine.shutdown().await;
    }
}
