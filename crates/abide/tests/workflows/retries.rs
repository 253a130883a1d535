//! Steps that are tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use abide::history::HistoryEvent;
use abide::machine::Retry;
use abide::model::WaitKind;
use abide::testing::Kit;
use abide::time::{hours, millis, minutes, secs};
use abide::workflow::OperationError;
use abide::{BoxError, Flow, Signal, Status, Workflow};
use serde_json::{Value, json};

use crate::common::{Lab, Log};
use crate::workflows::recorded::{ok, operations};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");

/// The number and the token of each attempt.
type Seen = Log<(u32, String)>;

/// A step that fails until it was begun often enough.
fn flaky(
    seen: Seen,
    good: u32,
    retry: Retry,
) -> impl Fn(Workflow, Value) -> futures_util::future::BoxFuture<'static, Result<Value, BoxError>>
+ Send
+ Sync
+ Clone
+ 'static {
    move |wf: Workflow, _: Value| {
        let (seen, retry) = (seen.clone(), retry.clone());
        Box::pin(async move {
            let seen = &seen;
            let step = wf.step_with("flaky", |attempt| async move {
                seen.note((attempt.number(), attempt.token()));
                match attempt.number() {
                    number if number >= good => ok(number),
                    number => Err(format!("failure {number}").into()),
                }
            });
            match step.retry(retry).await {
                Ok(number) => Ok(json!(number)),
                Err(OperationError::Step { step, error }) => Ok(json!([step, error])),
                Err(other) => Err(other.into()),
            }
        })
    }
}

on_every_store! {
    async fn a_try_that_is_to_come_is_a_row_that_is_due_then(lab: Lab) {
        // rules 5.1 and 3: scheduled, and not a process
        let seen = Seen::new();
        let code = flaky(seen.clone(), 9, Retry::every(hours(1)));
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        let row = lab.until_status(run.id(), Status::Scheduled).await;
        let view = lab.describe(run.id()).await.unwrap().unwrap();
        let wait = view.wait.unwrap();
        assert_eq!(wait.kind, WaitKind::Timer);
        let events = lab.events(run.id()).await;
        let again = events.iter().find_map(|entry| match &entry.what {
            HistoryEvent::OperationRetried(again) => Some((again.clone(), entry.at)),
            _ => None,
        });
        let (again, at) = again.unwrap();
        assert_eq!((again.operation, again.name.as_str(), again.attempts), (1, "flaky", 1));
        assert_eq!(again.error, "failure 0");
        assert_eq!(Some(again.due_at), row.due_at);
        let delay = again.due_at.as_micros() - at.as_micros();
        assert!((3_590_000_000..=3_600_000_000).contains(&delay), "{delay}");
        assert_eq!(seen.len(), 1);
        engine.shutdown().await;
        lab.cancel(run.id(), "enough").force().await.unwrap();
    }
}

on_every_store! {
    async fn tries_are_counted_across_the_death_of_workers(lab: Lab) {
        // rules 1.2, 5.1 and 5.3
        let seen = Seen::new();
        let code = flaky(seen.clone(), 9, Retry::every(millis(400)).attempts(3));
        let dying = code.clone();
        let killable = lab.killable(move |engine| engine.name("w").lease(secs(600)).workflow(RUN, dying)).await;
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::Scheduled).await;
        killable.die().await;
        let engine = lab.engine().name("w").workflow(RUN, code).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(["flaky", "failure 2"]), "the last error is reported");
        let seen = seen.read();
        let numbers: Vec<u32> = seen.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert!(seen.iter().all(|(_, token)| *token == seen[0].1), "{seen:?}");
        let events = lab.events(run.id()).await;
        assert_eq!(operations(&events), [
            "+1 step flaky", "~1 step flaky 1 times: failure 0", "~1 step flaky 2 times: failure 1",
            "-1 step flaky ! failure 2",
        ]);
        let completed = events.iter().find_map(|entry| match &entry.what {
            HistoryEvent::OperationCompleted(completed) => completed.attempts,
            _ => None,
        });
        assert_eq!(completed, Some(3));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_that_comes_right_in_the_end_is_what_the_code_sees(lab: Lab) {
        // rule 5.1
        for (kept, delay) in [(0, millis(5)), (100, millis(5)), (100, millis(0))] {
            let seen = Seen::new();
            let code = flaky(seen.clone(), 3, Retry::every(delay).attempts(5));
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(3));
            assert_eq!(seen.len(), 4);
            engine.shutdown().await;
        }
    }
}

#[tokio::test]
async fn delays_grow_as_the_policy_says() {
    // rule 5.1
    let seen = Seen::new();
    let retry = Retry::exponential(minutes(1)).steady().attempts(4);
    let kit = Kit::builder().workflow(RUN, flaky(seen.clone(), 9, retry));
    let kit = kit.build().await.unwrap();
    let run = kit.start(RUN, json!(null)).await.unwrap();
    kit.settle().await;
    for (tries, delay) in [(1, minutes(1)), (2, minutes(2)), (3, minutes(4))] {
        assert_eq!(seen.len(), tries);
        let due = kit.get(run.id()).await.unwrap().unwrap().due_at.unwrap();
        assert_eq!(due, kit.now() + delay);
        kit.advance(delay - secs(1)).await;
        assert_eq!(seen.len(), tries);
        kit.advance(secs(1)).await;
    }
    kit.assert_done(&run, &json!(["flaky", "failure 3"])).await;
}

#[tokio::test]
async fn each_of_several_steps_is_tried_again_at_its_own_time_and_a_signal_hastens_none() {
    // rules 5.1 and 12.2
    for kept in [0, 100] {
        let tries: Arc<[AtomicU32; 2]> = Arc::default();
        let counts = tries.clone();
        let code = move |wf: Workflow, _: Value| {
            let tries = tries.clone();
            async move {
                let tries = &tries;
                let step = |index: usize, delay| {
                    let step = wf.step(format!("step {index}"), move || async move {
                        match tries[index].fetch_add(1, Ordering::SeqCst) {
                            2 => ok(index),
                            count => Err(format!("{count}").into()),
                        }
                    });
                    step.retry(Retry::every(delay))
                };
                let branches = (step(0, minutes(10)), step(1, minutes(3)), wf.signal(GO));
                let (a, b, go) = wf.all(branches).await;
                Ok(json!([a?, b?, go?]))
            }
        };
        let kit = Kit::builder().workflow(RUN, code).workflows_kept(kept);
        let kit = kit.build().await.unwrap();
        let run = kit.start(RUN, json!(null)).await.unwrap();
        let begun = kit.now();
        let seen = || [0, 1].map(|index| counts[index].load(Ordering::SeqCst));
        let due = async || kit.get(run.id()).await.unwrap().unwrap().due_at;
        kit.settle().await;
        assert_eq!((seen(), due().await), ([1, 1], Some(begun + minutes(3))));
        kit.advance(minutes(2)).await;
        kit.signal(run.id(), GO, &5).await.unwrap();
        kit.settle().await;
        assert_eq!((seen(), due().await), ([1, 1], Some(begun + minutes(3))));
        kit.advance(minutes(1)).await;
        assert_eq!((seen(), due().await), ([1, 2], Some(begun + minutes(6))));
        kit.advance(minutes(3)).await;
        assert_eq!((seen(), due().await), ([1, 3], Some(begun + minutes(10))));
        kit.advance(minutes(15)).await;
        assert_eq!(seen(), [3, 3]);
        kit.assert_done(&run, &json!([0, 1, 5])).await;
    }
}

on_every_store! {
    async fn the_time_limit_is_of_one_attempt(lab: Lab) {
        // rule 5.4
        let tries = Arc::new(AtomicU32::new(0));
        let code = move |wf: Workflow, _: Value| {
            let tries = tries.clone();
            async move {
                let tries = &tries;
                let slow = wf.step("slow", || async move {
                    if tries.fetch_add(1, Ordering::SeqCst) < 2 {
                        std::future::pending::<()>().await;
                    }
                    ok("quick".to_owned())
                });
                let slow = slow.time_limit(millis(50)).retry(Retry::every(millis(1)).attempts(3));
                Ok(json!(slow.await?))
            }
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!("quick"));
        let ops = operations(&lab.events(run.id()).await);
        assert_eq!(ops.len(), 4, "{ops:?}");
        assert!(ops[2].contains("2 times") && ops[2].contains("50"), "{ops:?}");
        engine.shutdown().await;
    }
}
