//! Code that changes under running workflows.

use abide::{Flow, Signal, Status, Workflow};
use serde_json::{Value, json};

use crate::common::Lab;
use crate::workflows::recorded::{Code, blocked, ok, operations};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");

/// The code before the change.
const OLD: Code = |wf, _| {
    Box::pin(async move {
        let a = wf.step("a", || async { ok("a".to_owned()) }).await?;
        wf.signal(GO).await?;
        let b = wf.step("b", || async { ok("b".to_owned()) }).await?;
        wf.signal(GO).await?;
        Ok(json!([a, b]))
    })
};

/// A change before anything else, and one later on.
const NEW: Code = |wf, _| {
    Box::pin(async move {
        let mut all = Vec::new();
        if wf.version("greet", 0..=1) >= 1 {
            all.push(
                wf.step("greet", || async { ok("hello".to_owned()) })
                    .await?,
            );
        }
        all.push(wf.step("a", || async { ok("a".to_owned()) }).await?);
        wf.signal(GO).await?;
        match wf.version("other b", 0..=1) {
            0 => all.push(wf.step("b", || async { ok("b".to_owned()) }).await?),
            _ => all.push(wf.step("c", || async { ok("c".to_owned()) }).await?),
        }
        wf.signal(GO).await?;
        Ok(json!(all))
    })
};

/// Runs code until its runs wait, and stops it.
async fn parked(lab: &Lab, code: Code, key: &str) -> abide::client::Handle<Value> {
    let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
    let run = lab.start(RUN, json!(null)).key(key).await.unwrap();
    lab.until_status(run.id(), Status::AwaitingSignal).await;
    engine.shutdown().await;
    run
}

on_every_store! {
    async fn runs_that_went_by_take_the_old_way_and_new_ones_the_new(lab: Lab) {
        // rule 12.4: what `version` is for
        for kept in [0, 100] {
            let early = parked(&lab, OLD, "early").await;
            let late = parked(&lab, OLD, "late").await;
            // This one goes past the second change too, on the old code.
            let engine = lab.engine().workflow(RUN, OLD).workflows_kept(kept).start().await.unwrap();
            lab.signal("late", GO, &1).await.unwrap();
            lab.until(late.id(), "the second wait", |row| row.status == Status::AwaitingSignal && row.step_seq > 3).await;
            engine.shutdown().await;
            let engine = lab.engine().workflow(RUN, NEW).workflows_kept(kept).start().await.unwrap();
            let new = lab.start(RUN, json!(null)).await.unwrap();
            lab.signal("early", GO, &1).await.unwrap();
            lab.signal(new.id(), GO, &1).await.unwrap();
            lab.signal("early", GO, &2).await.unwrap();
            lab.signal(new.id(), GO, &2).await.unwrap();
            lab.signal("late", GO, &2).await.unwrap();
            assert_eq!(lab.came_to(&late).await, json!(["a", "b"]));
            assert_eq!(lab.came_to(&early).await, json!(["a", "c"]), "it had not come to the second change");
            assert_eq!(lab.came_to(&new).await, json!(["hello", "a", "c"]));
            let ops = operations(&lab.events(new.id()).await);
            assert_eq!(ops[0], "- version greet = 1", "{ops:?}");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_run_goes_the_same_way_ever_after(lab: Lab) {
        // rule 12.4: also where the code comes by again, and when there is a third way meanwhile
        const TWO: Code = |wf, _| Box::pin(async move {
            let mut ways = Vec::new();
            for _ in 0..3 {
                ways.push(wf.version("way", 0..=1));
                wf.signal(GO).await?;
            }
            Ok(json!(ways))
        });
        const THREE: Code = |wf, _| Box::pin(async move {
            let mut ways = Vec::new();
            for _ in 0..3 {
                ways.push(wf.version("way", 0..=2));
                wf.signal(GO).await?;
            }
            Ok(json!(ways))
        });
        const NONE: Code = |wf, _| Box::pin(async move {
            for _ in 0..3 {
                wf.signal(GO).await?;
            }
            Ok(json!(null))
        });
        for kept in [0, 100] {
            let old = parked(&lab, NONE, "old").await;
            let mid = parked(&lab, TWO, "mid").await;
            let engine = lab.engine().workflow(RUN, THREE).workflows_kept(kept).start().await.unwrap();
            let new = lab.start(RUN, json!(null)).await.unwrap();
            for turn in 0..3 {
                for run in [&old, &mid, &new] {
                    lab.until(run.id(), "it to wait", |row| row.status == Status::AwaitingSignal && row.step_seq >= turn + 2).await;
                    lab.signal(run.id(), GO, &turn).await.unwrap();
                }
            }
            assert_eq!(lab.came_to(&old).await, json!([0, 0, 0]));
            assert_eq!(lab.came_to(&mid).await, json!([1, 1, 1]));
            assert_eq!(lab.came_to(&new).await, json!([2, 2, 2]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_way_that_the_code_does_not_know_any_more_blocks(lab: Lab) {
        // rule 12.4
        const FIRST: Code = |wf, _| Box::pin(async move {
            let way = wf.version("way", 0..=1);
            wf.signal(GO).await?;
            Ok(json!(way))
        });
        const LATER: Code = |wf, _| Box::pin(async move {
            let way = wf.version("way", 2..=3);
            wf.signal(GO).await?;
            Ok(json!(way))
        });
        let run = parked(&lab, FIRST, "run").await;
        lab.signal(run.id(), GO, &1).await.unwrap();
        let engine = lab.engine().workflow(RUN, LATER).start().await.unwrap();
        let why = blocked(&lab, run.id()).await;
        assert!(why.contains(r#"version 1 of change "way""#) && why.contains("one of 2 to 3"), "{why}");
        engine.shutdown().await;
        let engine = lab.engine().workflow(RUN, FIRST).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(1));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_was_chosen_is_committed_before_a_step_that_follows_runs(lab: Lab) {
        // rule 1.1
        let at = lab.clone();
        let code = move |wf: Workflow, _: Value| {
            let lab = at.clone();
            async move {
                let (lab, id) = (&lab, wf.id());
                let way = wf.version("way", 0..=4);
                let seen = wf.step("read", || async move { ok(operations(&lab.history(id).await?)) });
                Ok(json!([way, seen.await?]))
            }
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([4, ["- version way = 4", "+1 step read"]]));
        engine.shutdown().await;
    }
}
