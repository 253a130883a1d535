//! Instances that are started with a policy of their own: it replaces their machine's.

use std::time::Duration;

use abide::client::new_start;
use abide::graph::RetrySpec;
use abide::machine::{Fault, Retry};
use abide::testing::Kit;
use abide::time::{hours, millis, minutes, secs};
use abide::{Context, Job, Machine, Outcome, Status, Step, done};

use crate::common::{Gate, Lab, Log};

/// Fails as its state prescribes, at every attempt; notes each attempt with its token.
#[derive(Clone)]
struct Bad {
    retry: Retry,
    /// `true` if its error handler decides by itself.
    decides: bool,
    gate: Gate,
    seen: Log<(u32, String)>,
}

impl Bad {
    fn new(retry: Retry) -> Self {
        Self {
            retry,
            decides: false,
            gate: Gate::closed(),
            seen: Log::new(),
        }
    }
}

#[derive(Step)]
enum Only {
    Step,
}

impl Machine for Bad {
    const NAME: &'static str = "bad";
    type Step = Only;
    type State = String;
    type Output = String;

    async fn step(&self, _: Only, ctx: &mut Context<Self>) -> Outcome<Self> {
        self.seen.note((ctx.attempt(), ctx.token()));
        match ctx.state().as_str() {
            "panic" => panic!("at the disco"),
            "hang" => self.gate.pass().await,
            _ => {}
        }
        Err("no luck".into())
    }

    async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
        match self.decides {
            true => done(format!("{fault}, and that is well")),
            false => ctx.retry_or_stop(&self.retry(), fault),
        }
    }

    fn retry(&self) -> Retry {
        self.retry.clone()
    }

    fn time_limit(&self, _: Only) -> Option<Duration> {
        Some(hours(1))
    }
}

on_every_store! {
    async fn errors_panics_and_time_limits_are_tried_again_as_the_start_requests(lab: Lab) {
        // rules 1.2, 5.2 and 5.4
        for (how, expected) in [("error", "no luck"), ("panic", "at the disco"), ("hang", "longer than its time limit of 40ms")] {
            let bad = Bad::new(Retry::never());
            let engine = lab.engine().grace(millis(10)).machine(bad.clone()).start().await.unwrap();
            let start = lab.start(bad.clone(), how.to_owned()).retry(3, millis(1)).time_limit(millis(40)).await.unwrap();
            let error = lab.failed_of(&start).await;
            assert!(error.contains(expected), "{how}: {error}");
            let seen = bad.seen.read();
            let attempts: Vec<_> = (0..3).map(|attempt| (attempt, seen[0].1.clone())).collect();
            assert_eq!(seen, attempts, "{how}");
            let again = ["step_failed", "retried"];
            assert_eq!(lab.kinds(start.id()).await, [&["started"][..], &again, &again, &["step_failed", "failed"]].concat());
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_policy_replaces_the_machines_also_where_it_allows_less(lab: Lab) {
        // rule 5.2
        let bad = Bad::new(Retry::every(millis(1)));
        let engine = lab.engine().machine(bad.clone()).start().await.unwrap();
        let start = lab.start(bad.clone(), "error".to_owned()).retry(1, millis(1)).await.unwrap();
        lab.failed_of(&start).await;
        assert_eq!(bad.seen.read().len(), 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_error_handler_that_decides_overrides_the_policy(lab: Lab) {
        // rule 5.2
        let bad = Bad { decides: true, ..Bad::new(Retry::never()) };
        let engine = lab.engine().machine(bad.clone()).start().await.unwrap();
        let start = lab.start(bad.clone(), "error".to_owned()).retry(9, millis(1)).await.unwrap();
        assert_eq!(lab.came_to(&start).await, "no luck, and that is well");
        assert_eq!(bad.seen.read().len(), 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn jobs_and_children_have_policies_of_their_own_too(lab: Lab) {
        // rules 5.2 and 5.4
        const FLAKY: Job<u32, usize> = Job::new("flaky").retry(Retry::never()).time_limit(hours(1));
        let tries = Log::new();
        let (noted, gate) = (tries.clone(), Gate::closed());
        let code = move |enough: u32| {
            let (noted, gate) = (noted.clone(), gate.clone());
            async move {
                noted.note(enough);
                let count = noted.read().len();
                if count == 1 { gate.pass().await; }
                if count < enough as usize { Err("not yet".into()) } else { Ok(count) }
            }
        };
        let engine = lab.engine().job(FLAKY, code).start().await.unwrap();
        let by = RetrySpec { max_attempts: 4, delay_ms: 1, factor: None, max_delay_ms: None };
        let job = lab.start_all([new_start(FLAKY, 3).retry_by(by).time_limit(millis(40))]).await.unwrap();
        let id = job[0].as_ref().unwrap().id();
        let ended = lab.ended(id).await;
        assert_eq!((ended.status, ended.attempt), (Status::Done, 2));
        assert_eq!(tries.read(), [3, 3, 3]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_policy_that_cannot_be_followed_is_refused_at_the_start(lab: Lab) {
        // rule 5.2
        let bad = Bad::new(Retry::never());
        let refused = lab.start(bad.clone(), "error".to_owned()).retry(0, millis(1)).time_limit(Duration::ZERO).await;
        let error = refused.err().unwrap().to_string();
        assert!(error.contains("max_attempts") && error.contains("step_timeout_ms"), "{error}");
    }
}

#[tokio::test]
async fn a_time_limit_of_an_instance_counts_from_its_claim() {
    // rule 5.4: the second waits in its queue for as long as the first may run, and has its minute all the same.
    let bad = Bad::new(Retry::never());
    let kit = Kit::builder().machine(bad.clone()).queue("default", 1);
    let kit = kit.build().await.unwrap();
    let hang = async || {
        let start = kit.start(bad.clone(), "hang".to_owned());
        start.time_limit(minutes(1)).await.unwrap()
    };
    let (first, second) = (hang().await, hang().await);
    bad.gate.reached_by(1).await;
    kit.assert_status(&second, Status::Runnable).await;
    kit.advance(minutes(1)).await;
    kit.assert_failed(&first, "ran longer than its time limit of 60s")
        .await;
    bad.gate.reached_by(2).await;
    kit.advance(secs(59)).await;
    kit.assert_status(&second, Status::Executing).await;
    kit.advance(secs(1)).await;
    kit.assert_failed(&second, "ran longer than its time limit of 60s")
        .await;
}
