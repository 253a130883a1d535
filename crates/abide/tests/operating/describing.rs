//! Descriptions of an instance: its wait, and its health.

use abide::client::new_start;
use abide::done;
use abide::machine::retry_in;
use abide::model::{Liveness, WaitKind};
use abide::time::hours;
use serde_json::json;

use crate::common::{At, Gate, Lab, Script};
use crate::operating::GO;

on_every_store! {
    async fn each_position_shows_what_it_waits_for_and_that_it_is_well(lab: Lab) {
        // rules 11.3 and 13.1
        let gate = Gate::closed();
        let engine = lab.engine().machine(Script::gated(&gate, move |at, ctx, gate| {
            Box::pin(async move {
                match (at, ctx.state().as_str().unwrap_or_default()) {
                    (At::One, "signal") => ctx.wait_for(GO).or("stop").timeout(hours(1)).then(At::Two),
                    (At::One, "timer") => ctx.sleep(hours(1)).then(At::Two),
                    (At::One, "children") => ctx.spawn([new_start(Script::any(), json!("signal"))]).then(At::Two),
                    (At::One, "running") => { gate.pass().await; done(json!(null)) }
                    (At::One, "retrying") => retry_in(hours(1)),
                    _ => done(json!(null)),
                }
            })
        })).start().await.unwrap();
        let cases = [
            ("signal", "waiting_for_signal", Some(WaitKind::Signal)),
            ("timer", "scheduled", Some(WaitKind::Timer)),
            ("children", "waiting_for_children", Some(WaitKind::Children)),
            ("running", "running", None),
            ("retrying", "scheduled", None),
            ("closed", "closed", None),
        ];
        for (state, liveness, kind) in cases {
            let order = lab.start(Script::any(), json!(state)).key(state).await.unwrap();
            crate::common::eventually(liveness, async || {
                let view = lab.describe(order.id()).await.unwrap().unwrap();
                view.liveness.name() == liveness
            }).await;
            let view = lab.describe(state).await.unwrap().unwrap();
            assert_eq!(view.wait.as_ref().map(|wait| wait.kind), kind, "{state}");
            if let Some(wait) = view.wait {
                assert!(wait.since.is_some());
                assert_eq!(wait.deadline.is_some(), state != "children");
                let names: Vec<&str> = wait.names.iter().map(|name| name.as_str()).collect();
                assert_eq!(names, if state == "signal" { vec!["go", "stop"] } else { vec![] });
            }
            if state != "closed" {
                assert!(!lab.repair(state).await.unwrap(), "{state} needs none");
            }
        }
        let later = lab.start(Script::any(), json!(null)).delay(hours(1)).await.unwrap();
        assert_eq!(lab.describe(later.id()).await.unwrap().unwrap().liveness, Liveness::Scheduled);
        // A buffered signal that is not waited for is healthy.
        lab.signal("timer", "early", abide::message::Arguments::default()).await.unwrap();
        assert_eq!(lab.describe("timer").await.unwrap().unwrap().liveness, Liveness::Scheduled);
        assert!(lab.describe("missing").await.unwrap().is_none());
        let diagnosis = lab.doctor().await.unwrap();
        assert_eq!((diagnosis.examined, diagnosis.findings), (8, vec![]));
        gate.open();
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_instance_without_code_waits_for_a_worker(lab: Lab) {
        // rules 2.6 and 13.1
        let order = lab.start(Script::any(), json!(null)).key("k").await.unwrap();
        let liveness = async || lab.describe("k").await.unwrap().unwrap().liveness;
        assert_eq!(liveness().await, Liveness::WaitingForWorker);
        const OTHER: abide::Job<()> = abide::Job::new("other");
        let other = lab.engine().job(OTHER, |()| async { Ok(()) }).start().await.unwrap();
        assert_eq!(liveness().await, Liveness::WaitingForWorker, "it has other code");
        let elsewhere = lab.engine().machine(Script::any()).queue("elsewhere", 1).start().await.unwrap();
        assert_eq!(liveness().await, Liveness::WaitingForWorker, "it serves another queue");
        assert!(!lab.repair("k").await.unwrap(), "that is not broken");
        other.shutdown().await;
        elsewhere.shutdown().await;
        let engine = lab.engine().machine(Script::new(|_, _| done(json!("ran")))).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!("ran"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_has_its_turn_and_a_worker_is_ready(lab: Lab) {
        // rule 13.1
        let gate = Gate::closed();
        let engine = lab.engine().queue("default", 1).machine(Script::gated(&gate, move |_, _, gate| {
            Box::pin(async move { gate.pass().await; done(json!(null)) })
        })).start().await.unwrap();
        lab.start(Script::any(), json!(null)).await.unwrap();
        gate.reached_by(1).await;
        let second = lab.start(Script::any(), json!(null)).await.unwrap();
        assert_eq!(lab.describe(second.id()).await.unwrap().unwrap().liveness, Liveness::Ready);
        // As programs read it: one flat object.
        let shown = serde_json::to_value(lab.describe(second.id()).await.unwrap().unwrap()).unwrap();
        assert_eq!((&shown["liveness"], &shown["status"], &shown["wait"]), (&json!("ready"), &json!("runnable"), &json!(null)));
        gate.open();
        lab.came_to(&second).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn repair_refuses_what_there_is_nothing_to_repair_of(lab: Lab) {
        // rule 11.3
        use abide::Status;
        use abide::client::OperateError;
        let engine = lab.engine().machine(Script::new(|_, _| done(json!(null)))).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("k").await.unwrap();
        lab.came_to(&order).await;
        assert!(matches!(lab.repair("k").await, Err(OperateError::NotActive(Status::Done))));
        assert!(matches!(lab.repair("missing").await, Err(OperateError::NoTarget(_))));
        lab.reserve(Script::any(), "r").await.unwrap();
        assert!(matches!(lab.repair("r").await, Err(OperateError::NotStarted)));
        engine.shutdown().await;
    }
}
