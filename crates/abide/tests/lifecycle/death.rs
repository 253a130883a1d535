//! Workers that die, and workers that are taken for dead.

use abide::engine::Retention;
use abide::history::HistoryEvent;
use abide::machine::Fault;
use abide::time::{millis, secs};
use abide::{Context, Machine, Outcome, Status, Step, done, next};
use serde_json::json;

use crate::common::{Gate, Lab, Script, eventually};
use crate::lifecycle::{gated, quick};

on_every_store! {
    async fn a_worker_that_comes_back_under_its_name_takes_up_its_claims_at_once(lab: Lab) {
        // rule 5.3: without waiting for a lease, which here would take longer than the test.
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let killable = lab.killable(move |engine| engine.name("w").lease(secs(600)).machine(gated("before", &at_gate)));
        let killable = killable.await;
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        gate.reached_by(1).await;
        killable.die().await;
        assert_eq!(lab.now(order.id()).await.status, Status::Executing);
        let engine = lab.engine().name("w").machine(quick("after")).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(["after", 1]));
        assert_eq!(lab.kinds(order.id()).await, ["started", "reclaimed", "step_completed", "done"]);
        assert_eq!(engine.stats().reclaimed, 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_worker_whose_lease_runs_out_is_replaced(lab: Lab) {
        // rule 5.3
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let killable = lab.killable(move |engine| engine.name("dead").lease(millis(600)).machine(gated("dead", &at_gate)));
        let killable = killable.await;
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        gate.reached_by(1).await;
        let heir = lab.engine().name("heir").lease(secs(3)).machine(quick("heir")).start().await.unwrap();
        killable.die().await;
        assert_eq!(lab.came_to(&order).await, json!(["heir", 1]));
        let events = lab.events(order.id()).await;
        let HistoryEvent::Reclaimed { step, attempt, worker, .. } = &events[1].what else { panic!("{events:?}") };
        assert_eq!((step.as_str(), *attempt, worker.as_str()), ("one", 1, "dead"));
        lab.workers_are(1).await;
        heir.shutdown().await;
    }
}

on_every_store! {
    async fn a_worker_that_lives_keeps_its_claims_however_long_a_step_takes(lab: Lab) {
        // rule 6.4
        let gate = Gate::closed();
        let engine = lab.engine().lease(millis(1_200)).machine(gated("it", &gate)).start().await.unwrap();
        let other = lab.again().await.engine().lease(millis(900)).machine(quick("another")).start().await.unwrap();
        let orders = [lab.start(Script::any(), json!(1)).await, lab.start(Script::any(), json!(2)).await];
        let orders = orders.map(Result::unwrap);
        for order in &orders {
            lab.until(order.id(), "it to be claimed", |row| row.status != Status::Runnable).await;
        }
        // Two leases and a half.
        tokio::time::sleep(millis(3_000)).await;
        gate.open();
        for order in &orders {
            let result = lab.came_to(order).await;
            assert_eq!(result[1], json!(0), "it was begun once: {result}");
        }
        assert_eq!(engine.stats().stale + other.stats().stale, 0);
        engine.shutdown().await;
        other.shutdown().await;
    }
}

on_every_store! {
    async fn what_a_worker_commits_after_its_claim_was_taken_is_thrown_away(lab: Lab) {
        // rule 1.3
        let (gate, gate_of_second) = (Gate::closed(), Gate::closed());
        // With one slot, so that it cannot claim anew what it has lost.
        let first = lab.engine().name("w").queue("default", 1).machine(gated("the first", &gate));
        let first = first.start().await.unwrap();
        let order = lab.start(Script::any(), json!("as it was")).await.unwrap();
        gate.reached_by(1).await;
        // Another process takes the name, and with it all that the first one holds.
        let second = lab.again().await.engine().name("w").machine(gated("the second", &gate_of_second));
        let second = second.start().await.unwrap();
        gate_of_second.reached_by(1).await;
        let before = lab.now(order.id()).await;
        assert_eq!((before.status, before.attempt), (Status::Executing, 1));
        gate.open();
        eventually("the first to lose its claim", async || first.stats().stale == 1).await;
        assert_eq!(lab.now(order.id()).await, before, "nothing of it was written");
        gate_of_second.open();
        assert_eq!(lab.came_to(&order).await, json!(["the second", 1]));
        assert_eq!(lab.kinds(order.id()).await, ["started", "reclaimed", "step_completed", "done"]);
        assert_eq!(first.stats().committed, 0);
        first.shutdown().await;
        second.shutdown().await;
    }
}

/// Spawns a child, or fails if its error handler is called.
struct Parent(Gate);

#[derive(Step)]
enum Family {
    Child,
    End,
}

impl Machine for Parent {
    const NAME: &'static str = "parent";
    type Step = Family;
    type State = u32;
    type Output = usize;

    async fn step(&self, at: Family, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            Family::Child => {
                self.0.pass().await;
                ctx.spawn([abide::client::new_start(Script::any(), json!(null))])
                    .then(Family::End)
            }
            Family::End => done(ctx.children().len()),
        }
    }

    async fn on_error(&self, fault: &Fault, _: &mut Context<Self>) -> Outcome<Self> {
        abide::stop(format!("the error handler was called: {fault}"))
    }
}

on_every_store! {
    async fn the_children_of_an_outcome_that_is_thrown_away_are_not_started(lab: Lab) {
        // rules 1.3, 5.3: and the error handler has no part in it.
        let (gate, gate_of_second) = (Gate::closed(), Gate::closed());
        let first = lab.engine().name("w").queue("default", 1).machine(Parent(gate.clone()));
        let first = first.start().await.unwrap();
        let parent = lab.start(Parent(gate.clone()), 0).await.unwrap();
        gate.reached_by(1).await;
        let second = lab.again().await.engine().name("w").machine(Parent(gate_of_second.clone()));
        let second = second.machine(quick("child")).start().await.unwrap();
        gate_of_second.reached_by(1).await;
        gate.open();
        eventually("the first to lose its claim", async || first.stats().stale == 1).await;
        gate_of_second.open();
        assert_eq!(lab.came_to(&parent).await, 1);
        let all = lab.list(&Default::default(), None, 10).await.unwrap().items;
        assert_eq!(all.len(), 2, "the parent and one child");
        first.shutdown().await;
        second.shutdown().await;
    }
}

on_every_store! {
    async fn a_worker_that_lost_its_name_works_on_under_another(lab: Lab) {
        // rule 5.3: two that share a name by mistake do not take the work from each other for ever.
        let first = lab.engine().name("w").lease(millis(600)).machine(quick("it")).start().await.unwrap();
        let second = lab.again().await.engine().name("w").lease(millis(600)).retention(Retention::Forever);
        let second = second.machine(quick("it")).start().await.unwrap();
        lab.workers_are(2).await;
        let workers = lab.workers().await.unwrap();
        let mut names: Vec<_> = workers.iter().map(|worker| worker.name.as_str()).collect();
        names.sort_unstable();
        assert!(names[0] == "w" && names[1].starts_with("w~"), "{names:?}");
        second.shutdown().await;
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(["it", 0]));
        first.shutdown().await;
        lab.workers_are(0).await;
    }
}

on_every_store! {
    async fn many_claims_of_a_dead_worker_are_taken_over_together(lab: Lab) {
        // rules 1.1, 5.3
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let killable = lab.killable(move |engine| {
            let engine = engine.name("w").lease(secs(600)).queue("default", 700);
            engine.machine(Script::gated(&at_gate, move |at, _, gate| {
                Box::pin(async move {
                    if at == crate::common::At::Two {
                        gate.pass().await;
                    }
                    next(crate::common::At::Two)
                })
            }))
        });
        let killable = killable.await;
        let started = lab.start_all((0..700).map(|n| abide::client::new_start(Script::any(), json!(n)))).await.unwrap();
        gate.reached_by(700).await;
        killable.die().await;
        let engine = lab.engine().name("w").machine(Script::new(|at, ctx| {
            assert_eq!((at, ctx.attempt()), (crate::common::At::Two, 1));
            done(json!(null))
        }));
        let engine = engine.start().await.unwrap();
        let ids: Vec<_> = started.into_iter().map(|one| one.unwrap().id()).collect();
        lab.all_done(&ids).await;
        assert_eq!(engine.stats().reclaimed, 700);
        for id in ids.iter().step_by(70) {
            let kinds = lab.kinds(*id).await;
            assert_eq!(kinds, ["started", "step_completed", "reclaimed", "step_completed", "done"]);
        }
        engine.shutdown().await;
    }
}
