//! Signals that are held for a key that no instance has yet.

use abide::done;
use abide::model::Key;
use abide::store::CommandFilter;
use abide::time::{hours, millis};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{GO, NOTE, PAID, args, decision, payment, sent_to};

/// Waits until it has been handed two notes.
fn two_notes() -> Script {
    Script::new(|at, ctx| match at {
        At::One => ctx.wait_for(NOTE).then(At::Two),
        _ if ctx.signals().len() < 2 => ctx.wait_for(NOTE).then(At::Two),
        _ => done(json!(ctx.awaited_all(NOTE)?)),
    })
}

on_every_store! {
    async fn a_held_signal_is_handed_to_the_instance_that_starts_under_the_key(lab: Lab) {
        // rule 7.8
        let engine = lab.engine().machine(two_notes()).start().await.unwrap();
        for text in ["one", "two"] {
            let receipt = lab.signal("order:1", NOTE, &text.to_owned()).hold_for(hours(1)).dedup(text).await.unwrap();
            assert_eq!((receipt.instance(), receipt.sequence(), receipt.record.status.name()), (None, None, "held"));
            assert_eq!(receipt.record.outcome(), "signal_held");
            assert!(receipt.record.hold_until.is_some());
        }
        let again = lab.signal("order:1", NOTE, &"one".into()).hold_for(hours(1)).dedup("one").await.unwrap();
        assert!(again.duplicate && again.record.status.name() == "held");
        let other = lab.signal("order:1", NOTE, &"else".into()).hold_for(hours(1)).dedup("one").await.unwrap_err();
        assert_eq!(decision(&other).0, "rejected_conflicting_duplicate");
        assert_eq!(lab.commands("order:1", None, 10).await.unwrap().items.len(), 3, "seen by the key");

        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(["one", "two"]), "in order");
        let sent = sent_to(&lab, order.id()).await;
        let lives: Vec<_> = sent.iter().filter_map(|one| Some((one.sequence?.0, one.status.name()))).collect();
        assert_eq!(lives, [(1, "applied"), (2, "applied")]);
        // A key that an instance holds keeps no signals.
        let late = lab.signal("order:1", NOTE, &"one".into()).dedup("one").await.unwrap();
        assert!(late.duplicate);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn to_a_key_that_somebody_holds_it_is_delivered_at_once(lab: Lab) {
        // rule 7.8
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let receipt = lab.signal("order:1", GO, &()).hold_for(hours(1)).await.unwrap();
        assert_eq!((receipt.instance(), receipt.record.status.name()), (Some(order.id()), "received"));
    }
}

on_every_store! {
    async fn when_the_last_run_of_the_key_has_ended_it_is_held_for_the_next(lab: Lab) {
        // rules 7.3 and 7.8
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One if ctx.state() == "first" => done(json!("first")),
            At::One => ctx.wait_for(NOTE).then(At::Two),
            _ => done(json!(ctx.awaited(NOTE)?)),
        })).start().await.unwrap();
        let first = lab.start(Script::any(), json!("first")).key("order:1").await.unwrap();
        lab.came_to(&first).await;
        let held = lab.signal("order:1", NOTE, &"for the next".into()).hold_for(hours(1)).await.unwrap();
        assert_eq!(held.record.status.name(), "held");
        let second = lab.start(Script::any(), json!("second")).key("order:1").await.unwrap();
        assert_eq!(lab.came_to(&second).await, json!("for the next"));
        assert_eq!(sent_to(&lab, second.id()).await[0].sequence.unwrap().0, 1, "a chain of its own");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_signal_that_was_held_too_long_expires_and_is_never_delivered(lab: Lab) {
        // rules 7.6 and 7.8
        let short = lab.signal("order:1", NOTE, &"short".into()).hold_for(millis(5)).await.unwrap();
        lab.signal("order:1", NOTE, &"long".into()).hold_for(hours(1)).await.unwrap();
        tokio::time::sleep(millis(40)).await;
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        assert_eq!(lab.now(order.id()).await.inbox.signals, 1);
        let filter = CommandFilter { key: Some(Key::new("order:1").unwrap()), ..CommandFilter::default() };
        let records = lab.list_commands(&filter, None, 10).await.unwrap().items;
        let lives: Vec<_> = records.iter().map(|one| (one.id == short.id(), one.status.name(), one.outcome())).collect();
        assert_eq!(lives, [(false, "received", "signal_received"), (true, "expired", "signal_held")]);
        assert!(records[1].closed_at.is_some() && records[1].sequence.is_none());
    }
}

on_every_store! {
    async fn a_held_signal_is_validated_against_the_contract_of_the_instance_that_starts(lab: Lab) {
        // rules 7.8 and 8.2
        let good = lab.signal("order:1", "paid", args(&[json!(5)])).hold_for(hours(1)).await.unwrap();
        let bad = lab.signal("order:1", "paid", args(&[json!("five")])).hold_for(hours(1)).await.unwrap();
        let unknown = lab.signal("order:1", GO, &()).hold_for(hours(1)).await.unwrap();
        let engine = lab.engine().machine(crate::signals::Strict).start().await.unwrap();
        let order = lab.start(crate::signals::Strict, json!(null)).key("order:1").await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(payment(5)));
        let sent = sent_to(&lab, order.id()).await;
        let lives: Vec<_> = sent.iter().map(|one| (one.id, one.status.name(), one.rejection.map(|why| why.reason()))).collect();
        assert_eq!(lives, [
            (good.id(), "applied", None),
            (bad.id(), "rejected", Some("invalid_signal_arguments")),
            (unknown.id(), "rejected", Some("unknown_signal")),
        ]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_is_handed_what_is_held_for_its_key(lab: Lab) {
        // rules 7.8 and 10.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One if ctx.state() == "parent" => {
                ctx.spawn([abide::client::new_start(Script::any(), json!("child")).key("child:1")]).then(At::Three)
            }
            At::One => ctx.wait_for(PAID).then(At::Two),
            At::Two => done(json!(ctx.awaited(PAID)?.amount)),
            At::Three => done(crate::signals::value(ctx.children()[0].result.as_ref().unwrap())),
        })).start().await.unwrap();
        lab.signal("child:1", PAID, &payment(9)).hold_for(hours(1)).await.unwrap();
        let parent = lab.start(Script::any(), json!("parent")).await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!(9));
        engine.shutdown().await;
    }
}
