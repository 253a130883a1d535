//! Waiting again for more of the same: a pack accumulates.

use abide::history::HistoryEvent;
use abide::{Status, done, next};
use serde_json::json;

use crate::common::{At, Gate, Lab, Log, Script, eventually};
use crate::signals::{NOTE, parked, sent_to, value};

on_every_store! {
    async fn a_pack_accumulates_until_all_have_come_and_progresses_once(lab: Lab) {
        // rules 4.1 and 7.4
        let log = Log::new();
        let noted = log.clone();
        let engine = lab.engine().machine(Script::new(move |at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            At::Two => {
                let notes = ctx.awaited_all(NOTE)?;
                noted.note(notes.len());
                if notes.len() < 3 {
                    ctx.wait_for(NOTE).then(At::Two)
                } else {
                    *ctx.state_mut() = json!(notes);
                    next(At::Three)
                }
            }
            At::Three => done(ctx.state().clone()),
        })).start().await.unwrap();
        let id = parked(&lab, "pack").await;
        for (at, text) in ["a", "b", "c"].into_iter().enumerate() {
            lab.signal(id, NOTE, &text.to_owned()).await.unwrap();
            log.grown_to(at + 1).await;
            if at < 2 {
                // It parks quietly on what it was already handed.
                lab.until_status(id, Status::AwaitingSignal).await;
            }
        }
        assert_eq!(value(&lab.ended(id).await.result.unwrap()), json!(["a", "b", "c"]), "in order");
        assert_eq!(log.read(), [1, 2, 3]);
        let sent = sent_to(&lab, id).await;
        assert!(sent.iter().all(|one| one.status.name() == "applied" && one.step_sequence == Some(4)), "{sent:?}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_hundred_that_come_at_once_are_all_in_the_pack(lab: Lab) {
        // rules 7.1 and 7.4
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            _ if ctx.signals().len() < 100 => ctx.wait_for(NOTE).then(At::Two),
            _ => done(json!(ctx.awaited_all(NOTE)?)),
        })).start().await.unwrap();
        let id = parked(&lab, "pack").await;
        let sends = (0..100).map(|n| {
            let lab = lab.clone();
            tokio::spawn(async move { lab.signal(id, NOTE, &n.to_string()).await.unwrap().sequence().unwrap().0 })
        });
        let mut sequences = Vec::new();
        for send in sends.collect::<Vec<_>>() {
            sequences.push(send.await.unwrap());
        }
        let came: Vec<String> = lab.ended(id).await.result.unwrap().to().unwrap();
        let mut expected: Vec<_> = sequences.iter().zip(0..100).map(|(at, n)| (*at, n.to_string())).collect();
        expected.sort();
        assert!(expected.iter().map(|(at, _)| *at).eq(1..=100), "each has its own number");
        assert_eq!(came, expected.into_iter().map(|(_, text)| text).collect::<Vec<_>>(), "in the order of acceptance");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_comes_while_the_woken_step_runs_is_for_the_next_wait(lab: Lab) {
        // rules 4.1, 7.1 and 7.4
        let (gate, log) = (Gate::closed(), Log::new());
        let (at_gate, noted) = (gate.clone(), log.clone());
        let engine = lab.engine().machine(Script::waiting(move |at, ctx| {
            let (gate, log) = (at_gate.clone(), noted.clone());
            Box::pin(async move {
                match at {
                    At::One => ctx.wait_for(NOTE).then(At::Two),
                    At::Two => {
                        gate.pass().await;
                        log.note(ctx.awaited_all(NOTE)?);
                        match ctx.state().as_str() {
                            Some("next") => next(At::One),
                            _ if ctx.signals().len() < 2 => ctx.wait_for(NOTE).then(At::Two),
                            _ => done(json!(null)),
                        }
                    }
                    At::Three => done(json!(null)),
                }
            })
        })).start().await.unwrap();
        // `next` consumes the one it was handed, and the other is there when it waits; `wait` keeps it, and both are
        // handed to the step that the other wakes.
        for (how, expected) in [("next", vec![vec!["a"], vec!["b"]]), ("wait", vec![vec!["a"], vec!["a", "b"]])] {
            let before = (gate.arrivals(), log.len());
            let order = lab.start(Script::any(), json!(how)).key(how).await.unwrap();
            lab.until_status(order.id(), Status::AwaitingSignal).await;
            lab.signal(&order, NOTE, &"a".into()).await.unwrap();
            gate.reached_by(before.0 + 1).await;
            lab.signal(&order, NOTE, &"b".into()).await.unwrap();
            gate.open();
            let notes = log.grown_to(before.1 + 2).await;
            assert_eq!(notes[before.1..], expected, "{how}");
            if how == "next" {
                eventually("both to be applied", async || {
                    sent_to(&lab, order.id()).await.iter().all(|one| one.status.name() == "applied")
                }).await;
            } else {
                lab.ended(order.id()).await;
            }
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_wait_for_a_set_keeps_its_own_id_and_what_it_takes_records_that(lab: Lab) {
        // rule 7.6
        let gate = Gate::closed();
        let engine = lab.engine().machine(Script::gated(&gate, |at, ctx, gate| Box::pin(async move {
            match at {
                At::One => {
                    gate.pass().await;
                    ctx.wait_for("a").or("b").then(At::Two)
                }
                At::Two => next(At::Three),
                At::Three => done(json!(null)),
            }
        }))).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        gate.reached_by(1).await;
        for name in ["b", "a"] {
            lab.signal(order.id(), name, crate::signals::args(&[])).await.unwrap();
        }
        gate.open();
        lab.came_to(&order).await;
        let mut opened = None;
        let mut applied = Vec::new();
        for entry in lab.events(order.id()).await {
            match entry.what {
                HistoryEvent::WaitOpened { wait_id, .. } => opened = wait_id,
                HistoryEvent::SignalApplied { wait_id, name, .. } => applied.push((name.to_string(), wait_id)),
                _ => {}
            }
        }
        let opened = opened.unwrap();
        assert_eq!(applied, [("b".to_owned(), opened.clone()), ("a".to_owned(), opened.clone())]);
        assert!(sent_to(&lab, order.id()).await.iter().all(|one| one.wait_id.as_ref() == Some(&opened)));
        engine.shutdown().await;
    }
}
