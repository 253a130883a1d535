//! Retry policies: how often a failed step is tried again, and when.

use abide::done;
use abide::history::HistoryEvent;
use abide::machine::{Fault, Retry};
use abide::testing::Kit;
use abide::time::Timestamp;
use abide::time::{millis, minutes, secs};
use abide::{Context, Machine, Outcome, Status, Step};

use crate::common::{Lab, Log};

/// Fails as often as its state requires.
#[derive(Clone)]
struct Flaky {
    policy: Retry,
    attempts: Log<u32>,
}

#[derive(Step)]
enum Try {
    It,
}

impl Flaky {
    fn new(policy: Retry) -> Self {
        let attempts = Log::new();
        Self { policy, attempts }
    }
}

impl Machine for Flaky {
    const NAME: &'static str = "flaky";
    type Step = Try;
    type State = u32;
    type Output = u32;

    async fn step(&self, _: Try, ctx: &mut Context<Self>) -> Outcome<Self> {
        self.attempts.note(ctx.attempt());
        let enough = *ctx.state();
        *ctx.state_mut() = 1_000;
        if ctx.attempt() < enough {
            return Err(format!("attempt {} failed", ctx.attempt()).into());
        }
        done(enough)
    }

    fn retry(&self) -> Retry {
        self.policy.clone()
    }
}

on_every_store! {
    async fn a_step_that_fails_is_retried_as_its_policy_says(lab: Lab) {
        // rule 5.1
        let flaky = Flaky::new(Retry::every(millis(1)).attempts(5));
        let engine = lab.engine().machine(flaky.clone()).start().await.unwrap();
        let order = lab.start(flaky.clone(), 2).await.unwrap();
        assert_eq!(lab.came_to(&order).await, 2);
        assert_eq!(flaky.attempts.read(), [0, 1, 2]);
        let again = ["step_failed", "retried"];
        let kinds = [&["started"][..], &again, &again, &["step_completed", "done"]].concat();
        assert_eq!(lab.kinds(order.id()).await, kinds);
        assert_eq!(lab.now(order.id()).await.last_error, None, "it ended well");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn when_the_attempts_are_spent_the_instance_fails_of_the_last_error(lab: Lab) {
        // rule 5.1: the first attempt counts.
        let flaky = Flaky::new(Retry::every(millis(0)).attempts(3));
        let engine = lab.engine().machine(flaky.clone()).start().await.unwrap();
        let order = lab.start(flaky.clone(), 99).await.unwrap();
        assert_eq!(lab.failed_of(&order).await, "attempt 2 failed");
        assert_eq!(flaky.attempts.read(), [0, 1, 2]);
        let again = ["step_failed", "retried"];
        let kinds = [&["started"][..], &again, &again, &["step_failed", "failed"]].concat();
        assert_eq!(lab.kinds(order.id()).await, kinds);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn while_it_waits_for_its_next_attempt_its_error_is_shown(lab: Lab) {
        let flaky = Flaky::new(Retry::every(minutes(5)));
        let engine = lab.engine().machine(flaky.clone()).start().await.unwrap();
        let order = lab.start(flaky.clone(), 99).await.unwrap();
        let row = lab.until_status(order.id(), Status::Scheduled).await;
        assert_eq!(row.last_error.as_deref(), Some("attempt 0 failed"));
        assert_eq!((row.attempt, row.step_seq, row.state.as_str()), (1, 1, "99"));
        assert_eq!(row.due_at.unwrap().since(row.updated_at), minutes(5));
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn exponential_delays_double_up_to_their_cap() {
    // rule 5.1
    let policy = Retry::exponential(secs(1))
        .steady()
        .cap(secs(5))
        .attempts(6);
    let flaky = Flaky::new(policy);
    let kit = Kit::builder().machine(flaky.clone()).build().await.unwrap();
    let order = kit.start(flaky.clone(), 99).await.unwrap();
    let begun = kit.now();
    kit.advance(minutes(1)).await;
    kit.assert_failed(&order, "attempt 5 failed").await;
    let due: Vec<Timestamp> = retried(&order.history().await.unwrap());
    let after: Vec<_> = due.iter().map(|due| due.since(begun).as_secs()).collect();
    assert_eq!(after, [1, 3, 7, 12, 17]);
}

#[tokio::test]
async fn jitter_keeps_delays_apart_and_within_their_upper_half() {
    // rule 5.1
    let flaky = Flaky::new(Retry::exponential(secs(8)).attempts(2));
    let kit = Kit::builder().machine(flaky.clone()).build().await.unwrap();
    let mut delays = Vec::new();
    for _ in 0..20 {
        let order = kit.start(flaky.clone(), 99).await.unwrap();
        kit.settle().await;
        let due = retried(&order.history().await.unwrap());
        delays.push(due[0].since(kit.now()));
    }
    assert!(
        delays
            .iter()
            .all(|delay| (secs(4)..=secs(8)).contains(delay)),
        "{delays:?}"
    );
    delays.sort();
    delays.dedup();
    assert!(delays.len() > 15, "{delays:?}");
}

fn retried(history: &[abide::history::Entry]) -> Vec<Timestamp> {
    let due = history.iter().filter_map(|entry| match &entry.what {
        HistoryEvent::Retried { due_at, .. } => Some(*due_at),
        _ => None,
    });
    due.collect()
}

/// Requests a second attempt for errors that pass, and none for others.
struct Choosy;

impl Machine for Choosy {
    const NAME: &'static str = "choosy";
    type Step = Try;
    type State = String;
    type Output = String;

    async fn step(&self, _: Try, ctx: &mut Context<Self>) -> Outcome<Self> {
        match (ctx.state().as_str(), ctx.attempt()) {
            ("busy", 0) => Err("busy".into()),
            ("busy", _) => done("served".into()),
            _ => Err("closed for good".into()),
        }
    }

    async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
        match fault.to_string().as_str() {
            "busy" => ctx.retry_or_stop(&Retry::every(millis(1)), fault),
            _ => ctx.retry_or_stop(&Retry::never(), fault),
        }
    }
}

on_every_store! {
    async fn a_handler_may_choose_which_errors_a_policy_is_for(lab: Lab) {
        // rules 5.1, 5.2
        let engine = lab.engine().machine(Choosy).start().await.unwrap();
        let busy = lab.start(Choosy, "busy".into()).await.unwrap();
        let closed = lab.start(Choosy, "closed".into()).await.unwrap();
        assert_eq!(lab.came_to(&busy).await, "served");
        assert_eq!(lab.failed_of(&closed).await, "closed for good");
        engine.shutdown().await;
    }
}
