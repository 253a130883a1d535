//! The outcomes that a step may return, and their effects.

use abide::machine::{next_in, retry_in};
use abide::model::{Cause, WaitKind};
use abide::testing::Kit;
use abide::time::{days, hours, millis};
use abide::{Context, Machine, Outcome, Status, Step};
use abide::{done, next, stop};
use serde_json::{Value, json};

use crate::common::{At, Gate, Lab, Log, Script};

on_every_store! {
    async fn next_goes_on_with_the_state_as_the_step_left_it(lab: Lab) {
        // rules 1.1, 16.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => {
                ctx.state_mut()["paid"] = json!(100);
                next(At::Two)
            }
            At::Two => done(ctx.state().clone()),
            At::Three => stop("never reached"),
        }));
        let engine = engine.start().await.unwrap();
        let order = lab.start(Script::any(), json!({"item": "kettle"})).await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!({"item": "kettle", "paid": 100}));
        assert_eq!(lab.kinds(order.id()).await, ["started", "step_completed", "step_completed", "done"]);
        assert_eq!(lab.committed(order.id()).await, [("one".into(), 1), ("two".into(), 2)]);
        let row = lab.now(order.id()).await;
        assert_eq!((row.status, row.state.to::<Value>().unwrap()["paid"].clone()), (Status::Done, json!(100)));
        assert!(row.finished_at.is_some() && row.due_at.is_none() && row.worker.is_none());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn next_in_is_scheduled_until_its_time(lab: Lab) {
        // rules 3.1, 6.5
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => next_in(millis(ctx.state().as_u64().unwrap()), At::Two),
            _ => done(json!(ctx.cause() == Cause::Next && ctx.attempt() == 0 && !ctx.timed_out())),
        }));
        let engine = engine.start().await.unwrap();
        let later = lab.start(Script::any(), json!(3_600_000)).await.unwrap();
        let row = lab.until_status(later.id(), Status::Scheduled).await;
        assert_eq!((row.step.as_str(), row.step_seq, row.wait_kind()), ("two", 2, None));
        assert_eq!(row.due_at.unwrap().since(row.updated_at), hours(1));
        let soon = lab.start(Script::any(), json!(30)).await.unwrap();
        assert_eq!(lab.came_to(&soon).await, json!(true));
        let row = lab.now(soon.id()).await;
        assert!(row.finished_at.unwrap().since(row.created_at) >= millis(30));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn retry_runs_the_same_step_again_one_attempt_on(lab: Lab) {
        // rule 5.1: as often as the step requests, with the state it left.
        let engine = lab.engine().machine(Script::new(|_, ctx| {
            let seen = ctx.state().as_u64().unwrap();
            assert_eq!(u64::from(ctx.attempt()), seen);
            *ctx.state_mut() = json!(seen + 1);
            if seen < 3 { retry_in(millis(seen)) } else { done(json!(seen)) }
        }));
        let engine = engine.start().await.unwrap();
        let order = lab.start(Script::any(), json!(0)).await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(3));
        let again = ["step_completed", "retried"];
        let kinds = [&["started"][..], &again, &again, &again, &["step_completed", "done"]].concat();
        assert_eq!(lab.kinds(order.id()).await, kinds);
        assert_eq!(lab.now(order.id()).await.step_seq, 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn sleep_waits_for_nothing_but_time(lab: Lab) {
        // rules 3.1, 16.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.sleep(millis(ctx.state().as_u64().unwrap())).then(At::Two),
            _ => done(json!(ctx.timed_out() && ctx.cause() == Cause::Timeout)),
        }));
        let engine = engine.start().await.unwrap();
        let long = lab.start(Script::any(), json!(3_600_000)).await.unwrap();
        let row = lab.until_status(long.id(), Status::Scheduled).await;
        assert_eq!((row.step.as_str(), row.wait_kind()), ("two", Some(WaitKind::Timer)));
        assert_eq!(row.due_at.unwrap().since(row.wait_since().unwrap()), hours(1));
        let short = lab.start(Script::any(), json!(20)).await.unwrap();
        assert_eq!(lab.came_to(&short).await, json!(true));
        let kinds = ["started", "step_completed", "wait_opened", "timed_out", "step_completed", "done"];
        assert_eq!(lab.kinds(short.id()).await, kinds);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn stop_ends_as_failed_for_that_reason(lab: Lab) {
        // rules 4.1, 16.1
        let engine = lab.engine().machine(Script::new(|_, _| stop("the kettle is sold out")));
        let engine = engine.start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        assert_eq!(lab.failed_of(&order).await, "the kettle is sold out");
        assert_eq!(lab.kinds(order.id()).await, ["started", "step_completed", "failed"]);
        let row = lab.now(order.id()).await;
        assert_eq!((row.status, row.result), (Status::Failed, None));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_instance_is_runnable_then_executing_then_done(lab: Lab) {
        // rules 2.1, 3.1
        let gate = Gate::closed();
        let inside = gate.clone();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let row = lab.now(order.id()).await;
        assert_eq!((row.status, row.worker, row.attempt), (Status::Runnable, None, 0));
        let engine = lab.engine().machine(Script::waiting(move |_, ctx| {
            let gate = inside.clone();
            Box::pin(async move {
                gate.pass().await;
                done(json!(ctx.key().unwrap().as_str()))
            })
        }));
        let engine = engine.start().await.unwrap();
        gate.reached_by(1).await;
        let row = lab.now(order.id()).await;
        assert!(row.status == Status::Executing && row.worker.is_some());
        gate.open();
        assert_eq!(lab.came_to(&order).await, json!("order:1"));
        engine.shutdown().await;
    }
}

/// Counts its steps, and keeps no history.
struct Quiet;

#[derive(Step)]
enum Only {
    Step,
}

impl Machine for Quiet {
    const NAME: &'static str = "quiet";
    const HISTORY: bool = false;
    type Step = Only;
    type State = u32;
    type Output = u32;

    async fn step(&self, _: Only, ctx: &mut Context<Self>) -> Outcome<Self> {
        *ctx.state_mut() += 1;
        match ctx.state() {
            1 => next(Only::Step),
            steps => done(*steps),
        }
    }
}

on_every_store! {
    async fn a_machine_may_switch_its_history_off(lab: Lab) {
        // rule 16.1
        let engine = lab.engine().machine(Quiet).start().await.unwrap();
        let quiet = lab.start(Quiet, 0).await.unwrap();
        assert_eq!(lab.came_to(&quiet).await, 2);
        assert_eq!(lab.kinds(quiet.id()).await, [""; 0]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_token_is_the_same_for_a_step_that_runs_again_and_for_no_other(lab: Lab) {
        // rule 1.2
        let tokens = Log::new();
        let note = tokens.clone();
        let engine = lab.engine().machine(Script::new(move |at, ctx| {
            note.note((ctx.id(), ctx.token()));
            match (at, ctx.attempt()) {
                (At::One, 0) => retry_in(millis(1)),
                (At::One, _) => next(At::Two),
                (At::Two, _) => ctx.sleep(millis(1)).then(At::Two),
                (At::Three, _) => done(json!(null)),
            }
        }));
        let engine = engine.start().await.unwrap();
        let (a, b) = (lab.start(Script::any(), json!(1)).await, lab.start(Script::any(), json!(2)).await);
        let seen = tokens.grown_to(12).await;
        let of = |id| seen.iter().filter(|(of, _)| *of == id).map(|(_, token)| token.clone()).collect::<Vec<_>>();
        let (a, b) = (of(a.unwrap().id()), of(b.unwrap().id()));
        assert!(a[0] == a[1] && b[0] == b[1], "the step that ran again: {a:?}, {b:?}");
        let mut all: Vec<_> = a[1..].iter().chain(&b[1..]).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), a.len() + b.len() - 2, "different steps: {a:?}, {b:?}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_token_survives_the_death_of_the_worker() {
    // rules 1.2, 5.3
    let tokens = Log::new();
    let note = tokens.clone();
    let kit = Kit::builder().machine(Script::new(move |at, ctx| {
        note.note((ctx.token(), ctx.attempt()));
        match at {
            At::One => next(At::Two),
            _ => done(json!(null)),
        }
    }));
    let kit = kit.build().await.unwrap();
    kit.kill_worker_before_commit(At::Two);
    let order = kit.start(Script::any(), json!(null)).await.unwrap();
    kit.settle().await;
    kit.restart_worker().await.unwrap();
    kit.settle().await;
    kit.assert_done(&order, &json!(null)).await;
    let seen = tokens.read();
    assert_eq!(
        seen.iter().map(|(_, attempt)| *attempt).collect::<Vec<_>>(),
        [0, 0, 1]
    );
    assert!(seen[1].0 == seen[2].0 && seen[0].0 != seen[1].0, "{seen:?}");
}

#[tokio::test]
async fn a_step_may_sleep_for_years() {
    let kit = Kit::builder().machine(Script::new(|at, ctx| match at {
        At::One => ctx.sleep(days(3_650)).then(At::Two),
        _ => done(json!(null)),
    }));
    let kit = kit.build().await.unwrap();
    let order = kit.start(Script::any(), json!(null)).await.unwrap();
    kit.advance(days(3_649)).await;
    kit.assert_at(&order, At::Two).await;
    kit.advance(days(1)).await;
    kit.assert_done(&order, &json!(null)).await;
}
