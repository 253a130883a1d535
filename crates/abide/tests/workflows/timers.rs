//! Timers of workflows.

use std::time::Instant;

use abide::client::new_start;
use abide::model::WaitKind;
use abide::prelude::*;
use abide::testing::Kit;
use abide::time::Timestamp;
use abide::workflow::OneOf;
use serde_json::{Value, json};

use crate::common::{Lab, Log};

const SLEEPER: Flow<u64, u64> = Flow::new("sleeper");
const MANY: Flow<(), Value> = Flow::new("many");

async fn sleep(wf: Workflow, ms: u64) -> Result<u64, BoxError> {
    wf.sleep(millis(ms)).await?;
    Ok(ms)
}

on_every_store! {
    async fn a_sleep_is_a_row_that_is_due_later(lab: Lab) {
        // rules 3.1, 6.5 and 13.1
        let engine = lab.engine().workflow(SLEEPER, sleep).start().await.unwrap();
        let long = lab.start(SLEEPER, 3_600_000).await.unwrap();
        let row = lab.until_status(long.id(), Status::Scheduled).await;
        assert_eq!(row.wait_kind(), Some(WaitKind::Timer));
        let view = lab.describe(long.id()).await.unwrap().unwrap();
        assert_eq!((view.liveness.name(), view.wait.unwrap().deadline), ("scheduled", row.due_at));
        for _ in 0..3 {
            let since = Instant::now();
            let short = lab.start(SLEEPER, 100).await.unwrap();
            assert_eq!(lab.came_to(&short).await, 100);
            let took = since.elapsed();
            assert!(took >= millis(100) && took < millis(900), "{took:?}");
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_moment_that_has_passed_is_not_waited_for(lab: Lab) {
        // rules 6.5 and 12.1
        let code = |wf: Workflow, _: ()| async move {
            let now = wf.now();
            wf.sleep_until(Timestamp::default()).await?;
            wf.sleep_until(now).await?;
            wf.sleep(millis(0)).await?;
            for _ in 0..100 {
                wf.sleep(millis(0)).await?;
            }
            Ok(json!(null))
        };
        let engine = lab.engine().workflow(MANY, code).start().await.unwrap();
        let run = lab.start(MANY, ()).await.unwrap();
        lab.came_to(&run).await;
        assert!(lab.now(run.id()).await.step_seq < 10);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn timers_at_once_end_in_their_order_and_others_begin_meanwhile(lab: Lab) {
        // rules 6.5 and 12.1
        let code = |wf: Workflow, _: ()| async move {
            let order = wf.state(Vec::new());
            let sleeps = [40, 10, 30, 20, 10, 0, 50].into_iter().zip(0..).map(|(ms, n): (u64, u32)| {
                let (wf, order) = (wf.clone(), order.clone());
                async move {
                    wf.sleep(millis(ms)).await?;
                    order.update(|order| order.push(n));
                    wf.sleep(millis(200 - 2 * ms)).await?;
                    order.update(|order| order.push(n));
                    Ok::<_, BoxError>(())
                }
            });
            for one in wf.all(sleeps.collect::<Vec<_>>()).await {
                one?;
            }
            Ok(json!(order.get()))
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(MANY, code).start().await.unwrap();
            let run = lab.start(MANY, ()).await.unwrap();
            let order = lab.came_to(&run).await;
            let order: Vec<u32> = serde_json::from_value(order).unwrap();
            assert_eq!(order[..7], [5, 1, 4, 3, 2, 0, 6]);
            assert_eq!(order.len(), 14);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn five_hundred_sleepers_wake_in_time(lab: Lab) {
        // rules 6.2 and 6.5
        let engine = lab.engine().workflow(SLEEPER, sleep).start().await.unwrap();
        let since = Instant::now();
        let starts = (0..500).map(|n| new_start(SLEEPER, 200 + n % 100));
        let started = lab.start_all(starts).await.unwrap();
        let ids: Vec<_> = started.into_iter().map(|one| one.unwrap().id()).collect();
        lab.all_done(&ids).await;
        assert!(since.elapsed() < secs(15), "{:?}", since.elapsed());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_sleep_goes_on_when_the_engine_is_gone(lab: Lab) {
        // rules 1.1 and 6.5: it is due when it was due, not anew.
        let begun = Log::new();
        let noted = begun.clone();
        let code = move |wf: Workflow, _: ()| {
            let begun = noted.clone();
            async move {
                wf.step("before", || { let begun = begun.clone(); async move { begun.note(()); Ok::<_, BoxError>(()) } }).await?;
                wf.sleep(millis(400)).await?;
                Ok(json!("up"))
            }
        };
        let engine = lab.engine().workflow(MANY, code.clone()).start().await.unwrap();
        let run = lab.start(MANY, ()).await.unwrap();
        let due = lab.until_status(run.id(), Status::Scheduled).await.due_at;
        engine.shutdown().await;
        let engine = lab.engine().workflow(MANY, code.clone()).start().await.unwrap();
        assert_eq!(lab.now(run.id()).await.due_at, due);
        engine.shutdown().await;
        tokio::time::sleep(millis(450)).await;
        assert_eq!(lab.now(run.id()).await.status, Status::Scheduled);
        let since = Instant::now();
        let engine = lab.engine().workflow(MANY, code).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!("up"));
        assert!(since.elapsed() < millis(900), "{:?}", since.elapsed());
        assert_eq!(begun.len(), 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_timer_ends_while_a_step_runs(lab: Lab) {
        // rules 6.5 and 12.1: the step that lost is dropped.
        let code = |wf: Workflow, _: ()| async move {
            let step = wf.step("long", || async { tokio::time::sleep(secs(30)).await; Ok::<_, BoxError>(()) });
            Ok(match wf.select((step, wf.sleep(millis(50)))).await {
                OneOf::First(_) => json!("step"),
                OneOf::Second(slept) => { slept?; json!("slept") }
            })
        };
        let engine = lab.engine().workflow(MANY, code).start().await.unwrap();
        let since = Instant::now();
        let run = lab.start(MANY, ()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!("slept"));
        assert!(since.elapsed() < secs(2), "{:?}", since.elapsed());
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_loop_of_a_year_of_days() {
    // rules 1.1, 6.5 and 12.1
    let code = |wf: Workflow, _: ()| async move {
        let begun = wf.now();
        for _ in 0..365 {
            wf.sleep(days(1)).await?;
        }
        Ok(json!(wf.now().since(begun).as_secs()))
    };
    let kit = Kit::builder()
        .workflow(MANY, code)
        .workflows_kept(0)
        .build()
        .await
        .unwrap();
    let run = kit.start(MANY, ()).await.unwrap();
    kit.advance(days(200)).await;
    kit.restart_worker().await.unwrap();
    kit.advance(days(166)).await;
    kit.assert_done(&run, &json!(365 * 86_400)).await;
}
