//! The number of steps of a queue that run at once.

use abide::client::new_start;
use abide::machine::Fault;
use abide::model::Limits;
use abide::{Abide, Context, Machine, Outcome, Step, done, next};
use serde_json::json;

use crate::common::{At, Gate, Lab, Most, Script};

on_every_store! {
    async fn the_concurrency_of_a_queue_is_used_and_never_exceeded(lab: Lab) {
        let (gate, most) = (Gate::closed(), Most::default());
        let (at_gate, counted) = (gate.clone(), most.clone());
        let engine = lab.engine().queue("default", 4).machine(Script::waiting(move |at, _| {
            let (gate, most) = (at_gate.clone(), counted.clone());
            Box::pin(async move {
                let _inside = most.enter();
                gate.pass().await;
                if at == At::One { next(At::Two) } else { done(json!(null)) }
            })
        }));
        let engine = engine.start().await.unwrap();
        let started = lab.start_all((0..50).map(|n| new_start(Script::any(), json!(n)))).await.unwrap();
        gate.reached_by(4).await;
        gate.open();
        lab.all_done(&started.iter().map(|one| one.as_ref().unwrap().id()).collect::<Vec<_>>()).await;
        assert_eq!((most.seen(), gate.arrivals()), (4, 100));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn each_queue_has_slots_of_its_own(lab: Lab) {
        let gate = Gate::closed();
        let engine = lab.engine().queue("slow", 1).queue("fast", 2).machine(Script::gated(&gate, move |_, ctx, gate| {
            Box::pin(async move {
                if ctx.state() == "slow" {
                    gate.pass().await;
                }
                done(json!(null))
            })
        }));
        let engine = engine.start().await.unwrap();
        let slow = (0..3).map(|_| new_start(Script::any(), json!("slow")).queue("slow"));
        let slow = lab.start_all(slow).await.unwrap();
        gate.reached_by(1).await;
        // The slow queue is full, and delays no other.
        let fast = lab.start(Script::any(), json!("fast")).queue("fast").await.unwrap();
        lab.came_to(&fast).await;
        assert_eq!(gate.arrivals(), 1);
        gate.open();
        lab.all_done(&slow.into_iter().map(|one| one.unwrap().id()).collect::<Vec<_>>()).await;
        engine.shutdown().await;
    }
}

/// Answers more than can be stored, and less when its error handler is called.
struct Greedy(Most);

#[derive(Step)]
enum Eat {
    All,
}

impl Machine for Greedy {
    const NAME: &'static str = "greedy";
    type Step = Eat;
    type State = String;
    type Output = String;

    async fn step(&self, _: Eat, _: &mut Context<Self>) -> Outcome<Self> {
        let _inside = self.0.enter();
        tokio::task::yield_now().await;
        done("x".repeat(2_000))
    }

    async fn on_error(&self, _: &Fault, _: &mut Context<Self>) -> Outcome<Self> {
        let _inside = self.0.enter();
        tokio::time::sleep(abide::time::millis(2)).await;
        done("less".into())
    }
}

on_every_store! {
    async fn a_step_whose_outcome_is_refused_keeps_its_slot(lab: Lab) {
        let limits = Limits { result_bytes: 1_000, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let most = Most::default();
        let started = lab.start_all((0..30).map(|_| new_start(Greedy(Most::default()), String::new()))).await.unwrap();
        let engine = lab.engine().queue("default", 2).machine(Greedy(most.clone())).start().await.unwrap();
        lab.all_done(&started.iter().map(|one| one.as_ref().unwrap().id()).collect::<Vec<_>>()).await;
        assert_eq!(most.seen(), 2);
        engine.shutdown().await;
    }
}
