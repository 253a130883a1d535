//! Signals between processes: here, between two handles on one store that share nothing else.

use abide::client::{new_signal, new_start};
use abide::time::hours;
use abide::{done, next};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{GO, NOTE, parked, value, waits_for};

on_every_store! {
    async fn a_signal_from_another_process_wakes_the_engine_of_this_one(lab: Lab) {
        // rule 6.6: the engine does not poll.
        let engine = lab.engine().poll(hours(1)).machine(waits_for("note")).start().await.unwrap();
        let outside = lab.again().await;
        for n in 0..5 {
            let id = parked(&lab, &format!("order:{n}")).await;
            outside.signal(id, NOTE, &n.to_string()).await.unwrap();
            assert_eq!(value(&lab.ended(id).await.result.unwrap()), json!(n.to_string()));
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn signals_and_steps_of_two_processes_meet_without_losing_anything(lab: Lab) {
        // rules 6.1 and 7.1
        let relay = || Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(GO).then(At::Two),
            At::Two => {
                let taken = ctx.state().as_u64().unwrap() + ctx.signals().len() as u64;
                *ctx.state_mut() = json!(taken);
                if taken < 10 { next(At::One) } else { done(json!(taken)) }
            }
            At::Three => unreachable!(),
        });
        let other = lab.again().await;
        let engines = [
            lab.engine().machine(relay()).start().await.unwrap(),
            other.engine().machine(relay()).start().await.unwrap(),
        ];
        let specs = (0..50).map(|n| new_start(Script::any(), json!(0)).key(format!("order:{n}")));
        let ids: Vec<_> = lab.start_all(specs).await.unwrap().into_iter().map(|one| one.unwrap().id()).collect();
        let senders = [(*lab).clone(), other].map(|abide| {
            tokio::spawn(async move {
                for _ in 0..5 {
                    let signals = (0..50).map(|n| new_signal(format!("order:{n}"), GO, &()));
                    assert!(abide.signal_all(signals).await.unwrap().iter().all(Result::is_ok));
                }
            })
        });
        for sender in senders {
            sender.await.unwrap();
        }
        for id in ids {
            assert_eq!(value(&lab.ended(id).await.result.unwrap()), json!(10));
        }
        assert_eq!(lab.doctor().await.unwrap().findings, []);
        for engine in engines {
            engine.shutdown().await;
        }
    }
}
