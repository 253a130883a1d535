//! Instances that have a key and no run yet.

use abide::client::{OperateError, StartError};
use abide::model::Liveness;
use abide::{Status, done};
use serde_json::json;

use crate::common::{Lab, Script};
use crate::runs::GO;

on_every_store! {
    async fn a_start_under_the_key_opens_what_was_reserved_with_the_same_id(lab: Lab) {
        // rules 2.2 and 2.7
        let engine = lab.engine().machine(Script::new(|_, ctx| done(ctx.state().clone()))).start().await.unwrap();
        let reserved = lab.reserve(Script::any(), "order:1").await.unwrap();
        assert!(reserved.is_new());
        let row = lab.now(reserved.id()).await;
        assert_eq!((row.status, row.key.as_ref().unwrap().as_str()), (Status::Reserved, "order:1"));
        assert_eq!(lab.signal("order:1", GO, &()).await.unwrap_err().outcome(), Some("rejected_not_started"));
        let started = lab.start(Script::any(), json!("opened")).key("order:1").priority(2).await.unwrap();
        assert!(started.is_new());
        assert_eq!(started.id(), reserved.id());
        assert_eq!(lab.came_to(&reserved).await, json!("opened"), "the caller that reserved it can wait for it");
        assert_eq!(lab.now(started.id()).await.priority.0, 2);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_key_that_is_taken_cannot_be_reserved(lab: Lab) {
        // rules 2.2 and 2.7
        let reserved = lab.reserve(Script::any(), "order:1").await.unwrap();
        let error = lab.reserve(Script::any(), "order:1").await.unwrap_err();
        assert!(matches!(error, StartError::Duplicate { holder } if holder == reserved.id()), "{error}");
        let live = lab.start(Script::any(), json!(null)).key("order:2").await.unwrap();
        let error = lab.reserve(Script::any(), "order:2").await.unwrap_err();
        assert!(matches!(error, StartError::Duplicate { holder } if holder == live.id()), "{error}");
        assert!(lab.reserve(Script::any(), "42").await.is_err(), "digits only");
        assert!(lab.start(Script::any(), json!(null)).key("order:1").await.is_ok());
        let error = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap_err();
        assert!(matches!(error, StartError::Duplicate { holder } if holder == reserved.id()), "it was opened once: {error}");
    }
}

on_every_store! {
    async fn what_is_reserved_can_be_cancelled_and_not_restarted(lab: Lab) {
        // rules 2.7, 11.1, 11.2 and 13.1
        let reserved = lab.reserve(Script::any(), "order:1").await.unwrap();
        assert_eq!(lab.describe("order:1").await.unwrap().unwrap().liveness, Liveness::Scheduled);
        assert!(matches!(lab.restart("order:1").await, Err(OperateError::NotStarted)));
        lab.cancel("order:1", "not wanted").await.unwrap();
        assert_eq!(lab.now(reserved.id()).await.status, Status::Cancelled);
        assert!(lab.reserve(Script::any(), "order:1").await.unwrap().id() != reserved.id());
        assert_eq!(lab.doctor().await.unwrap().findings, []);
    }
}

on_every_store! {
    async fn of_many_callers_that_start_a_reserved_instance_one_opens_it(lab: Lab) {
        // rules 2.2 and 2.7
        let reserved = lab.reserve(Script::any(), "order:1").await.unwrap();
        let starts = (0..20).map(|n| {
            let lab = lab.clone();
            tokio::spawn(async move { lab.start(Script::any(), json!(n)).key("order:1").or_existing().await.unwrap() })
        });
        let mut opened = 0;
        for start in starts.collect::<Vec<_>>() {
            let handle = start.await.unwrap();
            assert_eq!(handle.id(), reserved.id());
            opened += usize::from(handle.is_new());
        }
        assert_eq!(opened, 1);
    }
}
