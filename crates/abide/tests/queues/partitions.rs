//! Partitions: one at a time of each, in order, across all workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use abide::client::new_start;
use abide::done;
use abide::engine::EngineBuilder;
use serde_json::json;

use crate::common::{At, Gate, Lab, Log, Most, Script};

on_every_store! {
    async fn a_partition_runs_one_at_a_time_and_in_order_across_two_engines(lab: Lab) {
        // rule 6.3
        const KEYS: u64 = 5;
        const EACH: u64 = 20;
        let log = Log::new();
        let inside: Arc<Mutex<BTreeMap<u64, Most>>> = Arc::default();
        let build = |engine: EngineBuilder| {
            let (log, inside) = (log.clone(), inside.clone());
            engine.queue("default", 8).machine(Script::waiting(move |_, ctx| {
                let (log, inside) = (log.clone(), inside.clone());
                Box::pin(async move {
                    let (key, n) = (ctx.state()[0].as_u64().unwrap(), ctx.state()[1].as_u64().unwrap());
                    let most = inside.lock().unwrap().entry(key).or_default().clone();
                    let _inside = most.enter();
                    log.note((key, n));
                    tokio::time::sleep(abide::time::millis(1)).await;
                    done(json!(null))
                })
            }))
        };
        let one = build(lab.engine()).start().await.unwrap();
        let two = build(lab.again().await.engine()).start().await.unwrap();
        for n in 0..EACH {
            let starts = (0..KEYS).map(|key| new_start(Script::any(), json!([key, n])).partition(format!("p:{key}")));
            lab.start_all(starts).await.unwrap();
        }
        let order = log.grown_to((KEYS * EACH) as usize).await;
        for key in 0..KEYS {
            let of_key: Vec<_> = order.iter().filter(|(of, _)| *of == key).map(|(_, n)| *n).collect();
            assert_eq!(of_key, (0..EACH).collect::<Vec<_>>(), "partition {key}");
        }
        assert!(inside.lock().unwrap().values().all(|most| most.seen() == 1));
        one.shutdown().await;
        two.shutdown().await;
    }
}

on_every_store! {
    async fn a_partition_is_kept_by_steps_that_go_through_the_queue(lab: Lab) {
        // rule 6.3: by those that follow, that are tried again, and that wake from a sleep.
        let most: [Most; 3] = Default::default();
        let build = |engine: EngineBuilder| {
            let most = most.clone();
            engine.run_ahead(0, abide::time::hours(1)).machine(Script::waiting(move |at, ctx| {
                let most = most.clone();
                Box::pin(async move {
                    let _inside = most[ctx.state().as_u64().unwrap() as usize].enter();
                    tokio::task::yield_now().await;
                    match (at, ctx.attempt()) {
                        (At::One, _) => abide::next(At::Two),
                        (At::Two, 0..3) => abide::machine::retry_in(abide::time::millis(u64::from(ctx.attempt()))),
                        (At::Two, _) => ctx.sleep(abide::time::millis(1)).then(At::Three),
                        (At::Three, _) => done(json!(null)),
                    }
                })
            }))
        };
        let one = build(lab.engine()).start().await.unwrap();
        let two = build(lab.again().await.engine()).start().await.unwrap();
        let starts = (0..30).map(|n| new_start(Script::any(), json!(n % 3)).partition(format!("p:{}", n % 3)));
        let started = lab.start_all(starts).await.unwrap();
        lab.all_done(&started.into_iter().map(|one| one.unwrap().id()).collect::<Vec<_>>()).await;
        assert_eq!(most.map(|most| most.seen()), [1, 1, 1]);
        assert_eq!(one.stats().refused + two.stats().refused, 0);
        one.shutdown().await;
        two.shutdown().await;
    }
}

on_every_store! {
    async fn different_partitions_run_in_parallel(lab: Lab) {
        // rule 6.3
        let gate = Gate::closed();
        let engine = lab.engine().queue("default", 10).machine(Script::gated(&gate, move |_, _, gate| {
            Box::pin(async move {
                gate.pass().await;
                done(json!(null))
            })
        }));
        let engine = engine.start().await.unwrap();
        let starts = (0..6).map(|n| new_start(Script::any(), json!(n)).partition(format!("p:{}", n % 3)));
        let started = lab.start_all(starts).await.unwrap();
        let alone = lab.start(Script::any(), json!("in no partition")).await.unwrap();
        gate.reached_by(4).await;
        let ids: Vec<_> = started.into_iter().map(|one| one.unwrap().id()).collect();
        for id in &ids[3..] {
            assert!(lab.now(*id).await.behind, "the second of its partition waits its turn");
        }
        gate.open();
        lab.all_done(&ids).await;
        lab.came_to(&alone).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_more_urgent_one_passes_those_of_its_partition_that_have_not_begun(lab: Lab) {
        // rules 6.1, 6.3
        let (gate, log) = (Gate::closed(), Log::new());
        let (at_gate, noted) = (gate.clone(), log.clone());
        let engine = lab.engine().machine(Script::waiting(move |_, ctx| {
            let (gate, log) = (at_gate.clone(), noted.clone());
            Box::pin(async move {
                log.note(ctx.state().as_str().unwrap().to_owned());
                gate.pass().await;
                done(json!(null))
            })
        }));
        let engine = engine.start().await.unwrap();
        let start = |name: &str, priority| lab.start(Script::any(), json!(name)).partition("p").priority(priority);
        start("first", 0).await.unwrap();
        gate.reached_by(1).await;
        start("third", 0).await.unwrap();
        start("second", -1).await.unwrap();
        gate.open();
        assert_eq!(log.grown_to(3).await, ["first", "second", "third"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_partition_of_a_dead_worker_is_free_when_its_lease_is_over(lab: Lab) {
        // rules 5.3, 6.3
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let killable = lab.killable(move |engine| engine.lease(abide::time::millis(500)).machine(Script::gated(&at_gate, move |_, _, gate| {
            Box::pin(async move {
                gate.pass().await;
                done(json!("by the dead"))
            })
        })));
        let killable = killable.await;
        let first = lab.start(Script::any(), json!(1)).partition("p").await.unwrap();
        let second = lab.start(Script::any(), json!(2)).partition("p").await.unwrap();
        gate.reached_by(1).await;
        killable.die().await;
        let engine = lab.engine().lease(abide::time::secs(3)).machine(Script::new(|_, ctx| done(json!(ctx.attempt()))));
        let engine = engine.start().await.unwrap();
        assert_eq!((lab.came_to(&first).await, lab.came_to(&second).await), (json!(1), json!(0)));
        let (first, second) = (lab.now(first.id()).await, lab.now(second.id()).await);
        assert!(first.finished_at <= second.finished_at, "in order all the same");
        engine.shutdown().await;
    }
}
