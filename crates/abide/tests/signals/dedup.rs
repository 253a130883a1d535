//! Signals that are sent more than once.

use abide::done;
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{NOTE, PAID, Payment, decision, payment, sent_to, waits_for};

on_every_store! {
    async fn sent_again_it_is_the_same_signal(lab: Lab) {
        // rule 7.3
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let first = lab.signal("order:1", PAID, &payment(1)).dedup("evt-7").await.unwrap();
        for to in [order.id().to_string(), "order:1".to_owned()] {
            let again = lab.signal(to, PAID, &payment(1)).dedup("evt-7").source("another").await.unwrap();
            assert!(again.duplicate);
            assert_eq!((again.id(), again.sequence(), again.record.source), (first.id(), first.sequence(), None));
        }
        assert!(!first.duplicate);
        assert_eq!(sent_to(&lab, order.id()).await.len(), 1);
        assert_eq!(lab.now(order.id()).await.inbox.signals, 1);
    }
}

on_every_store! {
    async fn the_same_dedup_key_for_something_else_is_refused_and_recorded(lab: Lab) {
        // rule 7.3
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.signal("order:1", PAID, &payment(1)).dedup("evt-7").await.unwrap();
        let other = Payment { amount: 1, note: Some("no".into()) };
        let arguments = lab.signal("order:1", PAID, &other).dedup("evt-7").await.unwrap_err();
        let name = lab.signal("order:1", NOTE, &"a".into()).dedup("evt-7").await.unwrap_err();
        for error in [arguments, name] {
            assert_eq!(decision(&error), ("rejected_conflicting_duplicate", Some("dedup_conflict")));
        }
        let lives: Vec<_> = sent_to(&lab, order.id()).await.iter().map(|one| (one.status.name(), one.sequence.map(|at| at.0))).collect();
        assert_eq!(lives, [("received", Some(1)), ("rejected", None), ("rejected", None)]);
        // It is by chain: another instance has its own.
        lab.start(Script::any(), json!(null)).key("order:2").await.unwrap();
        assert!(!lab.signal("order:2", NOTE, &"a".into()).dedup("evt-7").await.unwrap().duplicate);
    }
}

on_every_store! {
    async fn numbers_and_orders_of_fields_that_mean_the_same_are_the_same(lab: Lab) {
        // rule 7.3
        lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let send = |text: &str| {
            let payload = abide::message::Arguments::Payload(abide::model::Json::parse(text.to_owned()).unwrap());
            lab.signal("order:1", "x", payload).dedup("d")
        };
        assert!(!send(r#"{"a": 1, "b": [1.0, "é"]}"#).await.unwrap().duplicate);
        assert!(send(r#"{"b":[1,"\u00e9"],"a":1.0}"#).await.unwrap().duplicate);
        assert!(send(r#"{"b":[1,"e"],"a":1}"#).await.is_err());
    }
}

on_every_store! {
    async fn what_was_accepted_is_known_after_the_instance_has_ended(lab: Lab) {
        // rules 1.1 and 7.3
        let engine = lab.engine().machine(waits_for("note")).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let first = lab.signal("order:1", NOTE, &"a".into()).dedup("evt-7").await.unwrap();
        lab.came_to(&order).await;
        let again = lab.signal("order:1", NOTE, &"a".into()).dedup("evt-7").await.unwrap();
        assert!(again.duplicate && again.id() == first.id());
        assert_eq!((again.record.status.name(), again.record.outcome()), ("applied", "signal_received"));
        let other = lab.signal("order:1", NOTE, &"b".into()).dedup("evt-7").await.unwrap_err();
        assert_eq!(decision(&other).0, "rejected_conflicting_duplicate");
        let fresh = lab.signal("order:1", NOTE, &"a".into()).dedup("evt-8").await.unwrap_err();
        assert_eq!(decision(&fresh), ("rejected_not_active", Some("run_not_active")));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn fifty_at_once_are_one(lab: Lab) {
        // rule 7.3
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            _ => done(json!(ctx.signals().len())),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let other = lab.again().await;
        let sends = (0..50).map(|n| {
            let abide = if n % 2 == 0 { (*lab).clone() } else { other.clone() };
            tokio::spawn(async move { abide.signal("order:1", NOTE, &"a".into()).dedup("d").await.unwrap() })
        });
        let mut first = 0;
        let mut ids = std::collections::BTreeSet::new();
        for send in sends.collect::<Vec<_>>() {
            let receipt = send.await.unwrap();
            first += usize::from(!receipt.duplicate);
            ids.insert(receipt.id());
        }
        assert_eq!((first, ids.len()), (1, 1));
        assert_eq!(lab.came_to(&order).await, json!(1));
        assert_eq!(sent_to(&lab, order.id()).await.len(), 1);
        engine.shutdown().await;
    }
}
