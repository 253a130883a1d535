//! Steps that take too long.

use std::time::{Duration, Instant};

use abide::machine::{Fault, FaultKind};
use abide::testing::Kit;
use abide::time::{hours, millis, minutes, secs};
use abide::{Context, Machine, Outcome, Step, done};

use crate::common::{Gate, Lab, Log};

/// Waits at a gate that does not open, and may do so for the time given.
#[derive(Clone)]
struct Slow {
    gate: Gate,
    limit: Duration,
    ended: Log<&'static str>,
}

#[derive(Step)]
enum Doze {
    Off,
    Quick,
}

impl Slow {
    fn new(limit: Duration) -> Self {
        Self {
            gate: Gate::closed(),
            limit,
            ended: Log::new(),
        }
    }
}

/// Notes that a step was dropped.
struct Note(Log<&'static str>);

impl Drop for Note {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

impl Machine for Slow {
    const NAME: &'static str = "slow";
    type Step = Doze;
    type State = u32;
    type Output = String;

    async fn step(&self, at: Doze, ctx: &mut Context<Self>) -> Outcome<Self> {
        *ctx.state_mut() += 1;
        if let Doze::Off = at {
            let _note = Note(self.ended.clone());
            self.gate.pass().await;
        }
        done("in time".into())
    }

    async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
        assert_eq!((fault.kind(), *ctx.state()), (FaultKind::TimeLimit, 0));
        done(fault.to_string())
    }

    fn time_limit(&self, at: Doze) -> Option<Duration> {
        matches!(at, Doze::Off).then_some(self.limit)
    }
}

on_every_store! {
    async fn a_step_over_its_time_limit_is_an_error(lab: Lab) {
        // rule 5.4
        let slow = Slow::new(millis(50));
        let engine = lab.engine().machine(slow.clone()).start().await.unwrap();
        let begun = Instant::now();
        let order = lab.start(slow.clone(), 0).await.unwrap();
        assert_eq!(lab.came_to(&order).await, "ran longer than its time limit of 50ms");
        assert!(begun.elapsed() >= millis(50));
        assert_eq!(slow.ended.read(), ["dropped"], "it does not run on");
        assert_eq!(lab.kinds(order.id()).await, ["started", "step_failed", "done"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_within_its_time_limit_is_let_be(lab: Lab) {
        // rule 5.4
        let slow = Slow::new(hours(1));
        let engine = lab.engine().machine(slow.clone()).start().await.unwrap();
        let order = lab.start(slow.clone(), 0).await.unwrap();
        let quick = lab.start(slow.clone(), 0).step(Doze::Quick).await.unwrap();
        assert_eq!(lab.came_to(&quick).await, "in time");
        slow.gate.reached_by(1).await;
        slow.gate.open();
        assert_eq!(lab.came_to(&order).await, "in time");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_time_limit_goes_by_the_clock_of_the_test() {
    // rule 5.4
    let slow = Slow::new(minutes(10));
    let kit = Kit::builder().machine(slow.clone()).build().await.unwrap();
    let order = kit.start(slow.clone(), 0).await.unwrap();
    kit.advance(minutes(9)).await;
    assert_eq!(slow.ended.len(), 0);
    kit.assert_at(&order, Doze::Off).await;
    kit.advance(minutes(1)).await;
    kit.assert_done(&order, &"ran longer than its time limit of 600s".to_owned())
        .await;
    assert_eq!(
        kit.get(order.id()).await.unwrap().unwrap().finished_at,
        Some(kit.now())
    );
    assert!(kit.now() > abide::time::Timestamp::default() + secs(600));
}
