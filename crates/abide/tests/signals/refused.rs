//! The decision table: each refusal has an outcome, and leaves a record.

use abide::client::SendError;
use abide::machine::continue_as_new;
use abide::model::Limits;
use abide::{Abide, InstanceId, done};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{GO, NOTE, PAID, args, decision, payment, sent_to, waits_for};

fn rejected(error: SendError) -> abide::client::Rejected {
    match error {
        SendError::Rejected(rejected) => *rejected,
        other => panic!("{other}"),
    }
}

on_every_store! {
    async fn a_missing_target_is_reported_and_leaves_no_record(lab: Lab) {
        // rule 7.3
        for error in [
            lab.signal("missing", GO, &()).await.unwrap_err(),
            lab.signal(InstanceId(999_999), GO, &()).await.unwrap_err(),
            lab.signal("999999", GO, &()).hold_for(abide::time::hours(1)).await.unwrap_err(),
        ] {
            assert!(matches!(error, SendError::NoTarget(_)));
            assert_eq!(decision(&error), ("no_target", None));
            assert!(error.to_string().contains("hold_for"), "{error}");
        }
        let error = lab.signal("order:42", GO, &()).await.unwrap_err().to_string();
        assert!(error.starts_with("no instance with the id or key \"order:42\": start it first"), "{error}");
        assert!(lab.list_commands(&Default::default(), None, 10).await.unwrap().items.is_empty());
    }
}

on_every_store! {
    async fn what_is_reserved_takes_no_signals_before_it_is_started(lab: Lab) {
        // rules 2.7 and 7.3
        let reserved = lab.reserve(Script::any(), "order:1").await.unwrap();
        let error = lab.signal("order:1", GO, &()).await.unwrap_err();
        assert_eq!(decision(&error), ("rejected_not_started", Some("instance_not_started")));
        assert!(error.to_string().contains("start it first"), "{error}");
        let record = rejected(error).record.unwrap();
        assert_eq!((record.status.name(), record.instance, record.sequence), ("rejected", Some(reserved.id()), None));
        assert_eq!(sent_to(&lab, reserved.id()).await, [record]);
    }
}

on_every_store! {
    async fn a_run_that_is_not_the_newest_names_the_one_that_is(lab: Lab) {
        // rules 2.5 and 7.3
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => continue_as_new(At::Two),
            At::Two => ctx.wait_for(GO).then(At::Three),
            At::Three => done(json!("went on")),
        })).start().await.unwrap();
        let old = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.ended(old.id()).await;
        let new = lab.get("order:1").await.unwrap().unwrap().id;
        assert_ne!(new, old.id());
        let error = lab.signal(old.id(), GO, &()).await.unwrap_err();
        assert_eq!(decision(&error), ("rejected_not_current", Some("run_not_current")));
        assert!(error.to_string().ends_with(&format!("the newest is {new}")), "{error}");
        assert_eq!(rejected(error).current, Some(new));
        // The handle has a key, so the newest is meant.
        lab.signal(&old, GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&old).await, json!("went on"));
        // Also when the newest has ended, which its own refusal shows.
        let error = lab.signal(old.id(), GO, &()).await.unwrap_err();
        assert_eq!((decision(&error).0, rejected(error).current), ("rejected_not_current", Some(new)));
        let error = lab.signal(new, GO, &()).await.unwrap_err();
        assert_eq!((decision(&error).0, rejected(error).current), ("rejected_not_active", None));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_has_ended_takes_nothing_and_says_so(lab: Lab) {
        // rule 7.3
        let engine = lab.engine().machine(waits_for("go")).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.signal(&order, GO, &()).await.unwrap();
        lab.came_to(&order).await;
        let error = lab.signal("order:1", GO, &()).source("late").await.unwrap_err();
        assert_eq!(decision(&error), ("rejected_not_active", Some("run_not_active")));
        assert_eq!(error.to_string(), "the instance has ended");
        let record = rejected(error).record.unwrap();
        assert_eq!((record.rejection.unwrap().reason(), record.source.as_deref()), ("run_not_active", Some("late")));
        assert!(record.closed_at.is_some());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_the_machine_does_not_declare_and_what_breaks_the_contract_is_refused(lab: Lab) {
        // rules 7.3 and 8.3
        let order = lab.start(crate::signals::Strict, json!(null)).key("order:1").await.unwrap();
        let unknown = lab.signal("order:1", NOTE, &"a".into()).await.unwrap_err();
        assert_eq!(decision(&unknown), ("rejected_unknown_signal", Some("unknown_signal")));
        let invalid = lab.signal("order:1", "paid", args(&[json!("five"), json!(null), json!(1)])).await.unwrap_err();
        assert_eq!(decision(&invalid), ("rejected_invalid_arguments", Some("invalid_signal_arguments")));
        let text = invalid.to_string();
        assert!(text.contains("amount") && text.contains("break the contract"), "{text}");
        let errors = rejected(invalid).validation_errors().unwrap();
        assert_eq!(errors.problems().keys().collect::<Vec<_>>(), ["amount", "arguments"], "all of them at once");
        lab.signal("order:1", PAID, &payment(5)).await.unwrap();
        let lives: Vec<_> = sent_to(&lab, order.id()).await.iter().map(|one| (one.status.name(), one.sequence.map(|at| at.0))).collect();
        assert_eq!(lives, [("rejected", None), ("rejected", None), ("received", Some(1))], "refused ones get no number");
    }
}

on_every_store! {
    async fn a_full_inbox_and_a_large_payload_are_refused_with_their_limits(lab: Lab) {
        // rules 7.3 and 16.3
        let limits = Limits { inbox_pending: 3, payload_bytes: 100, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let large = lab.signal("order:1", NOTE, &"x".repeat(200)).await.unwrap_err();
        assert_eq!(decision(&large), ("rejected_limit_exceeded", Some("payload_too_large")));
        assert!(large.to_string().contains("payload_bytes"), "{large}");
        assert_eq!(rejected(large).record.unwrap().arguments.as_str(), "null", "it is not kept");
        for n in 0..3 {
            lab.signal("order:1", NOTE, &n.to_string()).dedup(n.to_string()).await.unwrap();
        }
        let full = lab.signal("order:1", GO, &()).await.unwrap_err();
        assert_eq!(decision(&full), ("rejected_limit_exceeded", Some("inbox_full")));
        assert!(full.to_string().contains("inbox_pending"), "{full}");
        // What is there already is not one more.
        assert!(lab.signal("order:1", NOTE, &"0".into()).dedup("0").await.unwrap().duplicate);
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            At::Two => abide::next(At::Three),
            At::Three if !ctx.got(GO) => ctx.wait_for(GO).then(At::Three),
            At::Three => done(json!(null)),
        })).start().await.unwrap();
        lab.until(order.id(), "it to have room", |row| row.inbox.signals == 0).await;
        lab.signal("order:1", GO, &()).await.unwrap();
        lab.came_to(&order).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_inbox_of_five_thousand_is_full_by_default(lab: Lab) {
        // rules 7.3 and 16.3
        lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let signals = (0..5_001).map(|_| abide::client::new_signal("order:1", GO, &()));
        let sent = lab.signal_all(signals).await.unwrap();
        assert!(sent[..5_000].iter().all(Result::is_ok));
        assert_eq!(decision(sent[5_000].as_ref().unwrap_err()).1, Some("inbox_full"));
    }
}
