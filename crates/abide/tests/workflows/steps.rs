//! Steps: what they come to is recorded, and then they are not run again.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide::time::{millis, secs};
use abide::workflow::OperationError;
use abide::{BoxError, Flow, Signal, Status, Workflow};
use serde_json::{Value, json};

use crate::common::{Gate, Lab, Log};
use crate::workflows::recorded::{ok, operations};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");

on_every_store! {
    async fn what_a_step_came_to_is_recorded_and_it_is_never_run_for_it_again(lab: Lab) {
        // rules 12.1 and 1.1
        let ran = Log::new();
        let notes = ran.clone();
        let code = move |wf: Workflow, input: Value| {
            let notes = notes.clone();
            async move {
                let notes = &notes;
                let first = wf.step("first", || async move { notes.note("first"); ok(41) }).await?;
                let go = wf.signal(GO).await?;
                let second = wf.step("second", || async move { notes.note("second"); ok(first + go) }).await?;
                let again = wf.signal(GO).await?;
                Ok(json!([input, first, second, again]))
            }
        };
        // Nothing is kept, so that each wake runs the code from the top.
        let engine = lab.engine().workflow(RUN, code).workflows_kept(0).start().await.unwrap();
        let run = lab.start(RUN, json!("in")).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.signal(run.id(), GO, &1).await.unwrap();
        ran.grown_to(2).await;
        lab.signal(run.id(), GO, &2).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(["in", 41, 42, 2]));
        assert_eq!(ran.read(), ["first", "second"]);
        let ops = operations(&lab.events(run.id()).await);
        assert_eq!(ops, [
            "+1 step first", "-1 step first = 41", "+2 signal go", "-2 signal go = [1]", "+3 step second",
            "-3 step second = 42", "+4 signal go", "-4 signal go = [2]",
        ]);
        assert_eq!(lab.now(run.id()).await.state, json!("in").into(), "the row keeps the input");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_worker_that_dies_runs_again_what_was_not_committed_and_nothing_else(lab: Lab) {
        // rules 1.1, 1.2 and 5.3
        let (gate, ran) = (Gate::closed(), Log::new());
        let code = |gate: Gate, ran: Log<(&'static str, String)>| move |wf: Workflow, _: Value| {
            let (gate, ran) = (gate.clone(), ran.clone());
            async move {
                let (gate, ran) = (&gate, &ran);
                let one = wf.step_with("one", |attempt| async move {
                    ran.note(("one", attempt.token()));
                    ok(1)
                });
                let one = one.await?;
                let two = wf.step_with("two", |attempt| async move {
                    ran.note(("two", attempt.token()));
                    gate.pass().await;
                    ok(2)
                });
                Ok(json!(one + two.await?))
            }
        };
        let dying = code(gate.clone(), ran.clone());
        let killable = lab.killable(move |engine| engine.name("w").lease(secs(600)).workflow(RUN, dying)).await;
        let run = lab.start(RUN, json!(null)).await.unwrap();
        gate.reached_by(1).await;
        killable.die().await;
        let ops = operations(&lab.events(run.id()).await);
        assert_eq!(ops, ["+1 step one", "-1 step one = 1", "+2 step two"]);
        gate.open();
        let engine = lab.engine().name("w").workflow(RUN, code(gate, ran.clone())).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(3));
        let ran = ran.read();
        let names: Vec<_> = ran.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["one", "two", "two"]);
        assert_eq!(ran[1].1, ran[2].1, "the same step has the same token when it is run again");
        assert_ne!(ran[0].1, ran[1].1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_worker_that_dies_after_the_last_step_was_committed_runs_no_step(lab: Lab) {
        // rule 1.1: the code has something to do after the commit, and dies there.
        let (gate, ran) = (Gate::closed(), Arc::new(AtomicUsize::new(0)));
        let code = |gate: Gate, ran: Arc<AtomicUsize>| move |wf: Workflow, _: Value| {
            let (gate, ran) = (gate.clone(), ran.clone());
            async move {
                let (gate, ran) = (&gate, &ran);
                let counted = || async move { ok(ran.fetch_add(1, Ordering::SeqCst)) };
                let held = || async move { gate.pass().await; ok(()) };
                let (counted, held) = wf.all((wf.step("counted", counted), wf.step("held", held))).await;
                held?;
                Ok(json!(counted?))
            }
        };
        let dying = code(gate.clone(), ran.clone());
        let killable = lab.killable(move |engine| engine.name("w").lease(secs(600)).workflow(RUN, dying)).await;
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until(run.id(), "the first to be committed", |row| row.step_seq > 1).await;
        gate.reached_by(1).await;
        killable.die().await;
        gate.open();
        let engine = lab.engine().name("w").workflow(RUN, code(gate, ran.clone())).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(0));
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        engine.shutdown().await;
    }
}

#[derive(Debug)]
struct Declined(std::io::Error);

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the card was declined")
    }
}

impl std::error::Error for Declined {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// The error of a step that failed.
fn of<T: fmt::Debug>(failed: Result<T, OperationError>) -> String {
    match failed {
        Err(OperationError::Step { step, error }) => format!("{step}: {error}"),
        other => panic!("{other:?}"),
    }
}

on_every_store! {
    async fn steps_borrow_what_they_like_and_fail_with_any_error(lab: Lab) {
        // rule 12.1, and the issue's "natural Rust"
        let code = |wf: Workflow, card: Value| async move {
            let mut seen = Vec::new();
            for index in 0..2 {
                // Borrows the input, the loop's own variable and what was made between two awaits.
                let (card, so_far) = (&card, &seen);
                let text = || async move { ok(format!("{card} {index} {so_far:?}")) };
                let text = wf.step(format!("borrows {index}"), text).await?;
                seen.push(text);
            }
            let failed = [
                of(wf.step("text", || async { Err::<(), _>("plain text") }).await),
                of(wf.step("string", || async { Err::<(), _>(String::from("a string")) }).await),
                of(wf.step("own", || async { Err::<(), _>(Declined(std::io::Error::other("no money"))) }).await),
                of(wf.step("parse", || async { "x".parse::<u32>() }).await),
            ];
            Ok(json!({ "seen": seen, "failed": failed }))
        };
        let engine = lab.engine().workflow(RUN, code).workflows_kept(0).start().await.unwrap();
        let run = lab.start(RUN, json!(7)).await.unwrap();
        let seen = ["7 0 []", r#"7 1 ["7 0 []"]"#];
        let failed = [
            "text: plain text", "string: a string", "own: the card was declined: no money",
            "parse: invalid digit found in string",
        ];
        assert_eq!(lab.came_to(&run).await, json!({ "seen": seen, "failed": failed }));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_code_gets_every_error_of_a_step_and_may_go_on(lab: Lab) {
        // rules 5.2, 5.4 and 4.2
        let code = |wf: Workflow, _: Value| async move {
            let never = std::future::pending::<()>;
            let failed = [
                of(wf.step("error", || async { Err::<(), BoxError>("no".into()) }).await),
                of(wf.step("panic", || async { if true { panic!("boom {}", 1) } ok(()) }).await),
                of(wf.step("early panic", || { if true { panic!("early") } async { ok(()) } }).await),
                of(wf.step("slow", || async { never().await; ok(()) }).time_limit(millis(30)).await),
                of(wf.step("shapeless", || async { ok(HashMap::from([((1, 2), 3)])) }).await),
                of(wf.step("large", || async { ok("x".repeat(1 << 20)) }).await),
            ];
            wf.sleep(millis(1)).await?;
            Ok(json!(failed))
        };
        for kept in [0, 100] {
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            let failed = lab.came_to(&run).await;
            let failed: Vec<&str> = failed.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
            assert_eq!(failed[0], "error: no");
            assert!(failed[1].starts_with("panic: ") && failed[1].contains("boom 1"), "{failed:?}");
            assert!(failed[2].starts_with("early panic: ") && failed[2].contains("early"), "{failed:?}");
            assert!(failed[3].starts_with("slow: ") && failed[3].contains("30"), "{failed:?}");
            assert!(failed[4].contains("cannot be stored"), "{failed:?}");
            assert!(failed[5].contains("1048578 bytes") && failed[5].contains("1048576"), "{failed:?}");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn an_error_that_the_code_does_not_catch_fails_the_run(lab: Lab) {
        // rule 5.2
        let code = |wf: Workflow, how: Value| async move {
            match how.as_str() {
                Some("step") => wf.step("charge", || async { Err::<Value, _>("no money") }).await.map_err(Into::into),
                Some("own") => Err("the code says no".into()),
                _ => Ok(json!("never reached")),
            }
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let failed = async |how: &str| {
            let run = lab.start(RUN, json!(how)).await.unwrap();
            let error = lab.failed_of(&run).await;
            assert_eq!(lab.kinds(run.id()).await.last(), Some(&"failed"));
            error
        };
        assert_eq!(failed("step").await, r#"step "charge" failed: no money"#);
        assert_eq!(failed("own").await, "the code says no");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_result_of_the_run_that_cannot_be_stored_fails_it(lab: Lab) {
        // rule 4.2: it never loops
        const LARGE: Flow<u32, String> = Flow::new("large");
        let code = |wf: Workflow, size: u32| async move {
            wf.step("small", || async { ok(1) }).await?;
            Ok("x".repeat(size as usize))
        };
        const SHAPELESS: Flow<u32, HashMap<(u32, u32), u32>> = Flow::new("shapeless");
        let shapeless = |_: Workflow, n: u32| async move { Ok(HashMap::from([((n, n), n)])) };
        let engine = lab.engine().workflow(LARGE, code).workflow(SHAPELESS, shapeless).start().await.unwrap();
        let run = lab.start(LARGE, 1 << 20).await.unwrap();
        let error = lab.failed_of(&run).await;
        assert!(error.contains("cannot be stored") && error.contains("1048576"), "{error}");
        let run = lab.start(SHAPELESS, 1).await.unwrap();
        let error = match lab.result(&run).await {
            Err(abide::client::NotDone::Failed { error, .. }) => error,
            other => panic!("{other:?}"),
        };
        assert!(error.contains("the result cannot be stored"), "{error}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn tokens_are_of_one_step_of_one_run(lab: Lab) {
        // rule 1.2
        let code = |wf: Workflow, _: Value| async move {
            let token = |name: &str| wf.step_with(name, |attempt| async move { ok(attempt.token()) });
            let (a, b) = wf.all((token("same"), token("same"))).await;
            Ok(json!([a?, b?, token("same").await?]))
        };
        let engine = lab.engine().workflow(RUN, code).workflows_kept(0).start().await.unwrap();
        let mut tokens = Vec::new();
        for _ in 0..2 {
            let run = lab.start(RUN, json!(null)).await.unwrap();
            tokens.extend(lab.came_to(&run).await.as_array().unwrap().clone());
        }
        let mut unique: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), 6, "{unique:?}");
        engine.shutdown().await;
    }
}
