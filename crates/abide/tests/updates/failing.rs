//! Handlers that fail, arguments that do not fit, instances that end first.

use abide::client::{SendError, UpdateError};
use abide::model::Limits;
use abide::time::millis;
use abide::{Abide, Status, Update};

use crate::common::Lab;
use crate::updates::{
    ADD, Books, FAIL, FORGOTTEN, LARGE, PANIC, RAW, SHUT, Till, books, engine, standing,
};

fn failed<R: std::fmt::Debug>(answer: Result<R, UpdateError>) -> String {
    match answer.unwrap_err() {
        UpdateError::Failed { error, .. } => error,
        other => panic!("{other}"),
    }
}

fn refused<R: std::fmt::Debug>(answer: Result<R, UpdateError>) -> Box<abide::client::Rejected> {
    match answer.unwrap_err() {
        UpdateError::Send(SendError::Rejected(rejected)) => rejected,
        other => panic!("{other}"),
    }
}

on_every_store! {
    async fn a_handler_that_fails_or_panics_changes_nothing_and_fails_nothing_but_the_update(lab: Lab) {
        // rule 9.2
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        lab.update(&order, ADD, &5).await.unwrap();
        assert_eq!(failed(lab.update(&order, FAIL, &"no change".into()).await), "no change");
        assert!(failed(lab.update(&order, PANIC, &()).await).contains("the till is on fire"));
        assert_eq!(failed(lab.update(&order, FORGOTTEN, &()).await), "no handler for forgotten");
        let row = lab.until_status(order.id(), Status::AwaitingSignal).await;
        let kept: Books = row.state.to().unwrap();
        assert_eq!((kept.total, row.last_error.clone(), row.attempt), (5, None, 0));
        let kinds = lab.kinds(order.id()).await;
        assert_eq!(kinds.iter().filter(|kind| **kind == "update_failed").count(), 3);
        assert!(!kinds.contains(&"step_failed"));
        assert_eq!(lab.update(&order, ADD, &1).await.unwrap(), 6, "and it is taken on");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn of_a_batch_the_failing_fail_alone(lab: Lab) {
        // rule 9.2
        let till = Till::gated();
        let order = lab.start(till.clone(), books("waits")).key("waits").await.unwrap();
        let first = lab.update(&order, ADD, &1).accepted().await.unwrap();
        let second = lab.update(&order, FAIL, &"no".into()).accepted().await.unwrap();
        let third = lab.update(&order, ADD, &2).accepted().await.unwrap();
        let fourth = lab.update(&order, PANIC, &()).accepted().await.unwrap();
        let fifth = lab.update(&order, ADD, &3).accepted().await.unwrap();
        let engine = engine(&lab, &till).await;
        assert_eq!((first.answer().await.unwrap(), third.answer().await.unwrap(), fifth.answer().await.unwrap()), (1, 3, 6));
        failed(second.answer().await);
        failed(fourth.answer().await);
        assert_eq!(lab.now(order.id()).await.state.to::<Books>().unwrap().entries, [1, 2, 3]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn arguments_that_break_the_contract_are_refused_before_anything_runs(lab: Lab) {
        // rules 8.3 and 9.1
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        let text: Update<String, i64> = Update::new("add");
        let rejected = refused(lab.update(&order, text, &"five".into()).await);
        assert_eq!((rejected.why.outcome(), rejected.why.reason()), ("rejected_invalid_arguments", "invalid_update_arguments"));
        assert_eq!(rejected.validation_errors().unwrap().problems().keys().collect::<Vec<_>>(), ["value"]);
        let unknown: Update<(), ()> = Update::new("unheard-of");
        let rejected = refused(lab.update(&order, unknown, &()).await);
        assert_eq!((rejected.why.outcome(), rejected.why.reason()), ("rejected_unknown_update", "unknown_update"));
        // A signal is not an update.
        let rejected = refused(lab.update(&order, Update::<(), ()>::new("shut"), &()).await);
        assert_eq!(rejected.why.reason(), "unknown_update");
        let missing = lab.update("missing", ADD, &1).await.unwrap_err();
        assert!(matches!(missing, UpdateError::Send(SendError::NoTarget(_))));
        assert_eq!(till.log.len(), 0);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn arguments_that_the_handler_cannot_read_and_answers_that_cannot_be_read_fail_the_update(lab: Lab) {
        // rule 9.2
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        assert_eq!(lab.update(&order, RAW, &5).await.unwrap(), 5);
        let text: Update<String, i64> = Update::new("raw");
        let error = failed(lab.update(&order, text, &"five".into()).await);
        assert!(error.contains("raw"), "{error}");
        // The answer is a number, and the asker wants a text.
        let odd: Update<i64, String> = Update::new("raw");
        let error = lab.update(&order, odd, &5).await.unwrap_err();
        assert!(matches!(error, UpdateError::Error(_)) && error.to_string().contains("the answer"), "{error}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_answer_that_cannot_be_stored_fails_the_update_and_does_not_loop(lab: Lab) {
        // rules 4.2 and 9.2
        let limits = Limits { payload_bytes: 1_000, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        let error = failed(lab.update(&order, LARGE, &2_000).await);
        assert!(error.contains("payload_bytes"), "{error}");
        assert_eq!(lab.update(&order, LARGE, &10).await.unwrap().len(), 10);
        lab.signal(&order, SHUT, &()).await.unwrap();
        lab.came_to(&order).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_instance_that_ends_first_fails_its_updates_and_says_so(lab: Lab) {
        // rule 9.2
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "ends").await;
        till.gate.reached_by(1).await;
        let update = lab.update(&order, ADD, &5).accepted().await.unwrap();
        till.gate.open();
        let error = failed(update.answer().await);
        assert!(error.contains("ended as done"), "{error}");
        assert_eq!(lab.came_to(&order).await.total, 0);
        assert_eq!(update.record().await.unwrap().unwrap().status.name(), "failed");
        // Cancelled, likewise.
        let order = lab.start(till.clone(), books("waits")).key("w").delay(abide::time::hours(1)).await.unwrap();
        let blocked = lab.start(Till::gated(), books("waits")).key("x").queue("unserved").await.unwrap();
        let update = lab.update(&blocked, ADD, &1).accepted().await.unwrap();
        lab.cancel(&blocked, "not wanted").await.unwrap();
        let error = failed(update.answer_within(millis(20_000)).await);
        assert!(error.contains("ended as cancelled"), "{error}");
        assert_eq!(lab.update(&order, ADD, &1).await.unwrap(), 1, "what is due later takes updates now");
        assert_eq!(lab.now(order.id()).await.status, Status::Scheduled);
        engine.shutdown().await;
    }
}
