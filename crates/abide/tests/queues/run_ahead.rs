//! Steps that follow each other without going through the queue.

use abide::client::new_start;
use abide::testing::Kit;
use abide::time::{hours, millis};
use abide::{Abide, Job, done, next};
use serde_json::{Value, json};

use crate::common::{At, Gate, Lab, Log, Script};

/// Notes its name at every step, and goes on until there are none left; where its state requires it, it waits at the gate.
fn chain(log: &Log<String>, gate: &Gate) -> Script {
    let (log, gate) = (log.clone(), gate.clone());
    Script::waiting(move |_, ctx| {
        let (log, gate) = (log.clone(), gate.clone());
        Box::pin(async move {
            let left = ctx.state()["left"].as_u64().unwrap();
            log.note(ctx.state()["name"].as_str().unwrap().to_owned());
            if ctx.state()["gate"] == json!(left) {
                gate.pass().await;
            }
            ctx.state_mut()["left"] = json!(left - 1);
            if left == 1 {
                done(json!(null))
            } else {
                next(At::One)
            }
        })
    })
}

/// The state with which a chain begins.
fn steps(name: &str, left: u64, gate: Option<u64>) -> Value {
    json!({"name": name, "left": left, "gate": gate})
}

/// The names in order, with how often each came in a row.
fn rows(log: &[String]) -> Vec<(&str, usize)> {
    let rows = log.chunk_by(|a, b| a == b);
    rows.map(|row| (row[0].as_str(), row.len())).collect()
}

on_every_store! {
    async fn a_chain_of_steps_yields_to_more_urgent_work_at_once(lab: Lab) {
        // rule 4.3
        let (log, gate) = (Log::new(), Gate::closed());
        let engine = lab.engine().queue("default", 1).run_ahead(1_000, hours(1)).machine(chain(&log, &gate));
        let engine = engine.start().await.unwrap();
        let long = lab.start(Script::any(), steps("long", 50, Some(30))).await.unwrap();
        gate.reached_by(1).await;
        let equal = lab.start(Script::any(), steps("equal", 1, None)).await.unwrap();
        let urgent = lab.start(Script::any(), steps("urgent", 1, None)).priority(-1).await.unwrap();
        gate.open();
        for one in [long, urgent, equal] {
            lab.came_to(&one).await;
        }
        // The chain was interrupted for what is more urgent; and being interrupted, it goes to the end of the queue.
        let log = log.read();
        assert_eq!(rows(&log), [("long", 21), ("urgent", 1), ("equal", 1), ("long", 29)]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_chain_of_steps_is_not_interrupted_by_work_that_is_not_more_urgent(lab: Lab) {
        // rule 4.3
        const ELSEWHERE: Job<u32> = Job::new("elsewhere");
        let (log, gate) = (Log::new(), Gate::closed());
        let engine = lab.engine().queue("default", 1).run_ahead(1_000, hours(1)).machine(chain(&log, &gate));
        let engine = engine.start().await.unwrap();
        let long = lab.start(Script::any(), steps("long", 50, Some(30))).await.unwrap();
        gate.reached_by(1).await;
        let equal = lab.start(Script::any(), steps("equal", 1, None)).await.unwrap();
        // More urgent, but nothing this worker could do: it has no code for it.
        lab.start(ELSEWHERE, 1).priority(-9).await.unwrap();
        gate.open();
        for one in [long, equal] {
            lab.came_to(&one).await;
        }
        assert_eq!(rows(&log.read()), [("long", 50), ("equal", 1)]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_chain_of_steps_goes_through_the_queue_after_so_many(lab: Lab) {
        // rule 4.3
        let (log, gate) = (Log::new(), Gate::closed());
        let starts = [steps("a", 20, None), steps("b", 1, None)].map(|state| new_start(Script::any(), state));
        lab.start_all(starts).await.unwrap();
        let engine = lab.engine().queue("default", 1).run_ahead(5, hours(1)).machine(chain(&log, &gate));
        let engine = engine.start().await.unwrap();
        assert_eq!(rows(&log.grown_to(21).await), [("a", 6), ("b", 1), ("a", 14)]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_chain_of_steps_goes_through_the_queue_after_so_long(lab: Lab) {
        // rule 4.3
        let log = Log::new();
        let noted = log.clone();
        let starts = ["a", "b"].map(|name| new_start(Script::any(), json!(name)));
        lab.start_all(starts).await.unwrap();
        let engine = lab.engine().queue("default", 1).run_ahead(1_000, millis(10));
        let engine = engine.machine(Script::waiting(move |at, ctx| {
            let log = noted.clone();
            Box::pin(async move {
                log.note(ctx.state().as_str().unwrap().to_owned());
                tokio::time::sleep(millis(15)).await;
                if at == At::One { next(At::Two) } else { done(json!(null)) }
            })
        }));
        let engine = engine.start().await.unwrap();
        assert_eq!(log.grown_to(4).await, ["a", "b", "a", "b"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn each_step_of_a_chain_is_committed_before_the_next_begins(lab: Lab) {
        // rules 1.1, 4.3
        let reader: Abide = lab.again().await;
        let engine = lab.engine().run_ahead(1_000, hours(1)).machine(Script::waiting(move |_, ctx| {
            let reader = reader.clone();
            Box::pin(async move {
                let n = ctx.state().as_u64().unwrap();
                let row = reader.get(ctx.id()).await.unwrap().unwrap();
                assert_eq!((row.state.to::<u64>().unwrap(), u64::from(row.step_seq)), (n, n + 1));
                assert_eq!(reader.history(ctx.id()).await.unwrap().len() as u64, n + 1);
                *ctx.state_mut() = json!(n + 1);
                if n == 20 { done(json!(n)) } else { next(At::One) }
            })
        }));
        let engine = engine.start().await.unwrap();
        let long = lab.start(Script::any(), json!(0)).await.unwrap();
        assert_eq!(lab.came_to(&long).await, json!(20));
        assert_eq!(engine.stats().claimed, 1, "it was claimed once for all its steps");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_chain_loses_no_step_and_repeats_one() {
    // rules 1.1, 1.2, 4.3
    let log = Log::new();
    let noted = log.clone();
    let kit = Kit::builder().machine(Script::new(move |at, ctx| {
        noted.note((at, ctx.state().clone(), ctx.attempt()));
        *ctx.state_mut() = json!(ctx.state().as_u64().unwrap() + 1);
        match at {
            At::One => next(At::Two),
            At::Two => next(At::Three),
            At::Three => done(ctx.state().clone()),
        }
    }));
    let kit = kit.build().await.unwrap();
    kit.kill_worker_before_commit(At::Two);
    let order = kit.start(Script::any(), json!(0)).await.unwrap();
    kit.settle().await;
    kit.restart_worker().await.unwrap();
    kit.kill_worker_after_commit(At::Two);
    kit.settle().await;
    kit.restart_worker().await.unwrap();
    kit.settle().await;
    kit.assert_done(&order, &json!(3)).await;
    let ran = [
        (At::One, json!(0), 0),
        (At::Two, json!(1), 0),
        (At::Two, json!(1), 1),
        (At::Three, json!(2), 1),
    ];
    assert_eq!(log.read(), ran);
}
