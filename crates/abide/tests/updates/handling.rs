//! The changes that updates make, in every status of an instance.

use abide::Status;
use abide::client::{SendError, UpdateError};
use abide::history::HistoryEvent;
use abide::model::WaitKind;

use crate::common::Lab;
use crate::updates::{ADD, CLOSE, RENEW, SHUT, SKIP, Till, books, engine, standing};

on_every_store! {
    async fn an_update_changes_what_waits_sleeps_or_joins_and_leaves_it_where_it_stood(lab: Lab) {
        // rule 9.1
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        for how in ["waits", "waits until", "sleeps", "joins"] {
            let order = standing(&lab, &till, how).await;
            let before = lab.now(order.id()).await;
            assert_eq!(lab.update(&order, ADD, &5).await.unwrap(), 5);
            assert_eq!(lab.update(order.id(), ADD, &2).await.unwrap(), 7);
            let after = lab.until_status(order.id(), before.status).await;
            assert_eq!(after.state.to::<crate::updates::Books>().unwrap().entries, [5, 2], "committed with the answer");
            assert_eq!((after.due_at, &after.awaits), (before.due_at, &before.awaits));
            assert_eq!((after.step_seq, after.attempt, after.inbox.updates), (before.step_seq, before.attempt, 0));
            assert!(after.aside.is_none());
        }
        // They go on as they would have.
        lab.signal("waits", SHUT, &()).await.unwrap();
        let order = lab.handle::<crate::updates::Books>("waits").await.unwrap().unwrap();
        assert_eq!(lab.came_to(&order).await.total, 7);
        till.gate.open();
        let order = lab.handle::<crate::updates::Books>("joins").await.unwrap().unwrap();
        assert_eq!(lab.came_to(&order).await.entries, [5, 2]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_update_to_what_runs_is_handled_between_two_steps(lab: Lab) {
        // rules 9.1 and 9.4
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "runs").await;
        till.gate.reached_by(1).await;
        let update = lab.update(&order, ADD, &5).accepted().await.unwrap();
        assert_eq!(till.log.len(), 0, "not while the step runs");
        till.gate.open();
        assert_eq!(update.answer().await.unwrap(), 5);
        let came_to = lab.came_to(&order).await;
        assert_eq!((came_to.total, came_to.entries), (5, vec![0, 5]), "after the step, and before the next");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_update_leaves_a_record_and_history_events(lab: Lab) {
        // rules 9.2, 7.7 and 16.1
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        let update = lab.update(&order, ADD, &5).source("desk 3").accepted().await.unwrap();
        let receipt = update.receipt().unwrap();
        assert_eq!((receipt.record.outcome(), receipt.record.status.name()), ("update_accepted", "accepted"));
        assert_eq!(receipt.sequence().unwrap().0, 1);
        update.answer().await.unwrap();
        let record = update.record().await.unwrap().unwrap();
        assert_eq!((record.status.name(), record.result.unwrap().as_str()), ("completed", "5"));
        assert_eq!((record.error, record.source.as_deref(), record.step_sequence), (None, Some("desk 3"), Some(2)));
        let events = lab.events(order.id()).await;
        let kinds: Vec<_> = events.iter().map(|entry| entry.what.kind()).collect();
        assert_eq!(kinds, ["started", "step_completed", "wait_opened", "update_accepted", "update_completed", "message_cursor_advanced"]);
        let HistoryEvent::UpdateAccepted { update_id, name, message_sequence, source, .. } = &events[3].what else { panic!() };
        assert_eq!((*update_id, name.as_str(), message_sequence.0, source.as_deref()), (update.id(), "add", 1, Some("desk 3")));
        let HistoryEvent::Started { declared_updates, .. } = &events[0].what else { panic!() };
        assert_eq!(declared_updates[0].as_str(), "add");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_answer_may_lead_on_to_another_step(lab: Lab) {
        // rule 9.1
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        for how in ["waits", "sleeps", "joins"] {
            let order = standing(&lab, &till, how).await;
            lab.update(&order, ADD, &3).await.unwrap();
            assert_eq!(lab.update(&order, SKIP, &()).await.unwrap(), 3);
            assert_eq!(lab.came_to(&order).await.entries, [3]);
        }
        till.gate.open();
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_answer_may_end_the_instance_or_begin_a_new_run(lab: Lab) {
        // rules 2.4 and 9.1
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        lab.update("waits", ADD, &3).await.unwrap();
        assert_eq!(lab.update("waits", RENEW, &()).await.unwrap(), 1);
        let second = lab.get("waits").await.unwrap().unwrap();
        assert_eq!((second.run.number, second.run.first), (2, Some(order.id())));
        assert_eq!(lab.update("waits", ADD, &4).await.unwrap(), 7, "the new run goes on with the state");
        assert_eq!(lab.update("waits", CLOSE, &()).await.unwrap(), "closed");
        let came_to = lab.came_to(&order).await;
        assert_eq!((came_to.total, came_to.entries), (0, vec![4]));
        let error = lab.update("waits", ADD, &1).await.unwrap_err();
        let UpdateError::Send(SendError::Rejected(rejected)) = error else { panic!("{error}") };
        assert_eq!(rejected.why.outcome(), "rejected_not_active");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn updates_and_signals_apply_in_their_order(lab: Lab) {
        // rule 9.4: the update came before the signal, so the step that the signal wakes sees what it did.
        let till = Till::gated();
        let order = lab.start(till.clone(), books("waits")).key("waits").await.unwrap();
        let first = engine(&lab, &till).await;
        lab.until_status(order.id(), Status::AwaitingSignal).await;
        first.shutdown().await;
        let update = lab.update("waits", ADD, &1).accepted().await.unwrap();
        lab.signal("waits", SHUT, &()).await.unwrap();
        let late = lab.update("waits", ADD, &10).accepted().await.unwrap();
        let second = engine(&lab, &till).await;
        let came_to = lab.came_to(&order).await;
        assert_eq!((came_to.total, came_to.entries), (1, vec![1]));
        assert_eq!(update.answer().await.unwrap(), 1);
        let error = late.answer().await.unwrap_err().to_string();
        assert!(error.contains("ended as done"), "the signal went before it: {error}");
        second.shutdown().await;
    }
}

on_every_store! {
    async fn a_buffered_signal_that_is_not_waited_for_never_delays_an_update(lab: Lab) {
        // rule 9.4
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "sleeps").await;
        lab.signal(&order, SHUT, &()).await.unwrap();
        assert_eq!(lab.update(&order, ADD, &1).await.unwrap(), 1);
        let view = lab.describe(&order).await.unwrap().unwrap();
        assert_eq!((view.liveness.name(), view.wait.unwrap().kind), ("scheduled", WaitKind::Timer));
        assert_eq!((view.instance.inbox.signals, view.instance.inbox.cursor.0), (1, 2));
        engine.shutdown().await;
    }
}
