//! A workflow that is woken by something else goes on waiting for its events, and misses none.

use abide::message::eq;
use abide::testing::Kit;
use abide::time::hours;
use abide::{BoxError, Event, Flow, Signal, Workflow};
use serde_json::{Value, json};

use crate::common::{Gate, Lab};

const NUDGE: Signal<u32> = Signal::new("nudge");
const BOTH: Flow<(), Value> = Flow::new("both");

on_every_store! {
    async fn an_event_that_is_published_while_the_code_runs_is_not_lost(lab: Lab) {
        // rules 14.1 and 14.6
        for kept in [100, 0] {
            let gate = Gate::closed();
            let at_gate = gate.clone();
            let code = move |wf: Workflow, _: ()| {
                let gate = at_gate.clone();
                async move {
                    let event = wf.event::<Value>(Event::new("done").matching("n", eq(1))).timeout(hours(1));
                    let nudged = async {
                        wf.signal(NUDGE).await?;
                        // It runs, and waits for nothing that the store knows of.
                        let gate = gate.clone();
                        wf.step("slow", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(()) } }).await?;
                        Ok::<_, BoxError>(())
                    };
                    let (event, nudged) = wf.all((event, Box::pin(nudged))).await;
                    nudged?;
                    Ok::<_, BoxError>(json!(event?))
                }
            };
            let engine = lab.engine().workflows_kept(kept).workflow(BOTH, code).start().await.unwrap();
            let run = lab.start(BOTH, ()).await.unwrap();
            crate::common::eventually("it to wait", async || {
                !lab.event_waits(&Default::default(), None, 9).await.unwrap().items.is_empty()
            }).await;
            lab.signal(run.id(), NUDGE, &1).await.unwrap();
            gate.reached_by(1).await;
            lab.publish("done", &json!({"n": 2})).await.unwrap();
            lab.publish("done", &json!({"n": 1, "first": true})).await.unwrap();
            lab.publish("done", &json!({"n": 1, "first": false})).await.unwrap();
            gate.open();
            assert_eq!(lab.came_to(&run).await, json!({"n": 1, "first": true}));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_wait_is_open_from_the_commit_that_tells_of_it(lab: Lab) {
        // rule 14.6
        //
        // A wait that was begun beside a step stood nowhere before that step had ended: what was published meanwhile was
        // acknowledged, and lost.
        for kept in [100, 0] {
            let gate = Gate::closed();
            let at_gate = gate.clone();
            let code = move |wf: Workflow, _: ()| {
                let gate = at_gate.clone();
                async move {
                    let event = wf.event::<Value>(Event::new("done").matching("n", eq(1))).timeout(hours(1));
                    let step = wf.step("slow", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(()) } });
                    let (event, step) = wf.all((event, step)).await;
                    step?;
                    Ok::<_, BoxError>(json!(event?))
                }
            };
            lab.publish("done", &json!({"n": 1, "before": true})).await.unwrap();
            let engine = lab.engine().workflows_kept(kept).workflow(BOTH, code).start().await.unwrap();
            let run = lab.start(BOTH, ()).await.unwrap();
            gate.reached_by(1).await;
            lab.publish("done", &json!({"n": 1, "before": false})).await.unwrap();
            gate.open();
            assert_eq!(lab.came_to(&run).await, json!({"n": 1, "before": false}));
            engine.shutdown().await;
        }
    }
}

#[tokio::test]
async fn an_event_that_ended_a_wait_is_not_the_next_ones_too() {
    // rule 14.6
    const TWICE: Flow<(), Value> = Flow::new("twice");
    async fn twice(wf: Workflow, _: ()) -> Result<Value, BoxError> {
        let first: Option<Value> = wf.event(Event::new("done")).timeout(hours(1)).await?;
        let second: Option<Value> = wf.event(Event::new("done")).timeout(hours(1)).await?;
        Ok(json!([first, second]))
    }
    let kit = Kit::builder().workflow(TWICE, twice).build().await.unwrap();
    let run = kit.start(TWICE, ()).await.unwrap();
    kit.settle().await;
    kit.publish("done", &json!(1)).await.unwrap();
    kit.settle().await;
    kit.publish("done", &json!(2)).await.unwrap();
    kit.settle().await;
    kit.assert_done(&run, &json!([1, 2])).await;
}
