//! The test kit: time that is moved by hand, workers that die on request, and assertions that explain.

use std::panic::AssertUnwindSafe;

use crate::common::{At, Gate, Log, Script};
use abide::client::{Handle, new_start};
use abide::machine::{Retry, next_in};
use abide::testing::Kit;
use abide::time::{days, hours, minutes, secs};
use abide::{BoxError, Flow, Job, Status, Workflow, done, next, stop};
use futures_util::FutureExt;
use serde_json::{Value, json};

async fn kit(script: Script) -> Kit {
    Kit::builder().machine(script).build().await.unwrap()
}

async fn start(kit: &Kit, state: Value) -> Handle<Value> {
    kit.start(Script::any(), state).await.unwrap()
}

#[tokio::test]
async fn settle_runs_all_that_can_run_and_leaves_what_waits() {
    let kit = kit(Script::new(|at, ctx| match at {
        At::One if ctx.state() == "sleeps" => ctx.sleep(secs(1)).then(At::Two),
        At::One => next(At::Two),
        At::Two => next(At::Three),
        At::Three => done(json!(null)),
    }))
    .await;
    let starts = (0..500).map(|_| new_start(Script::any(), json!("runs")));
    let runs = kit.start_all(starts).await.unwrap();
    let sleeps = start(&kit, json!("sleeps")).await;
    kit.settle().await;
    for one in runs {
        let row = kit.get(one.unwrap().id()).await.unwrap().unwrap();
        assert_eq!(
            (row.status, row.finished_at),
            (Status::Done, Some(kit.now()))
        );
    }
    kit.assert_status(&sleeps, Status::Scheduled).await;
    kit.assert_at(&sleeps, At::Two).await;
}

#[tokio::test]
async fn settle_waits_no_longer_than_a_moment_for_a_step_that_waits_outside() {
    let gate = Gate::closed();
    let kit = kit(Script::gated(&gate, move |_, _, gate| {
        Box::pin(async move {
            gate.pass().await;
            done(json!("went on"))
        })
    }))
    .await;
    let order = start(&kit, json!(null)).await;
    kit.settle().await;
    kit.assert_status(&order, Status::Executing).await;
    gate.open();
    kit.settle().await;
    kit.assert_done(&order, &json!("went on")).await;
}

#[tokio::test]
async fn time_begins_in_2030_and_stands_still() {
    let kit = kit(Script::any()).await;
    assert_eq!(kit.now().to_string(), "2030-01-01T00:00:00Z");
    kit.advance(days(400)).await;
    assert_eq!(kit.now().to_string(), "2031-02-05T00:00:00Z");
}

#[tokio::test]
async fn advance_stops_at_every_moment_at_which_something_is_due() {
    // rule 6.5
    let kit = kit(Script::new(|at, ctx| {
        let left = ctx.state().as_u64().unwrap();
        *ctx.state_mut() = json!(left.saturating_sub(1));
        match at {
            _ if left == 0 => done(json!("awake")),
            At::One => ctx.sleep(hours(1)).then(At::One),
            _ => next_in(minutes(90), At::Two),
        }
    }))
    .await;
    let begun = kit.now();
    let hourly = start(&kit, json!(500)).await;
    let other = kit.start(Script::any(), json!(300)).step(At::Two);
    let other = other.await.unwrap();
    kit.advance(hours(499)).await;
    kit.assert_at(&hourly, At::One).await;
    kit.assert_done(&other, &json!("awake")).await;
    let ended = other.get().await.unwrap().unwrap().finished_at;
    assert_eq!(ended, Some(begun + hours(450)), "to the moment");
    kit.advance(hours(1)).await;
    kit.assert_done(&hourly, &json!("awake")).await;
    assert_eq!(kit.now(), begun + hours(500));
}

#[tokio::test]
async fn what_falls_due_meanwhile_is_run_in_its_order() {
    let log = Log::new();
    let noted = log.clone();
    let kit = kit(Script::new(move |at, ctx| {
        noted.note(ctx.state().as_str().unwrap().to_owned());
        match at {
            At::One => next_in(minutes(10), At::Two),
            _ => done(json!(null)),
        }
    }))
    .await;
    for (name, delay) in [("c", 25), ("a", 5), ("b", 12)] {
        let start = kit.start(Script::any(), json!(name));
        start.delay(minutes(delay)).await.unwrap();
    }
    kit.advance(hours(1)).await;
    assert_eq!(log.read(), ["a", "b", "a", "b", "c", "c"]);
}

/// Notes each step with its attempt; goes from the first to the third.
fn noting(log: &Log<(At, u32)>) -> Script {
    let log = log.clone();
    Script::new(move |at, ctx| {
        log.note((at, ctx.attempt()));
        match at {
            At::One => next(At::Two),
            At::Two => next(At::Three),
            At::Three => done(json!(null)),
        }
    })
}

#[tokio::test]
async fn a_worker_that_dies_before_the_commit_runs_the_step_again() {
    // rules 1.1, 5.3
    let log = Log::new();
    let kit = kit(noting(&log)).await;
    kit.kill_worker_before_commit(At::Two);
    let order = start(&kit, json!(null)).await;
    kit.settle().await;
    assert!(kit.worker_is_dead().await);
    kit.assert_status(&order, Status::Executing).await;
    kit.assert_at(&order, At::Two).await;
    // While it is dead nothing happens, whatever is requested.
    kit.advance(days(1)).await;
    start(&kit, json!(null)).await;
    kit.settle().await;
    assert_eq!(log.read(), [(At::One, 0), (At::Two, 0)]);
    kit.restart_worker().await.unwrap();
    assert!(!kit.worker_is_dead().await);
    kit.settle().await;
    kit.assert_done(&order, &json!(null)).await;
    assert!(log.read().contains(&(At::Two, 1)), "{:?}", log.read());
}

#[tokio::test]
async fn a_worker_that_dies_after_the_commit_does_not_run_the_step_again() {
    // rules 1.1, 5.3
    let log = Log::new();
    let kit = kit(noting(&log)).await;
    kit.kill_worker_after_commit(At::Two);
    let order = start(&kit, json!(null)).await;
    kit.settle().await;
    assert!(kit.worker_is_dead().await);
    kit.assert_at(&order, At::Three).await;
    kit.restart_worker().await.unwrap();
    kit.settle().await;
    kit.assert_done(&order, &json!(null)).await;
    // The claim had been kept for the third step, so that counts as begun.
    assert_eq!(log.read(), [(At::One, 0), (At::Two, 0), (At::Three, 1)]);
}

#[tokio::test]
async fn a_worker_dies_once_for_each_call_that_kills_it() {
    let log = Log::new();
    let kit = kit(noting(&log)).await;
    kit.kill_worker_before_commit(At::One);
    kit.kill_worker_before_commit(At::One);
    let order = start(&kit, json!(null)).await;
    for _ in 0..2 {
        kit.settle().await;
        assert!(kit.worker_is_dead().await);
        kit.restart_worker().await.unwrap();
    }
    // rule 5.6: a step that killed two workers waits before it runs again.
    kit.settle().await;
    kit.assert_status(&order, Status::Scheduled).await;
    kit.advance(secs(5)).await;
    assert!(!kit.worker_is_dead().await);
    kit.assert_done(&order, &json!(null)).await;
    assert_eq!(log.read()[..3], [(At::One, 0), (At::One, 1), (At::One, 2)]);
}

#[tokio::test]
async fn a_step_that_kills_every_worker_fails_its_instance() {
    // rule 5.7: the error handler is not called.
    let log = Log::new();
    let kit = kit(noting(&log)).await;
    for _ in 0..5 {
        kit.kill_worker_before_commit(At::Two);
    }
    let order = start(&kit, json!(null)).await;
    for _ in 0..5 {
        kit.advance(hours(1)).await;
        assert!(kit.worker_is_dead().await);
        kit.restart_worker().await.unwrap();
    }
    kit.settle().await;
    kit.assert_failed(&order, "the worker died 5 times in step two")
        .await;
    assert_eq!(log.len(), 6);
}

#[tokio::test]
async fn a_long_step_does_not_die_with_one_that_kills_its_workers() {
    // rule 5.6: they died together until both had failed.
    let gate = Gate::closed();
    let kit = kit(Script::gated(&gate, move |at, _, gate| {
        Box::pin(async move {
            if at == At::One {
                gate.pass().await;
            }
            done(json!("went on"))
        })
    }))
    .await;
    for _ in 0..5 {
        kit.kill_worker_before_commit(At::Two);
    }
    let deadly = kit.start(Script::any(), json!(null)).step(At::Two);
    let deadly = deadly.await.unwrap();
    let long = start(&kit, json!(null)).await;
    for _ in 0..2 {
        kit.settle().await;
        assert!(kit.worker_is_dead().await);
        kit.restart_worker().await.unwrap();
    }
    // From now on they are held one at a time; sooner or later it is the long one's turn.
    for _ in 0..4 {
        kit.advance(secs(6)).await;
        if kit.worker_is_dead().await {
            kit.restart_worker().await.unwrap();
        }
    }
    let row = long.get().await.unwrap().unwrap();
    assert_eq!((row.status, row.deaths), (Status::Executing, 2));
    gate.open();
    kit.settle().await;
    kit.assert_done(&long, &json!("went on")).await;
    for _ in 0..5 {
        kit.advance(minutes(10)).await;
        if kit.worker_is_dead().await {
            kit.restart_worker().await.unwrap();
        }
    }
    kit.assert_failed(&deadly, "the worker died 5 times in step two")
        .await;
}

const STUBBORN: Flow<(), ()> = Flow::new("stubborn").max_deaths(2);

/// Its one step fails for ever.
async fn stubborn(wf: Workflow, (): ()) -> Result<(), BoxError> {
    let knock = wf.step("knock", || async {
        Err::<(), BoxError>("no answer".into())
    });
    knock.retry(Retry::every(secs(1))).await?;
    Ok(())
}

#[tokio::test]
async fn a_workflow_that_tries_for_ever_keeps_a_short_history() {
    // rules 12.1 and 16.1: also when its worker dies, and the history is all that is known.
    let kit = Kit::builder()
        .workflow(STUBBORN, stubborn)
        .build()
        .await
        .unwrap();
    let run = kit.start(STUBBORN, ()).await.unwrap();
    kit.advance(minutes(1)).await;
    kit.restart_worker().await.unwrap();
    kit.advance(minutes(1)).await;
    let history = kit.history(run.id()).await.unwrap();
    assert!(history.len() < 40, "{}", history.len());
    let mut folded = history.iter().filter_map(|entry| entry.what.folded());
    let folded = folded.next_back().unwrap();
    assert_eq!(folded.last_error.as_deref(), Some("no answer"));
    assert!(folded.last >= 119, "{folded:?}");
    let page = kit.history_page(run.id(), 0, 7).await.unwrap();
    assert_eq!((page.items.len(), page.next), (7, Some(7)));
}

#[tokio::test]
async fn a_worker_that_lives_can_be_restarted_too() {
    let log = Log::new();
    let kit = kit(noting(&log)).await;
    kit.restart_worker().await.unwrap();
    let order = start(&kit, json!(null)).await;
    kit.settle().await;
    kit.assert_done(&order, &json!(null)).await;
    assert_eq!(log.len(), 3);
}

/// The message of an assertion that fails.
async fn message_of(assertion: impl Future<Output = ()>) -> String {
    let failed = AssertUnwindSafe(assertion).catch_unwind().await;
    let payload = failed.expect_err("the assertion should have failed");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
    })
    .unwrap()
}

const ELSEWHERE: Job<u32, u32> = Job::new("elsewhere").queue("far");

#[tokio::test]
async fn an_assertion_that_fails_says_what_the_instance_waits_for() {
    let kit = kit(Script::new(|at, ctx| match at {
        At::One if ctx.state() == "sleeps" => ctx.sleep(hours(2)).then(At::Two),
        At::One if ctx.state() == "fails" => stop("no tea"),
        At::One if ctx.state() == "ends" => done(json!("tea")),
        At::One => ctx
            .spawn([new_start(ELSEWHERE, 1), new_start(ELSEWHERE, 2)])
            .then(At::Two),
        _ => done(json!(null)),
    }))
    .await;
    let sleeps = kit.start(Script::any(), json!("sleeps")).key("order:7");
    let sleeps = sleeps.await.unwrap();
    let (fails, ends) = (
        start(&kit, json!("fails")).await,
        start(&kit, json!("ends")).await,
    );
    let spawns = start(&kit, json!("spawns")).await;
    let elsewhere = kit.start(ELSEWHERE, 3).await.unwrap();
    kit.settle().await;
    let null = json!(null);
    for (message, parts) in [
        (
            message_of(kit.assert_done(&sleeps, &null)).await,
            &[
                "expected it to be done",
                "(order:7) of script version 1 is scheduled",
                "step two",
                "due at 2030-01-01T02:00:00Z, in 7200s",
            ][..],
        ),
        (
            message_of(kit.assert_done(&fails, &null)).await,
            &["is failed: in step one, of: no tea"],
        ),
        (
            message_of(kit.assert_done(&ends, &null)).await,
            &["its result is \"tea\""],
        ),
        (
            message_of(kit.assert_failed(&ends, "x")).await,
            &["expected it to be failed", "is done: its result is \"tea\""],
        ),
        (
            message_of(kit.assert_failed(&fails, "coffee")).await,
            &["an error with \"coffee\" in it", "no tea"],
        ),
        (
            message_of(kit.assert_at(&ends, At::Two)).await,
            &["expected it to be at step two", "is done"],
        ),
        (
            message_of(kit.assert_at(&sleeps, At::Three)).await,
            &["at step three", "step two is due at"],
        ),
        (
            message_of(kit.assert_done(&spawns, &null)).await,
            &[
                "awaiting_children",
                "step two waits for its children, 2 of which have not ended",
            ],
        ),
        (
            message_of(kit.assert_done(&elsewhere, &1)).await,
            &[
                "is runnable",
                "a worker that has code for it and serves queue far; there is none",
            ],
        ),
    ] {
        assert!(
            parts.iter().all(|part| message.contains(part)),
            "{message:?} should contain {parts:?}"
        );
    }
}

#[tokio::test]
async fn an_assertion_tells_of_partitions_dead_workers_and_tests_that_have_not_settled() {
    let kit = kit(Script::new(|_, _| done(json!(null)))).await;
    kit.kill_worker_before_commit(At::One);
    let first = kit
        .start(Script::any(), json!(1))
        .partition("p")
        .await
        .unwrap();
    let second = kit
        .start(Script::any(), json!(2))
        .partition("p")
        .await
        .unwrap();
    kit.settle().await;
    let null = json!(null);
    let message = message_of(kit.assert_done(&first, &null)).await;
    assert!(
        message.contains("a worker runs step one, or has died while it did"),
        "{message}"
    );
    let message = message_of(kit.assert_done(&second, &null)).await;
    assert!(
        message.contains("step one waits for its turn in its partition"),
        "{message}"
    );
    let third = start(&kit, json!(3)).await;
    let message = message_of(kit.assert_done(&third, &null)).await;
    assert!(
        message.contains("waits for a worker to be free; has the test settled?"),
        "{message}"
    );
}
