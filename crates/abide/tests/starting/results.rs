//! Waiting for what an instance comes to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use abide::client::{NotDone, StartError, new_start};
use abide::engine::Retention;
use abide::model::Limits;
use abide::time::millis;
use abide::{Abide, Error, Job, done, stop};
use serde_json::json;

use crate::common::{At, Gate, Lab, Script, eventually, soon};

/// Waits at the gate, and ends with its state.
fn gated(gate: &Gate) -> Script {
    let gate = gate.clone();
    Script::waiting(move |_, ctx| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.pass().await;
            done(ctx.state().clone())
        })
    })
}

on_every_store! {
    async fn a_result_is_delivered_to_all_callers_that_wait_for_it(lab: Lab) {
        let gate = Gate::closed();
        let engine = lab.engine().machine(gated(&gate)).start().await.unwrap();
        let order = lab.start(Script::any(), json!("kettle")).key("order:1").await.unwrap();
        let waiting = (0..5).map(|_| {
            let (lab, id) = (lab.clone(), order.id());
            tokio::spawn(async move {
                let handle = lab.handle::<String>(id).await.unwrap().unwrap();
                handle.result().await.unwrap()
            })
        });
        let waiting: Vec<_> = waiting.collect();
        // A caller that stops waiting gets nothing, and does not affect the others.
        assert!(tokio::time::timeout(millis(10), order.result()).await.is_err());
        gate.open();
        for one in waiting {
            assert_eq!(soon("a result", one).await.unwrap(), "kettle");
        }
        assert_eq!(lab.came_to(&order).await, json!("kettle"), "also for callers that come late");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_result_is_noticed_by_another_process_without_delay(lab: Lab) {
        // rule 6.6
        let mut took = Vec::new();
        let worker = lab.again().await;
        for n in 0..7 {
            let gate = Gate::closed();
            let engine = worker.engine().machine(gated(&gate)).start().await.unwrap();
            let order = lab.start(Script::any(), json!(n)).await.unwrap();
            gate.reached_by(1).await;
            let waiting = tokio::spawn(async move { (order.result().await.unwrap(), Instant::now()) });
            gate.open();
            let begun = Instant::now();
            let (result, received_at) = soon("the result", waiting).await.unwrap();
            assert_eq!(result, json!(n));
            took.push(received_at.duration_since(begun));
            engine.shutdown().await;
        }
        took.sort();
        assert!(took[3] < Duration::from_millis(200), "{took:?}");
    }
}

on_every_store! {
    async fn many_results_are_waited_for_at_once(lab: Lab) {
        let engine = lab.again().await.engine().machine(Script::new(|_, ctx| done(ctx.state().clone())));
        let engine = engine.start().await.unwrap();
        let calls = (0..200).map(|n| {
            let lab = lab.clone();
            tokio::spawn(async move {
                let order = lab.start(Script::any(), json!(n)).await.unwrap();
                (n, lab.came_to(&order).await)
            })
        });
        for call in calls.collect::<Vec<_>>() {
            let (n, result) = call.await.unwrap();
            assert_eq!(result, json!(n));
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_failed_instance_answers_its_error(lab: Lab) {
        let engine = lab.engine().machine(Script::new(|_, _| stop("sold out"))).start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        let error = lab.result(&order).await.unwrap_err();
        assert_eq!(error.to_string(), format!("instance {} failed: sold out", order.id()));
        assert!(matches!(error, NotDone::Failed { .. }));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_result_of_another_type_is_a_mismatch(lab: Lab) {
        let engine = lab.engine().machine(Script::new(|_, _| done(json!("text")))).start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        let wrong = lab.handle::<u64>(order.id()).await.unwrap().unwrap();
        let error = lab.result(&wrong).await.unwrap_err();
        assert!(matches!(error, NotDone::Error(Error::Mismatch { .. })), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("the result does not match its type") && text.contains("u64"), "{text}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_result_whose_retention_is_over_is_gone(lab: Lab) {
        // rule 16.2
        let engine = lab.engine().retention(Retention::For(millis(1))).machine(Script::new(|_, _| done(json!(1))));
        let engine = engine.start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        eventually("it to be swept", async || order.get().await.unwrap().is_none()).await;
        let error = lab.result(&order).await.unwrap_err();
        assert!(matches!(error, NotDone::Gone { id } if id == order.id()), "{error:?}");
        assert!(error.to_string().contains("retention"), "{error}");
        assert_eq!(order.history().await.unwrap(), []);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_caller_that_waits_when_the_store_is_closed_gets_an_error(lab: Lab) {
        let other = lab.again().await;
        let order = lab.start(Script::any(), json!(1)).step(At::Two).await.unwrap();
        let id = order.id();
        let waiting = tokio::spawn(async move { order.result().await });
        tokio::task::yield_now().await;
        let closed = (*lab).clone();
        soon("the store to close", closed.close()).await;
        let error = soon("an error for the caller that waits", waiting).await.unwrap().unwrap_err();
        assert!(matches!(error, NotDone::Error(Error::Closed)), "{error:?}");
        let error = soon("a start to be refused", lab.start(Script::any(), json!(2)).into_future()).await.unwrap_err();
        assert!(matches!(error, StartError::Error(Error::Closed)), "{error:?}");
        assert!(matches!(lab.get(id).await, Err(Error::Closed)));
        assert!(matches!(lab.engine().machine(Script::any()).start().await.err(), Some(Error::Closed)));
        if !lab.is_memory() {
            assert!(other.get(id).await.unwrap().is_some(), "others are not affected");
        }
    }
}

on_every_store! {
    async fn an_input_that_cannot_be_stored_is_refused(lab: Lab) {
        // rule 16.3
        const MAP: Job<BTreeMap<Vec<u8>, u8>, ()> = Job::new("map");
        let unwritable = BTreeMap::from([(vec![1], 1)]);
        let error = lab.start(MAP, unwritable.clone()).await.unwrap_err();
        assert!(matches!(error, StartError::Error(Error::Mismatch { .. })), "{error:?}");
        assert!(error.to_string().contains("the input does not match its type"), "{error}");
        assert!(lab.start_all([new_start(MAP, unwritable)]).await.is_err());
        let lab = lab.opened(Abide::options().limits(Limits { state_bytes: 100, ..Limits::default() })).await;
        let error = lab.start(Script::any(), json!("x".repeat(200))).await.unwrap_err().to_string();
        assert!(error.contains("202 is over the limit state_bytes of 100"), "{error}");
        let fits = lab.start(Script::any(), json!("x".repeat(98))).await.unwrap();
        assert!(fits.is_new());
        assert!(lab.start("anything", abide::model::Json::null()).await.unwrap().is_new());
    }
}
