//! Values that the code gets at once: the time, random numbers, unique ids, side effects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide::{Abide, Flow, Signal, Status, Workflow};
use serde_json::{Value, json};

use crate::common::{Lab, Log};
use crate::workflows::recorded::{ok, operations};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");

on_every_store! {
    async fn what_the_code_came_by_is_the_same_whenever_it_runs_again(lab: Lab) {
        // rule 12.1
        for kept in [0, 100] {
            let (seen, effects) = (Log::new(), Arc::new(AtomicUsize::new(0)));
            let (notes, counted) = (seen.clone(), effects.clone());
            let code = move |wf: Workflow, _: Value| {
                let (notes, counted) = (notes.clone(), counted.clone());
                async move {
                    let mut all = Vec::new();
                    for _ in 0..3 {
                        let effect = wf.side_effect("count", || counted.fetch_add(1, Ordering::SeqCst)).await;
                        all.push(json!([wf.now(), wf.random(), wf.uuid(), effect]));
                        notes.note(all.clone());
                        wf.signal(GO).await?;
                    }
                    Ok(json!(all))
                }
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            for turn in 2..=4 {
                lab.until(run.id(), "it to wait again", |row| row.step_seq >= turn && row.status == Status::AwaitingSignal).await;
                lab.signal(run.id(), GO, &1).await.unwrap();
            }
            let all = lab.came_to(&run).await;
            let all = all.as_array().unwrap();
            for seen in seen.read() {
                assert_eq!(seen, all[..seen.len()], "what it saw then, it saw in the end");
            }
            assert_eq!(effects.load(Ordering::SeqCst), 3, "each side effect was come by once");
            assert_eq!(seen.len(), if kept == 0 { 1 + 2 + 3 + 3 } else { 3 });
            let (one, two) = (&all[0], &all[1]);
            for index in 0..4 {
                assert_ne!(one[index], two[index], "and it is not the same twice");
            }
            let uuid = one[2].as_str().unwrap();
            let shape: String = uuid.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect();
            assert_eq!(shape, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn what_the_code_came_by_is_committed_before_a_step_uses_it(lab: Lab) {
        // rule 1.1
        let at = lab.clone();
        let code = move |wf: Workflow, _: Value| {
            let lab = at.clone();
            async move {
                let abide: &Abide = &lab;
                let id = wf.id();
                let key = wf.uuid();
                let effect = wf.side_effect("effect", || 17).await;
                let used = wf.step("use", || async move {
                    ok(operations(&abide.history(id).await?))
                });
                Ok(json!([key, effect, used.await?]))
            }
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        let all = lab.came_to(&run).await;
        let key = all[0].as_str().unwrap();
        let known = json!([format!("-1 uuid = \"{key}\""), "-2 side_effect effect = 17", "+3 step use"]);
        assert_eq!(all[2], known);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_time_does_not_go_backwards_and_is_that_of_the_store(lab: Lab) {
        // rule 12.1
        let code = |wf: Workflow, _: Value| async move {
            let before = wf.now();
            wf.sleep(abide::time::millis(50)).await?;
            let after = wf.now();
            Ok(json!([before, after, after.since(before).as_millis() as u64]))
        };
        let engine = lab.engine().workflow(RUN, code).workflows_kept(0).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        let all = lab.came_to(&run).await;
        assert!(all[2].as_u64().unwrap() >= 50, "{all}");
        engine.shutdown().await;
    }
}
