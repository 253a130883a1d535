//! Several engines on one database.

use std::collections::BTreeMap;

use abide::client::new_start;
use abide::model::Name;
use abide::time::hours;
use abide::{Status, done};
use serde_json::json;

use crate::common::{Gate, Lab, Log, Script, eventually};

on_every_store! {
    async fn two_engines_share_the_work_and_each_instance_runs_once(lab: Lab) {
        // rule 6.1
        let (gate, log) = (Gate::closed(), Log::new());
        let build = || {
            let (gate, log) = (gate.clone(), log.clone());
            Script::waiting(move |_, ctx| {
                let (gate, log) = (gate.clone(), log.clone());
                Box::pin(async move {
                    log.note(ctx.id());
                    gate.pass().await;
                    done(json!(null))
                })
            })
        };
        let started = lab.start_all((0..300).map(|n| new_start(Script::any(), json!(n)))).await.unwrap();
        let one = lab.engine().queue("default", 5).machine(build()).start().await.unwrap();
        let two = lab.again().await.engine().queue("default", 5).machine(build()).start().await.unwrap();
        gate.reached_by(10).await;
        assert_eq!((one.stats().claimed, two.stats().claimed), (5, 5));
        gate.open();
        lab.all_done(&started.iter().map(|one| one.as_ref().unwrap().id()).collect::<Vec<_>>()).await;
        let mut runs = BTreeMap::new();
        for id in log.read() {
            *runs.entry(id).or_insert(0) += 1;
        }
        assert!(runs.len() == 300 && runs.values().all(|runs| *runs == 1), "{runs:?}");
        assert_eq!((one.stats().stale, two.stats().stale), (0, 0));
        let committed = || one.stats().committed + two.stats().committed;
        eventually("both to have counted what they committed", async || committed() == 300).await;
        one.shutdown().await;
        two.shutdown().await;
    }
}

on_every_store! {
    async fn work_is_noticed_at_once_wherever_it_comes_from(lab: Lab) {
        // rule 6.6: with a poll that does not come during this test.
        let engine = lab.engine().poll(hours(1)).machine(Script::new(|_, ctx| done(ctx.state().clone())));
        let engine = engine.start().await.unwrap();
        lab.came_to(&lab.start(Script::any(), json!("from this handle")).await.unwrap()).await;
        let other = lab.again().await;
        let started = other.start(Script::any(), json!("from another")).await.unwrap();
        assert_eq!(lab.came_to(&started).await, json!("from another"));
        let later = other.start(Script::any(), json!("later")).delay(abide::time::millis(100)).await.unwrap();
        assert_eq!(lab.came_to(&later).await, json!("later"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_engine_runs_what_it_serves_and_leaves_the_rest(lab: Lab) {
        let script = || Script::new(|_, ctx| done(ctx.state().clone()));
        let engine = lab.engine().queue("mine", 5).machine(script()).start().await.unwrap();
        let theirs = lab.start(Script::any(), json!("theirs")).await.unwrap();
        for n in 0..20 {
            let mine = lab.start(Script::any(), json!(n)).queue("mine").await.unwrap();
            lab.came_to(&mine).await;
        }
        assert_eq!(lab.now(theirs.id()).await.status, Status::Runnable);
        let depths = lab.depths().await.unwrap();
        assert_eq!((depths.len(), depths[0].queue.as_str(), depths[0].count), (1, "default", 1));
        let other = lab.again().await.engine().machine(script()).start().await.unwrap();
        assert_eq!(lab.came_to(&theirs).await, json!("theirs"));
        other.shutdown().await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_workers_are_listed_with_what_they_serve(lab: Lab) {
        let engine = lab.engine().name("left").queue("a", 1).queue("b", 2).machine(Script::any());
        let engine = engine.start().await.unwrap();
        let workers = lab.workers().await.unwrap();
        assert_eq!((workers.len(), workers[0].name.as_str()), (1, "left"));
        assert_eq!(workers[0].queues, ["a", "b"].map(|queue| Name::new(queue).unwrap()));
        assert_eq!((workers[0].lanes[0].machine.as_str(), workers[0].lanes[0].version), ("script", 1));
        engine.shutdown().await;
        assert_eq!(lab.workers().await.unwrap(), [], "it has signed off");
    }
}
