//! Signals that come before they are waited for.

use abide::done;
use abide::history::HistoryEvent;
use serde_json::json;

use crate::common::{At, Gate, Lab, Script};
use crate::signals::{GO, NOTE, PAID, payment, sent_to, waits_for};

on_every_store! {
    async fn what_was_sent_before_anybody_worked_is_there_when_it_waits(lab: Lab) {
        // rule 7.1
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        let receipt = lab.signal(&order, NOTE, &"early".into()).await.unwrap();
        assert_eq!(receipt.sequence().unwrap().0, 1);
        let engine = lab.engine().machine(waits_for("note")).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!("early"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_signal_sent_while_the_step_that_will_wait_for_it_runs_is_not_lost(lab: Lab) {
        // rules 7.1, 7.4 and 7.6
        let gate = Gate::closed();
        let engine = lab.engine().machine(Script::gated(&gate, |at, ctx, gate| Box::pin(async move {
            match at {
                At::One => {
                    gate.pass().await;
                    ctx.wait_for(PAID).then(At::Two)
                }
                _ => done(json!(ctx.awaited(PAID)?.amount)),
            }
        }))).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        gate.reached_by(1).await;
        lab.signal(order.id(), PAID, &payment(5)).await.unwrap();
        gate.open();
        assert_eq!(lab.came_to(&order).await, json!(5));
        // Received, opened and applied show one id: the wait adopts that of the signal that was there before it.
        let ids = lab.events(order.id()).await.into_iter().filter_map(|entry| match entry.what {
            HistoryEvent::SignalReceived { wait_id, .. } => Some(("received", Some(wait_id))),
            HistoryEvent::WaitOpened { wait_id, .. } => Some(("opened", wait_id)),
            HistoryEvent::SignalApplied { wait_id, .. } => Some(("applied", Some(wait_id))),
            _ => None,
        });
        let ids: Vec<_> = ids.collect();
        assert_eq!(ids.iter().map(|(what, _)| *what).collect::<Vec<_>>(), ["received", "opened", "applied"]);
        assert!(ids.iter().all(|(_, id)| id.is_some() && *id == ids[0].1), "{ids:?}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn every_interleaving_of_sending_and_parking_ends_with_a_wake(lab: Lab) {
        // rule 7.1
        let engine = lab.engine().machine(waits_for("go")).start().await.unwrap();
        let rounds = (0..100).map(|n| {
            let lab = lab.clone();
            tokio::spawn(async move {
                let order = lab.start(Script::any(), json!(null)).key(format!("order:{n}")).await.unwrap();
                for _ in 0..n % 7 {
                    tokio::task::yield_now().await;
                }
                lab.signal(&order, GO, &()).await.unwrap();
                assert_eq!(lab.came_to(&order).await, json!(true));
            })
        });
        for round in rounds.collect::<Vec<_>>() {
            round.await.unwrap();
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_signal_that_is_never_waited_for_is_discarded_when_the_instance_ends(lab: Lab) {
        // rules 4.1 and 7.6
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        for n in 0..3 {
            lab.signal(order.id(), NOTE, &n.to_string()).await.unwrap();
        }
        let engine = lab.engine().machine(Script::new(|_, _| done(json!(null)))).start().await.unwrap();
        lab.came_to(&order).await;
        let sent = sent_to(&lab, order.id()).await;
        assert!(sent.iter().all(|one| one.status.name() == "discarded" && one.closed_at.is_some()));
        let discarded = lab.kinds(order.id()).await.iter().filter(|kind| **kind == "signal_discarded").count();
        assert_eq!(discarded, 3);
        assert_eq!(lab.now(order.id()).await.inbox.signals, 0);
        engine.shutdown().await;
    }
}
