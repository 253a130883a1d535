//! Cancelling what waits, what sleeps and what runs.

use abide::client::{NotDone, OperateError};
use abide::history::HistoryEvent;
use abide::model::CommandStatus;
use abide::time::{hours, millis, secs};
use abide::{InstanceId, Status, done};
use serde_json::{Value, json};

use crate::common::{At, Gate, Lab, Log, Script, eventually};
use crate::operating::GO;

/// Waits or sleeps, as its state prescribes.
fn parks() -> Script {
    Script::new(|at, ctx| match (at, ctx.state().as_str().unwrap()) {
        (At::One, "waits") => ctx.wait_for(GO).timeout(hours(1)).then(At::Two),
        (At::One, _) => ctx.sleep(hours(1)).then(At::Two),
        _ => done(json!("it ran on")),
    })
}

on_every_store! {
    async fn what_waits_or_sleeps_is_cancelled_and_nothing_wakes_it_any_more(lab: Lab) {
        // rules 4.1, 11.1 and 13.1
        let engine = lab.engine().machine(parks()).start().await.unwrap();
        for (how, status) in [("waits", Status::AwaitingSignal), ("sleeps", Status::Scheduled)] {
            let order = lab.start(Script::any(), json!(how)).key(how).await.unwrap();
            lab.until_status(order.id(), status).await;
            let pending = lab.signal(&order, "other", abide::message::Arguments::default()).await.unwrap();
            let cancelled = lab.cancel(&order, "not wanted").await.unwrap();
            assert_eq!((cancelled.id, cancelled.children), (order.id(), 0));
            let row = lab.now(order.id()).await;
            assert_eq!((row.status, row.wait_kind(), row.worker), (Status::Cancelled, None, None));
            assert_eq!((row.last_error.as_deref(), row.inbox.signals), (Some("not wanted"), 0));
            assert!(row.finished_at.is_some());
            let record = lab.commands(&order, None, 1).await.unwrap().items.remove(0);
            assert_eq!((record.id, record.status), (pending.id(), CommandStatus::Discarded));
            let view = lab.describe(order.id()).await.unwrap().unwrap();
            assert_eq!((view.liveness.name(), view.wait), ("closed", None));
            let error = lab.result(&order).await.unwrap_err();
            assert!(matches!(error, NotDone::Ended { status: Status::Cancelled, .. }), "{error}");
            let events = lab.events(order.id()).await;
            assert!(matches!(&events.last().unwrap().what, HistoryEvent::Cancelled { reason } if reason == "not wanted"));
            assert_eq!(lab.signal(&order, GO, &()).await.unwrap_err().outcome(), Some("rejected_not_active"));
        }
        // The keys are free.
        lab.start(Script::any(), json!("waits")).key("waits").await.unwrap();
        engine.shutdown().await;
    }
}

/// Waits until it is notified of its cancellation, or for the gate.
fn cancellable(log: &Log<String>, gate: &Gate) -> Script {
    let (log, gate) = (log.clone(), gate.clone());
    Script::waiting(move |_, ctx| {
        let (log, gate) = (log.clone(), gate.clone());
        Box::pin(async move {
            assert!(!ctx.is_cancelled());
            tokio::select! {
                () = ctx.cancelled() => {
                    assert!(ctx.is_cancelled());
                    log.note("cancelled".into());
                    done(json!("dropped"))
                }
                () = gate.pass() => done(json!("ran on")),
            }
        })
    })
}

on_every_store! {
    async fn a_step_that_runs_sees_it_coming_and_its_outcome_is_dropped(lab: Lab) {
        // rules 1.3 and 11.1
        let (log, gate) = (Log::new(), Gate::closed());
        let engine = lab.engine().poll(hours(1)).machine(cancellable(&log, &gate)).start().await.unwrap();
        let order = lab.start(Script::any(), json!("as it was")).key("k").await.unwrap();
        gate.reached_by(1).await;
        lab.cancel("k", "enough").await.unwrap();
        let row = lab.now(order.id()).await;
        assert_eq!((row.status, row.worker), (Status::Cancelled, None), "at once");
        log.grown_to(1).await;
        eventually("its outcome to be dropped", async || engine.stats().stale == 1).await;
        assert_eq!(lab.now(order.id()).await, row);
        assert_eq!(lab.kinds(order.id()).await, ["started", "cancelled"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_that_runs_in_another_process_is_notified_too(lab: Lab) {
        // rules 6.6 and 11.1
        let (log, gate) = (Log::new(), Gate::closed());
        let engine = lab.engine().poll(millis(50)).machine(cancellable(&log, &gate)).start().await.unwrap();
        lab.start(Script::any(), json!(null)).key("k").await.unwrap();
        gate.reached_by(1).await;
        lab.again().await.cancel("k", "enough").await.unwrap();
        log.grown_to(1).await;
        eventually("its outcome to be dropped", async || engine.stats().stale == 1).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_that_does_not_listen_runs_to_its_end_in_vain(lab: Lab) {
        // rules 1.3 and 11.1
        let gate = Gate::closed();
        let engine = lab.engine().machine(Script::gated(&gate, move |_, ctx, gate| {
            Box::pin(async move {
                gate.pass().await;
                *ctx.state_mut() = json!("changed");
                ctx.spawn([abide::client::new_start(Script::any(), json!("child"))]).then(At::Two)
            })
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!("as it was")).key("k").await.unwrap();
        gate.reached_by(1).await;
        lab.cancel("k", "enough").await.unwrap();
        gate.open();
        eventually("its outcome to be dropped", async || engine.stats().stale == 1).await;
        let row = lab.now(order.id()).await;
        assert_eq!((row.status, row.state.to::<Value>().unwrap()), (Status::Cancelled, json!("as it was")));
        let children = abide::store::Filter { parent: Some(order.id()), ..abide::store::Filter::default() };
        assert!(lab.list(&children, None, 9).await.unwrap().items.is_empty(), "no children either");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_front_of_a_partition_that_is_cancelled_makes_way(lab: Lab) {
        // rules 6.3 and 11.1
        let (log, gate) = (Log::new(), Gate::closed());
        let engine = lab.engine().machine(cancellable(&log, &gate)).start().await.unwrap();
        let first = lab.start(Script::any(), json!(1)).partition("p").await.unwrap();
        gate.reached_by(1).await;
        let second = lab.start(Script::any(), json!(2)).partition("p").await.unwrap();
        assert!(lab.now(second.id()).await.behind);
        lab.cancel(first.id(), "make way").await.unwrap();
        gate.reached_by(2).await;
        gate.open();
        assert_eq!(lab.came_to(&second).await, json!("ran on"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_has_ended_or_is_not_there_is_refused(lab: Lab) {
        // rules 2.5 and 11.2
        let engine = lab.engine().machine(Script::new(|at, _| match at {
            At::One => abide::machine::continue_as_new(At::Two),
            _ => done(json!(null)),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("k").await.unwrap();
        lab.came_to(&order).await;
        let error = lab.cancel("k", "late").await.unwrap_err();
        assert!(matches!(error, OperateError::NotActive(Status::Done)));
        assert_eq!(error.outcome(), Some("rejected_not_active"));
        let newest = lab.get("k").await.unwrap().unwrap().id;
        let error = lab.cancel(order.id(), "late").await.unwrap_err();
        assert!(matches!(error, OperateError::NotCurrent { current } if current == newest), "{error}");
        assert!(matches!(lab.cancel(InstanceId(99_999), "").await, Err(OperateError::NoTarget(_))));
        assert!(matches!(lab.cancel("missing", "").await, Err(OperateError::NoTarget(_))));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn of_a_cancel_and_the_end_that_race_one_wins(lab: Lab) {
        // rule 11.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(GO).then(At::Two),
            _ => done(json!("ended")),
        })).start().await.unwrap();
        let races = (0..100).map(|n| {
            let lab = lab.clone();
            tokio::spawn(async move {
                let order = lab.start(Script::any(), json!(null)).key(format!("k{n}")).await.unwrap();
                let going = { let lab = lab.clone(); let id = order.id(); tokio::spawn(async move { lab.signal(id, GO, &()).await.is_ok() }) };
                for _ in 0..n % 5 {
                    tokio::task::yield_now().await;
                }
                let cancelled = lab.cancel(order.id(), "race").await;
                going.await.unwrap();
                let result = tokio::time::timeout(secs(20), order.result()).await.unwrap();
                assert_eq!(cancelled.is_ok(), result.is_err(), "{cancelled:?} {result:?}");
            })
        });
        for race in races.collect::<Vec<_>>() {
            race.await.unwrap();
        }
        engine.shutdown().await;
    }
}
