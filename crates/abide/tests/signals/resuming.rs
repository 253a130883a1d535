//! The source of a wake, until it is applied.

use abide::model::{ResumeKind, ResumeSource, WaitKind};
use abide::time::millis;
use abide::{Status, done, next};
use serde_json::json;

use crate::common::{At, Gate, Lab, Script};
use crate::signals::{GO, NOTE};

on_every_store! {
    async fn a_woken_step_says_what_woke_it_until_it_has_ended(lab: Lab) {
        // rule 13.1
        let gate = Gate::closed();
        let engine = lab.engine().machine(Script::gated(&gate, |at, ctx, gate| Box::pin(async move {
            match at {
                At::One => ctx.wait_for("go").or("note").then(At::Two),
                At::Two => {
                    gate.pass().await;
                    next(At::Three)
                }
                At::Three => ctx.wait_for("other").then(At::One),
            }
        }))).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        let parked = lab.until_status(order.id(), Status::AwaitingSignal).await;
        let go = lab.signal(order.id(), GO, &()).await.unwrap();
        gate.reached_by(1).await;
        lab.signal(order.id(), NOTE, &"later".into()).await.unwrap();
        let view = lab.describe(order.id()).await.unwrap().unwrap();
        let wait = view.wait.unwrap();
        let source = ResumeSource { command_id: Some(go.record.id), kind: ResumeKind::Signal };
        assert_eq!((view.instance.status, wait.resume_source), (Status::Executing, Some(source)));
        assert_eq!((wait.kind, wait.id), (WaitKind::Signal, parked.wait_id().cloned()));
        gate.open();
        let parked = lab.until_status(order.id(), Status::AwaitingSignal).await;
        assert_eq!(parked.resume_source(), None);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_deadline_is_named_without_a_command(lab: Lab) {
        // rule 13.1
        let gate = Gate::closed();
        let engine = lab.engine().machine(Script::gated(&gate, |at, ctx, gate| Box::pin(async move {
            match at {
                At::One => ctx.wait_for("go").timeout(millis(1)).then(At::Two),
                _ => {
                    gate.pass().await;
                    done(json!(null))
                }
            }
        }))).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        gate.reached_by(1).await;
        let wait = lab.describe(order.id()).await.unwrap().unwrap().wait.unwrap();
        assert_eq!(wait.resume_source, Some(ResumeSource::of(ResumeKind::Timeout)));
        gate.open();
        lab.came_to(&order).await;
        assert!(lab.describe(order.id()).await.unwrap().unwrap().wait.is_none());
        engine.shutdown().await;
    }
}
