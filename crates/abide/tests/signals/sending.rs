//! The targets of signals, one at a time and many at once.

use abide::client::{SendError, new_signal, new_start};
use abide::done;
use abide::model::{Key, Target};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{GO, NOTE, args, decision, sent_to, waits_for};

on_every_store! {
    async fn an_instance_is_addressed_by_id_key_handle_or_text(lab: Lab) {
        // rules 2.2 and 7.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            _ if ctx.signals().len() < 8 => ctx.wait_for(NOTE).then(At::Two),
            _ => done(json!(ctx.awaited_all(NOTE)?)),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let (id, key) = (order.id(), Key::new("order:1").unwrap());
        let say = |text: &str| text.to_owned();
        lab.signal(id, NOTE, &say("id")).await.unwrap();
        lab.signal(key.clone(), NOTE, &say("key")).await.unwrap();
        lab.signal(Target::Id(id), NOTE, &say("target")).await.unwrap();
        lab.signal(&order, NOTE, &say("handle")).await.unwrap();
        lab.signal("order:1", NOTE, &say("text")).await.unwrap();
        lab.signal(id.to_string(), NOTE, &say("digits")).await.unwrap();
        let text = String::from("order:1");
        lab.signal(&text, NOTE, &say("string")).await.unwrap();
        lab.signal(Target::Key(key), NOTE, &say("last")).await.unwrap();
        let heard = lab.came_to(&order).await;
        assert_eq!(heard, json!(["id", "key", "target", "handle", "text", "digits", "string", "last"]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_handle_without_a_key_stands_for_its_id(lab: Lab) {
        // rule 7.1
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        let receipt = lab.signal(&order, GO, &()).source("the test").await.unwrap();
        assert_eq!(receipt.instance(), Some(order.id()));
        assert_eq!(receipt.record.source.as_deref(), Some("the test"));
        let there = lab.handle::<serde_json::Value>(order.id()).await.unwrap().unwrap();
        assert_eq!(lab.signal(&there, GO, &()).await.unwrap().sequence().unwrap().0, 2);
    }
}

on_every_store! {
    async fn a_thousand_signals_in_one_call_wake_a_thousand(lab: Lab) {
        // rules 2.3 and 7.1
        let engine = lab.engine().machine(waits_for("note")).start().await.unwrap();
        let specs = (0..1_000).map(|n| new_start(Script::any(), json!(null)).key(format!("order:{n}")));
        let ids: Vec<_> = lab.start_all(specs).await.unwrap().into_iter().map(|one| one.unwrap().id()).collect();
        let signals = (0..1_000).map(|n| new_signal(format!("order:{n}"), NOTE, &n.to_string()).dedup(format!("evt-{n}")));
        let sent = lab.signal_all(signals).await.unwrap();
        assert_eq!(sent.len(), 1_000);
        for (receipt, id) in sent.iter().zip(&ids) {
            let receipt = receipt.as_ref().unwrap();
            assert_eq!((receipt.instance(), receipt.sequence().unwrap().0), (Some(*id), 1));
        }
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(crate::signals::value(&lab.ended(*id).await.result.unwrap()), json!(n.to_string()));
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn one_call_delivers_the_valid_signals_and_reports_each_invalid_one(lab: Lab) {
        // rule 7.3
        let engine = lab.engine().machine(waits_for("note")).start().await.unwrap();
        let live = lab.start(Script::any(), json!(null)).key("live").await.unwrap();
        let over = lab.start(Script::any(), json!(null)).key("over").await.unwrap();
        lab.signal("over", NOTE, &"end".into()).await.unwrap();
        lab.came_to(&over).await;
        lab.reserve(Script::any(), "reserved").await.unwrap();
        let say = |to: &str, text: &str| new_signal(to, NOTE, &text.to_owned());
        let sent = lab.signal_all([
            say("missing", "1"),
            say("over", "2"),
            say("live", "3").dedup("d"),
            say("reserved", "4"),
            say("live", "3").dedup("d"),
            say("live", "other").dedup("d"),
            say("missing", "5").hold_for(abide::time::hours(1)),
            say(&over.id().to_string(), "6"),
        ]).await.unwrap();
        let outcomes: Vec<_> = sent.iter().map(|one| match one {
            Ok(receipt) => (receipt.record.outcome(), receipt.duplicate),
            Err(error) => (error.outcome().unwrap(), false),
        }).collect();
        assert_eq!(outcomes, [
            ("no_target", false),
            ("rejected_not_active", false),
            ("signal_received", false),
            ("rejected_not_started", false),
            ("signal_received", true),
            ("rejected_conflicting_duplicate", false),
            ("signal_held", false),
            ("rejected_not_active", false),
        ]);
        assert_eq!(lab.came_to(&live).await, json!("3"));
        assert!(matches!(sent[0], Err(SendError::NoTarget(_))));
        assert_eq!(decision(sent[1].as_ref().unwrap_err()), ("rejected_not_active", Some("run_not_active")));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_cannot_be_a_signal_is_an_error_before_anything_is_sent(lab: Lab) {
        // rules 2.2 and 7.3
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let errors = [
            lab.signal("order\u{7}", NOTE, &"a".into()).await.unwrap_err(),
            lab.signal("", NOTE, &"a".into()).await.unwrap_err(),
            lab.signal("order:1", "", args(&[])).await.unwrap_err(),
            lab.signal("order:1", NOTE, &"a".into()).dedup("").await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, SendError::Error(_)) && error.outcome().is_none(), "{error}");
        }
        let signals = [new_signal("order:1", NOTE, &"a".into()), new_signal("", NOTE, &"b".into())];
        assert!(lab.signal_all(signals).await.is_err());
        assert!(lab.signal_all(Vec::<abide::client::SignalBuilder>::new()).await.unwrap().is_empty());
        assert!(sent_to(&lab, order.id()).await.is_empty());
    }
}

on_every_store! {
    async fn many_senders_at_once_lose_nothing_and_share_transactions(lab: Lab) {
        // rule 7.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            _ if ctx.signals().len() < 500 => ctx.wait_for(NOTE).then(At::Two),
            _ => done(json!(ctx.signals().len())),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let senders = (0..10).map(|sender| {
            let lab = lab.clone();
            tokio::spawn(async move {
                for n in 0..50 {
                    lab.signal("order:1", NOTE, &format!("{sender}:{n}")).await.unwrap();
                }
            })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.unwrap();
        }
        assert_eq!(lab.came_to(&order).await, json!(500));
        // Each sender's own came in its order. The ids of records are issued before the instance is locked, so two
        // transactions at a time may have them in another order.
        let mut sent = sent_to(&lab, order.id()).await;
        sent.sort_by_key(|one| one.sequence);
        for sender in 0..10 {
            let own = sent.iter().filter_map(|one| {
                let text = one.arguments.to::<Vec<String>>().unwrap().remove(0);
                text.strip_prefix(&format!("{sender}:"))?.parse::<u32>().ok()
            });
            assert!(own.eq(0..50));
        }
        assert!(sent.iter().map(|one| one.sequence.unwrap().0).eq(1..=500));
        engine.shutdown().await;
    }
}
