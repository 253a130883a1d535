//! The record of every signal, and what the history tells of it.

use abide::history::HistoryEvent;
use abide::model::{CommandKind, CommandStatus, Key, Name};
use abide::store::CommandFilter;
use abide::{done, next};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{GO, NOTE, args, sent_to};

on_every_store! {
    async fn every_signal_leaves_a_record_with_its_life(lab: Lab) {
        // rules 7.3 and 7.6
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let id = order.id();
        lab.signal("order:1", NOTE, &"one".into()).dedup("a").source("crm").await.unwrap();
        lab.signal("order:1", NOTE, &"two".into()).await.unwrap();
        lab.signal("order:1", NOTE, &"else".into()).dedup("a").await.unwrap_err();
        lab.signal("order:1", "never", args(&[json!(1)])).await.unwrap();
        let sent = sent_to(&lab, id).await;
        let lives: Vec<_> = sent.iter().map(|one| one.status.name()).collect();
        assert_eq!(lives, ["received", "received", "rejected", "received"]);
        let first = &sent[0];
        assert_eq!((first.kind, first.name.as_str()), (CommandKind::Signal, "note"));
        assert_eq!((first.instance, first.chain), (Some(id), Some(id)));
        assert_eq!((first.key.as_ref().map(Key::as_str), first.source.as_deref()), (Some("order:1"), Some("crm")));
        assert_eq!(first.dedup_key.as_ref().map(Name::as_str), Some("a"));
        assert!(first.wait_id.is_some() && first.closed_at.is_none() && first.step_sequence.is_none());

        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            At::Two => next(At::Three),
            At::Three => done(json!(null)),
        })).start().await.unwrap();
        lab.came_to(&order).await;
        let sent = sent_to(&lab, id).await;
        let lives: Vec<_> = sent.iter().map(|one| (one.status.name(), one.step_sequence)).collect();
        assert_eq!(lives, [("applied", Some(2)), ("applied", Some(2)), ("rejected", None), ("discarded", None)]);
        assert!(sent.iter().all(|one| one.closed_at.is_some_and(|at| at >= one.received_at)));
        assert_eq!(sent[0].arguments.to::<Vec<String>>().unwrap(), ["one"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn records_are_listed_newest_first_page_by_page_and_by_filter(lab: Lab) {
        // rule 7.6
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.start(Script::any(), json!(null)).key("order:2").await.unwrap();
        for n in 0..7 {
            lab.signal("order:1", NOTE, &n.to_string()).await.unwrap();
            lab.signal("order:2", GO, &()).await.unwrap();
        }
        let mut seen = Vec::new();
        let mut before = None;
        loop {
            let page = lab.commands("order:1", before, 3).await.unwrap();
            seen.extend(page.items.iter().map(|one| one.sequence.unwrap().0));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
        let count = async |filter: CommandFilter| lab.list_commands(&filter, None, 100).await.unwrap().items.len();
        let all = CommandFilter::default;
        assert_eq!(count(all()).await, 14);
        assert_eq!(count(CommandFilter { name: Some(Name::new("go").unwrap()), ..all() }).await, 7);
        assert_eq!(count(CommandFilter { instance: Some(order.id()), ..all() }).await, 7);
        assert_eq!(count(CommandFilter { key: Some(Key::new("order:2").unwrap()), ..all() }).await, 7);
        assert_eq!(count(CommandFilter { status: Some(CommandStatus::Applied), ..all() }).await, 0);
        assert_eq!(count(CommandFilter { kind: Some(CommandKind::Update), ..all() }).await, 0);
    }
}

on_every_store! {
    async fn received_opened_and_applied_show_one_wait(lab: Lab) {
        // rules 7.6 and 16.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            At::Two => next(At::Three),
            At::Three => done(json!(null)),
        })).start().await.unwrap();
        let id = crate::signals::parked(&lab, "order:1").await;
        let waits = lab.now(id).await.wait_id().cloned().unwrap();
        let receipt = lab.signal(id, NOTE, &"a".into()).source("crm").await.unwrap();
        assert_eq!(receipt.record.wait_id.as_ref(), Some(&waits), "the one that is open");
        lab.ended(id).await;
        let events = lab.events(id).await;
        let mut seen = Vec::new();
        for entry in &events {
            match &entry.what {
                HistoryEvent::WaitOpened { wait_id, names, .. } => {
                    assert_eq!(names[0].as_str(), "note");
                    seen.push(("opened", wait_id.clone().unwrap()));
                }
                HistoryEvent::SignalReceived { command_id, name, message_sequence, wait_id, source, .. } => {
                    assert_eq!((*command_id, name.as_str(), message_sequence.0), (receipt.id(), "note", 1));
                    assert_eq!(source.as_deref(), Some("crm"));
                    seen.push(("received", wait_id.clone()));
                }
                HistoryEvent::SignalApplied { command_id, wait_id, step, step_sequence, .. } => {
                    assert_eq!((*command_id, step.as_str(), *step_sequence), (receipt.id(), "two", 2));
                    seen.push(("applied", wait_id.clone()));
                }
                HistoryEvent::MessageCursorAdvanced { stream, from, to } => {
                    assert_eq!((stream.as_str(), from.0, to.0), ("inbox", 0, 1));
                }
                _ => {}
            }
        }
        assert_eq!(seen, [("opened", waits.clone()), ("received", waits.clone()), ("applied", waits.clone())]);
        assert_eq!(sent_to(&lab, id).await[0].wait_id, Some(waits));
        assert_eq!(lab.kinds(id).await, [
            "started", "step_completed", "wait_opened", "signal_received", "step_completed", "signal_applied",
            "message_cursor_advanced", "step_completed", "done",
        ]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_first_event_of_a_run_has_its_declarations(lab: Lab) {
        // rules 8.2 and 16.1
        let strict = lab.start(crate::signals::Strict, json!(null)).await.unwrap();
        let free = lab.start(Script::any(), json!(null)).await.unwrap();
        let events = lab.events(strict.id()).await;
        let HistoryEvent::Started { declared_signals, declared_signal_contracts, declared_updates, run_number, .. } =
            &events[0].what else { panic!("{events:?}") };
        let names: Vec<&str> = declared_signals.iter().map(Name::as_str).collect();
        assert_eq!((names, declared_updates.len(), *run_number), (vec!["paid", "moved"], 0, 1));
        let shown = serde_json::to_value(&events[0]).unwrap();
        let paid = &shown["data"]["declared_signal_contracts"][0];
        assert_eq!((&paid["name"], &paid["parameters"][0]["name"]), (&json!("paid"), &json!("amount")));
        assert_eq!(declared_signal_contracts.len(), 2);
        let shown = serde_json::to_value(&lab.events(free.id()).await[0]).unwrap();
        assert!(shown["data"].get("declared_signals").is_none_or(|none| none == &json!([])), "{shown}");
    }
}
