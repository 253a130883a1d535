//! An event from its publication to the step that it wakes.

use abide::message::{eq, gte};
use abide::model::WaitKind;
use abide::store::{EventFilter, WaiterFilter};
use abide::testing::Kit;
use abide::time::{hours, millis, minutes};
use abide::workflow::OneOf;
use abide::{BoxError, Event, Flow, Signal, Status, Workflow, done};
use serde_json::{Value, json};

use crate::common::{At, Lab, Script};

const PAID: Signal<u32> = Signal::new("paid");
const ORDER: Flow<String, Value> = Flow::new("order");

fn payment(order: &str) -> Event {
    Event::new("payment.received")
        .matching("order.id", eq(order))
        .matching("amount", gte(10))
}

async fn order(wf: Workflow, id: String) -> Result<Value, BoxError> {
    let paid: Option<Value> = wf.event(payment(&id)).timeout(hours(1)).await?;
    let other = wf.event::<Value>(Event::new("refund")).timeout(minutes(5));
    match wf.select((other, wf.signal(PAID))).await {
        OneOf::First(refund) => Ok(json!([paid, refund?])),
        OneOf::Second(signal) => Ok(json!([paid, signal?])),
    }
}

on_every_store! {
    async fn a_machine_is_woken_by_the_event_that_it_waits_for_and_by_no_other(lab: Lab) {
        // rules 14.1 and 14.2
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for_event(payment("a")).or(PAID).timeout(hours(1)).then(At::Two),
            _ => done(json!([ctx.event::<Value>()?, ctx.timed_out()])),
        }));
        let engine = engine.start().await.unwrap();
        let run = lab.start(Script::any(), json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let waits = lab.event_waits(&WaiterFilter::default(), None, 10).await.unwrap();
        assert_eq!(waits.items.len(), 1);
        assert_eq!(waits.items[0].event_type.as_str(), "payment.received");
        for wrong in [json!({"order": {"id": "b"}, "amount": 10}), json!({"order": {"id": "a"}, "amount": 9}), json!(null)] {
            assert_eq!(lab.publish("payment.received", &wrong).await.unwrap().matched, 0);
        }
        let right = json!({"order": {"id": "a"}, "amount": 10.5});
        let published = lab.publish("payment.received", &right).event_id("evt-1").await.unwrap();
        assert_eq!((published.matched, published.duplicate), (1, false));
        assert_eq!(lab.came_to(&run).await, json!([right, false]));
        let again = lab.publish("payment.received", &right).event_id("evt-1").await.unwrap();
        assert_eq!((again.matched, again.duplicate, again.sequence), (0, true, published.sequence));
        assert!(lab.event_waits(&WaiterFilter::default(), None, 10).await.unwrap().items.is_empty());
        assert_eq!(abide::Abide::events(&lab, &EventFilter::default(), None, 10).await.unwrap().items.len(), 4);
        assert!(lab.kinds(run.id()).await.contains(&"event_matched"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_workflow_waits_for_events_alone_and_beside_signals(lab: Lab) {
        // rules 14.1, 14.5 and 12.1
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(ORDER, order).start().await.unwrap();
            let run = lab.start(ORDER, format!("o{kept}")).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            assert_eq!(lab.now(run.id()).await.wait_kind(), Some(WaitKind::Event));
            let paid = json!({"order": {"id": format!("o{kept}")}, "amount": 20});
            assert_eq!(lab.publish("payment.received", &paid).await.unwrap().matched, 1);
            common_wait(&lab, run.id()).await;
            lab.signal(run.id(), PAID, &7).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([paid, 7]));
            engine.shutdown().await;
        }
    }
}

/// Until it waits for two things.
async fn common_wait(lab: &Lab, id: abide::InstanceId) {
    crate::common::eventually("it to wait for both", async || {
        let row = lab.now(id).await;
        row.status == Status::AwaitingSignal && row.awaited().len() == 2
    })
    .await;
}

#[tokio::test]
async fn an_event_that_never_comes_and_one_that_came_before() {
    // rules 14.5 and 14.6
    let kit = Kit::builder().workflow(ORDER, order).build().await.unwrap();
    let run = kit.start(ORDER, "x".to_owned()).await.unwrap();
    kit.advance(hours(1)).await;
    kit.publish(
        "payment.received",
        &json!({"order": {"id": "x"}, "amount": 20}),
    )
    .await
    .unwrap();
    kit.publish("refund", &json!(1)).await.unwrap();
    kit.advance(millis(1)).await;
    kit.assert_done(&run, &json!([null, 1])).await;
}
