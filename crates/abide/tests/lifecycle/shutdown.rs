//! Stopping in order: what runs is finished, what cannot be is given back.

use std::time::{Duration, Instant};

use abide::Status;
use abide::time::{hours, millis, secs};
use serde_json::json;

use crate::common::{Gate, Lab, Script, eventually, soon};
use crate::lifecycle::{gated, quick};

on_every_store! {
    async fn a_shutdown_lets_running_steps_finish_and_claims_no_more(lab: Lab) {
        // rule 6.7
        let gate = Gate::closed();
        let engine = lab.engine().machine(gated("the first", &gate)).start().await.unwrap();
        let running = lab.start(Script::any(), json!(1)).await.unwrap();
        gate.reached_by(1).await;
        let mut stopping = Box::pin(engine.shutdown());
        assert!(futures_util::poll!(&mut stopping).is_pending(), "it waits for the step that runs");
        let late = lab.start(Script::any(), json!(2)).await.unwrap();
        gate.open();
        soon("the shutdown to end", stopping).await;
        assert_eq!(lab.came_to(&running).await, json!(["the first", 0]));
        let row = lab.now(late.id()).await;
        assert_eq!((row.status, row.attempt), (Status::Runnable, 0));
        assert_eq!(lab.workers().await.unwrap(), [], "it has signed off");
    }
}

on_every_store! {
    async fn after_the_grace_time_steps_are_given_back_as_they_were(lab: Lab) {
        // rules 5.4, 6.7
        let gate = Gate::closed();
        let engine = lab.engine().grace(millis(50)).machine(gated("the first", &gate)).start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).partition("p").await.unwrap();
        let behind = lab.start(Script::any(), json!(2)).partition("p").await.unwrap();
        gate.reached_by(1).await;
        soon("the shutdown to end", engine.shutdown()).await;
        let row = lab.now(order.id()).await;
        assert_eq!((row.status, row.attempt, row.worker), (Status::Runnable, 0, None));
        assert_eq!(lab.kinds(order.id()).await, ["started"], "nothing has happened to it");
        let second = lab.again().await.engine().machine(quick("the second")).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(["the second", 0]));
        assert_eq!(lab.came_to(&behind).await, json!(["the second", 0]));
        second.shutdown().await;
    }
}

on_every_store! {
    async fn a_shutdown_keeps_its_lease_while_it_waits(lab: Lab) {
        // rule 6.7. The bug: heartbeats ended with the first request of a shutdown, so that a step which needed longer
        // than the lease was taken away and run elsewhere, and its outcome was thrown away.
        let gate = Gate::closed();
        let first = lab.engine().lease(millis(1_500)).machine(gated("the first", &gate)).start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        gate.reached_by(1).await;
        let second = lab.again().await.engine().lease(millis(900)).machine(quick("the second")).start().await.unwrap();
        let stopping = tokio::spawn(first.shutdown());
        // Two leases.
        tokio::time::sleep(millis(3_000)).await;
        assert_eq!(lab.now(order.id()).await.attempt, 0, "{}", lab.standing(order.id()).await);
        gate.open();
        soon("the shutdown to end", stopping).await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(["the first", 0]));
        lab.workers_are(1).await;
        second.shutdown().await;
        assert_eq!(lab.workers().await.unwrap(), []);
    }
}

on_every_store! {
    async fn an_engine_that_is_dropped_gives_back_what_it_holds(lab: Lab) {
        // rule 6.7
        let gate = Gate::closed();
        let engine = lab.engine().grace(millis(50)).machine(gated("the first", &gate)).start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        gate.reached_by(1).await;
        drop(engine);
        let row = lab.until_status(order.id(), Status::Runnable).await;
        assert_eq!(row.attempt, 0);
        lab.workers_are(0).await;
        let second = lab.engine().machine(quick("the second")).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(["the second", 0]));
        second.shutdown().await;
    }
}

on_every_store! {
    async fn an_engine_that_is_dropped_finishes_what_runs(lab: Lab) {
        // rule 6.7
        let gate = Gate::closed();
        let engine = lab.engine().machine(gated("the first", &gate)).start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        gate.reached_by(1).await;
        drop(engine);
        gate.open();
        assert_eq!(lab.came_to(&order).await, json!(["the first", 0]));
        lab.workers_are(0).await;
    }
}

on_every_store! {
    async fn an_idle_engine_stops_at_once(lab: Lab) {
        // rule 6.7
        let engine = lab.engine().grace(hours(1)).machine(quick("the first")).start().await.unwrap();
        let begun = Instant::now();
        engine.shutdown().await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}

on_every_store! {
    async fn engines_come_and_go_while_the_work_goes_on(lab: Lab) {
        // rules 5.4, 6.7: what is handed over is neither lost nor counted as an attempt.
        let starts = (0..60).map(|n| abide::client::new_start(Script::any(), json!(n)));
        let started = lab.start_all(starts).await.unwrap();
        let ids: Vec<_> = started.into_iter().map(|one| one.unwrap().id()).collect();
        let slow = || Script::waiting(|at, ctx| Box::pin(async move {
            tokio::time::sleep(millis(5)).await;
            match (at, ctx.attempt()) {
                (_, 1..) => abide::stop("begun before"),
                (crate::common::At::One, _) => abide::next(crate::common::At::Two),
                _ => abide::done(json!(null)),
            }
        }));
        for round in 0..8 {
            let engine = lab.engine().queue("default", 10).grace(millis(if round % 2 == 0 { 0 } else { 1_000 }));
            let engine = engine.machine(slow()).start().await.unwrap();
            let left = async || !lab.depths().await.unwrap().is_empty();
            eventually("some work to be done", async || engine.stats().committed > 5 || !left().await).await;
            soon("the shutdown to end", engine.shutdown()).await;
        }
        let engine = lab.engine().lease(secs(5)).machine(slow()).start().await.unwrap();
        lab.all_done(&ids).await;
        for id in ids {
            assert_eq!(lab.committed(id).await, [("one".into(), 1), ("two".into(), 2)]);
        }
        engine.shutdown().await;
    }
}
