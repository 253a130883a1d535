//! Workflows that wait for events: alone, beside each other, and beside everything else.

use abide::client::event_of;
use abide::machine::Messages;
use abide::message::{eq, gt};
use abide::model::Limits;
use abide::store::WaiterFilter;
use abide::time::{hours, millis};
use abide::workflow::OneOf;
use abide::{Abide, BoxError, Event, Flow, Signal, Status, Update, Workflow};
use serde_json::{Value, json};

use super::waiting::{standing, until_standing};
use crate::common::{Gate, Lab};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");
const SET: Update<u32, u32> = Update::new("set");

fn tick(n: impl serde::Serialize) -> Event {
    Event::new("tick").matching("n", eq(n))
}

async fn matched(lab: &Lab, payload: &Value) -> u32 {
    lab.publish("tick", payload).await.unwrap().matched
}

/// Two at once, of one type.
async fn both(wf: Workflow, _: Value) -> Result<Value, BoxError> {
    let (one, two) = wf
        .all((
            wf.event::<Value>(tick(1)).timeout(hours(1)),
            wf.event::<Value>(tick(2)).timeout(hours(1)),
        ))
        .await;
    Ok(json!([one?, two?]))
}

on_every_store! {
    async fn several_of_one_type_at_once_and_each_operation_gets_its_own(lab: Lab) {
        // rules 14.1 and 14.2
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(RUN, both).start().await.unwrap();
            // One after the other, in the order of the code and against it.
            for order in [[1, 2], [2, 1]] {
                let run = lab.start(RUN, json!(null)).await.unwrap();
                until_standing(&lab, 2).await;
                assert_eq!(matched(&lab, &json!({"n": order[0]})).await, 1);
                until_standing(&lab, 1).await;
                assert_eq!(matched(&lab, &json!({"n": order[0]})).await, 0, "it has got that");
                assert_eq!(matched(&lab, &json!({"n": order[1]})).await, 1);
                assert_eq!(lab.came_to(&run).await, json!([{"n": 1}, {"n": 2}]));
                assert_eq!(standing(&lab).await, 0);
            }
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_wait_over_the_limit_of_waiters_fails_in_the_code(lab: Lab) {
        // rule 14.7
        let limits = Limits { waiters_per_type: 1, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let code = |wf: Workflow, n: Value| async move {
            let waits = wf.all((wf.event::<Value>(tick(n)).timeout(hours(1)), wf.signal(GO)));
            let (came, went) = waits.await;
            Ok(json!([came.map_err(|error| error.to_string()), went?]))
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(RUN, code).start().await.unwrap();
            let first = lab.start(RUN, json!(1)).await.unwrap();
            until_standing(&lab, 1).await;
            let second = lab.start(RUN, json!(2)).await.unwrap();
            lab.until_status(second.id(), Status::AwaitingSignal).await;
            for (run, n) in [(&first, 1), (&second, 2)] {
                lab.signal(run.id(), GO, &n).await.unwrap();
            }
            let result = lab.came_to(&second).await;
            let why = result[0]["Err"].as_str().unwrap();
            assert!(why.contains("2 waits for events of type \"tick\" are over the limit waiters_per_type of 1"), "{result}");
            assert_eq!(result[1], json!(2));
            // Its code may be busy with the signal just now: then the event comes to it at the end of its turn.
            lab.publish("tick", &json!({"n": 1})).await.unwrap();
            assert_eq!(lab.came_to(&first).await, json!([{"Ok": {"n": 1}}, 1]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn what_is_published_together_comes_to_every_operation_that_waits_for_it(lab: Lab) {
        // rule 14.1
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(RUN, both).start().await.unwrap();
            for order in [[2, 1], [1, 2]] {
                let run = lab.start(RUN, json!(null)).await.unwrap();
                until_standing(&lab, 2).await;
                lab.publish_all(order.map(|n| event_of("tick", &json!({"n": n})))).await.unwrap();
                assert_eq!(lab.came_to(&run).await, json!([{"n": 1}, {"n": 2}]), "{kept}");
            }
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn one_event_comes_to_every_operation_that_waits_for_it(lab: Lab) {
        // rule 14.1
        let code = |wf: Workflow, _: Value| async move {
            let (one, two) = wf.all((
                wf.event::<Value>(tick(1)).timeout(hours(1)),
                wf.event::<Value>(Event::new("tick").matching("n", gt(0))).timeout(hours(1)),
            )).await;
            Ok(json!([one?, two?]))
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        until_standing(&lab, 2).await;
        assert!(matched(&lab, &json!({"n": 1})).await >= 1);
        assert_eq!(lab.came_to(&run).await, json!([{"n": 1}, {"n": 1}]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_event_that_is_published_while_the_code_is_busy_elsewhere_is_not_lost(lab: Lab) {
        // rule 14.6: the wait stands since the code began it, whatever else the code was woken for
        for kept in [100, 0] {
            let gate = Gate::closed();
            let at_gate = gate.clone();
            let code = move |wf: Workflow, _: Value| {
                let gate = at_gate.clone();
                async move {
                    let busy = async {
                        let went = wf.signal(GO).await?;
                        wf.step("busy", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(()) } }).await?;
                        Ok::<_, BoxError>(went)
                    };
                    let (event, went) = wf.all((wf.event::<Value>(tick(1)).timeout(hours(1)), Box::pin(busy))).await;
                    Ok(json!([event?, went?]))
                }
            };
            let engine = lab.engine().workflows_kept(kept).workflow(RUN, code).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            until_standing(&lab, 1).await;
            lab.signal(run.id(), GO, &3).await.unwrap();
            gate.reached_by(1).await;
            lab.publish("tick", &json!({"n": 1, "first": true})).await.unwrap();
            lab.publish("tick", &json!({"n": 1, "first": false})).await.unwrap();
            gate.open();
            assert_eq!(lab.came_to(&run).await, json!([{"n": 1, "first": true}, 3]), "{kept}");
            assert_eq!(standing(&lab).await, 0);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn an_event_for_a_branch_that_is_no_longer_awaited_is_discarded(lab: Lab) {
        // rules 14.1, 14.5 and 12.1
        for kept in [100, 0] {
            let code = |wf: Workflow, _: Value| async move {
                let first = wf.select((
                    wf.event::<Value>(tick(1)).timeout(hours(1)),
                    wf.event::<Value>(tick(2)).timeout(hours(1)),
                )).await;
                let first = match first { OneOf::First(one) => one?, OneOf::Second(two) => two? };
                let went = wf.signal(GO).await?;
                Ok(json!([first, went]))
            };
            let engine = lab.engine().workflows_kept(kept).workflow(RUN, code).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            until_standing(&lab, 2).await;
            lab.publish_all([2, 1].map(|n| event_of("tick", &json!({"n": n})))).await.unwrap();
            lab.until(run.id(), "the signal to be waited for", |row| row.status == Status::AwaitingSignal && row.awaited().iter().any(|name| name.as_str() == "go")).await;
            let steps = lab.now(run.id()).await.step_seq;
            assert_eq!(standing(&lab).await, 0);
            tokio::time::sleep(millis(50)).await;
            assert_eq!(lab.now(run.id()).await.step_seq, steps, "it does not go round");
            lab.signal(run.id(), GO, &1).await.unwrap();
            let result = lab.came_to(&run).await;
            assert!(result == json!([{"n": 2}, 1]) || result == json!([{"n": 1}, 1]), "{result}");
            assert_eq!(lab.now(run.id()).await.inbox.signals, 0);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn an_update_while_it_waits_takes_nothing_from_the_wait(lab: Lab) {
        // rules 14.5, 14.7 and 9.2
        const UPDATED: Flow<Value, Value> = Flow::new("updated").messages(|| Messages::new().update(SET));
        for kept in [100, 0] {
            let code = |wf: Workflow, _: Value| async move {
                let state = wf.state(0);
                wf.on_update(SET, { let state = state.clone(); move |n| { state.set(n); Ok(n + 1) } });
                let event: Option<Value> = wf.event(tick(1)).timeout(hours(1)).await?;
                Ok(json!([event, state.get()]))
            };
            let engine = lab.engine().workflows_kept(kept).workflow(UPDATED, code).start().await.unwrap();
            let run = lab.start(UPDATED, json!(null)).await.unwrap();
            until_standing(&lab, 1).await;
            let filter = WaiterFilter { instance: Some(run.id()), ..Default::default() };
            let before = lab.event_waits(&filter, None, 9).await.unwrap().items;
            assert_eq!(lab.update(run.id(), SET, &5).await.unwrap(), 6);
            until_standing(&lab, 1).await;
            let after = lab.event_waits(&filter, None, 9).await.unwrap().items;
            assert_eq!((before[0].deadline, before[0].since), (after[0].deadline, after[0].since));
            assert_eq!(matched(&lab, &json!({"n": 1})).await, 1);
            assert_eq!(lab.came_to(&run).await, json!([{"n": 1}, 5]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn its_time_is_up_or_it_is_cancelled_and_no_waiter_is_left(lab: Lab) {
        // rules 14.5 and 14.7
        let code = |wf: Workflow, ms: Value| async move {
            let time = millis(ms.as_u64().unwrap());
            let event: Option<Value> = wf.event(tick(1)).timeout(time).await?;
            Ok(json!(event))
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(100)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(null));
        assert_eq!((standing(&lab).await, matched(&lab, &json!({"n": 1})).await), (0, 0));
        let run = lab.start(RUN, json!(3_600_000)).await.unwrap();
        until_standing(&lab, 1).await;
        lab.cancel(run.id(), "enough").await.unwrap();
        assert_eq!(lab.ended(run.id()).await.status, Status::Cancelled);
        assert_eq!((standing(&lab).await, matched(&lab, &json!({"n": 1})).await), (0, 0));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_process_that_dies_leaves_the_wait_to_the_next(lab: Lab) {
        // rules 14.1 and 12.2
        let code = |wf: Workflow, _: Value| async move {
            let one: Option<Value> = wf.event(tick(1)).timeout(hours(1)).await?;
            let two: Option<Value> = wf.event(Event::new("tick").matching("n", eq(1)).lookback(hours(1))).timeout(hours(1)).await?;
            let three: Option<Value> = wf.event(tick(3)).timeout(millis(300)).await?;
            Ok(json!([one, two, three]))
        };
        let killable = lab.killable(move |engine| engine.workflow(RUN, code)).await;
        let run = lab.start(RUN, json!(null)).await.unwrap();
        until_standing(&lab, 1).await;
        killable.die().await;
        assert_eq!(matched(&lab, &json!({"n": 1})).await, 1);
        let engine = lab.again().await.engine().poll(hours(1)).workflow(RUN, code).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([{"n": 1}, {"n": 1}, null]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn conditions_that_cannot_be_block_it_with_all_that_is_wrong(lab: Lab) {
        // rule 14.2
        let code = |wf: Workflow, _: Value| async move {
            let bad = Event::new("tick").matching("a..b", eq(1)).matching("c", gt(true));
            let event: Option<Value> = wf.event(bad).timeout(hours(1)).await?;
            Ok(json!(event))
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        let row = lab.until(run.id(), "it to be refused", |row| row.last_error.is_some()).await;
        let error = row.last_error.clone().unwrap();
        assert!(error.contains("a..b") && error.contains("c gt"), "{error}");
        assert_eq!(standing(&lab).await, 0);
        engine.shutdown().await;
    }
}
