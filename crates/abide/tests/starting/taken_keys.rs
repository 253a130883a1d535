//! Keys that are taken when an instance would come to hold them: it gets an error, and no other instance is affected.

use std::time::Duration;

use abide::machine::{Fault, FaultKind, retry_in};
use abide::model::Scope;
use abide::time::millis;
use abide::{BoxError, Context, Graph, Machine, Outcome, Status, Step, done, stop};
use serde_json::{Value, json};

use crate::common::{At, Gate, Lab, Log, Script, eventually};

/// The time in which a healthy instance is done that was started beside poisoned ones: they took 25 seconds and more.
const PROMPTLY: Duration = Duration::from_secs(10);

fn only(statuses: &[Status]) -> Scope {
    statuses.iter().copied().collect()
}

async fn echo(value: Value) -> Result<Value, BoxError> {
    Ok(value)
}

#[derive(Step)]
enum Only {
    Start,
}

/// Ends at once, and notes the faults that its error handler gets.
#[derive(Clone, Default)]
struct Ends {
    faults: Log<(FaultKind, String)>,
    /// `true` if the handler wants it tried again.
    insists: bool,
}

impl Machine for Ends {
    const NAME: &'static str = "ends";
    type Step = Only;
    type State = u32;
    type Output = u32;

    async fn step(&self, _: Only, ctx: &mut Context<Self>) -> Outcome<Self> {
        done(*ctx.state())
    }

    async fn on_error(&self, fault: &Fault, _: &mut Context<Self>) -> Outcome<Self> {
        self.faults.note((fault.kind(), fault.to_string()));
        match self.insists {
            true => retry_in(millis(1)),
            false => stop("it was done before"),
        }
    }
}

on_every_store! {
    async fn runs_that_would_be_done_under_one_key_fail_and_delay_no_other(lab: Lab) {
        // rule 2.8: three runs of a graph were started under one key that is held when done. The commits of the second
        // and the third were tried again for ever, took both writers, and a healthy run stood still behind them.
        let graph = Graph::builder("once").task("a").build().unwrap();
        let engine = lab.engine().graph(&graph).task("a", echo).start().await.unwrap();
        let mut runs = Vec::new();
        for n in 0..3 {
            let run = lab.start(graph.clone(), json!(n)).key("order:1").scope(only(&[Status::Done]));
            runs.push(run.await.unwrap());
        }
        let healthy = lab.start(graph.clone(), json!("healthy")).await.unwrap();
        let result = tokio::time::timeout(PROMPTLY, lab.came_to(&healthy)).await;
        assert_eq!(result.expect("it is done promptly"), json!({"a": "healthy"}));
        let (mut well, mut errors) = (Vec::new(), Vec::new());
        for run in &runs {
            let ended = lab.ended(run.id()).await;
            match ended.status {
                Status::Done => well.push(run.id()),
                _ => errors.extend(ended.row.last_error),
            }
        }
        assert_eq!((well.len(), errors.len()), (1, 2));
        let taken = format!("key \"order:1\" is taken by instance {}", well[0]);
        assert!(errors.iter().all(|error| error.ends_with(&taken)), "{errors:?}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_error_handler_is_called_when_a_key_is_taken(lab: Lab) {
        // rules 2.8 and 4.2
        let ends = Ends::default();
        let engine = lab.engine().machine(ends.clone()).start().await.unwrap();
        let start = |n| lab.start(ends.clone(), n).key("k").scope(only(&[Status::Done]));
        let first = start(1).await.unwrap();
        assert_eq!(lab.came_to(&first).await, 1);
        let second = start(2).await.unwrap();
        assert_eq!(lab.failed_of(&second).await, "it was done before");
        let taken = format!("key \"k\" is taken by instance {}", first.id());
        assert_eq!(ends.faults.read(), [(FaultKind::Outcome, taken)]);
        assert_eq!(lab.kinds(second.id()).await, ["started", "step_failed", "failed"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_handler_that_insists_on_a_taken_key_is_stopped(lab: Lab) {
        // rules 2.8 and 5.2: what it answers takes the key too, and it is not called a second time. The key is held
        // when it has failed as well, by the first that did.
        let ends = Ends { insists: true, ..Ends::default() };
        let engine = lab.engine().machine(ends.clone()).start().await.unwrap();
        let scope = only(&[Status::Scheduled, Status::Done, Status::Failed]);
        let start = |n| lab.start(ends.clone(), n).key("k").scope(scope);
        let first = start(1).await.unwrap();
        assert_eq!(lab.came_to(&first).await, 1);
        let second = start(2).await.unwrap();
        let error = lab.failed_of(&second).await;
        let taken = format!("key \"k\" is taken by instance {}", first.id());
        assert_eq!(error, format!("{taken}; and its error handler failed: {taken}"));
        assert_eq!(ends.faults.read().len(), 1);
        assert!(!lab.now(second.id()).await.scope.holds(Status::Failed));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn timers_fire_though_two_of_one_key_are_due(lab: Lab) {
        // rule 2.8: with two such instances no timer of the store fired any more, also after a restart.
        let ends = Ends::default();
        let start = |n| lab.start(ends.clone(), n).delay(millis(200));
        let mut both = Vec::new();
        for n in 0..2 {
            both.push(start(n).key("k").scope(only(&[Status::Runnable])).await.unwrap());
        }
        let healthy = start(7).await.unwrap();
        // No worker runs until all are due.
        let (last, store) = (lab.now(healthy.id()).await.due_at, lab.store().await);
        eventually("all to be due", async || last <= Some(store.clock().now())).await;
        let engine = lab.engine().machine(ends.clone()).start().await.unwrap();
        let result = tokio::time::timeout(PROMPTLY, lab.came_to(&healthy)).await;
        assert_eq!(result.expect("its timer fires promptly"), 7);
        let mut statuses = Vec::new();
        for one in &both {
            statuses.push(lab.ended(one.id()).await.status);
        }
        assert_eq!(statuses, [Status::Done, Status::Failed]);
        let error = lab.failed_of(&both[1]).await;
        assert_eq!(error, format!("key \"k\" is taken by instance {}", both[0].id()));
        assert!(ends.faults.read().is_empty(), "no step ran");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_deploy_fails_nothing_that_runs_while_a_successor_waits(lab: Lab) {
        // rules 2.8, 5.3 and 6.7: one worker is killed, the next shut down, while a successor waits under the key.
        let gate = Gate::closed();
        let gated = |gate: &Gate| {
            let gate = gate.clone();
            Script::waiting(move |_: At, ctx| {
                let gate = gate.clone();
                Box::pin(async move {
                    if ctx.state() == &json!("first") {
                        gate.pass().await;
                    }
                    done(ctx.state().clone())
                })
            })
        };
        let script = gated(&gate);
        let killable = lab.killable(move |engine| engine.name("w").machine(script)).await;
        let start = |state: &str| {
            let scope = only(&[Status::Scheduled, Status::Runnable]);
            lab.start(Script::any(), json!(state)).key("k").scope(scope)
        };
        let first = start("first").await.unwrap();
        gate.reached_by(1).await;
        let second = start("second").queue("other").await.unwrap();
        killable.die().await;
        let engine = lab.engine().name("w").grace(millis(50)).machine(gated(&gate)).start().await.unwrap();
        gate.reached_by(2).await;
        engine.shutdown().await;
        assert_eq!(lab.now(first.id()).await.status, Status::Runnable);
        assert_eq!(lab.now(first.id()).await.scope, Scope::NEVER);
        gate.open();
        let engine = lab.engine().queue("default", 1).queue("other", 1).machine(gated(&gate)).start().await.unwrap();
        assert_eq!(lab.came_to(&first).await, json!("first"));
        assert_eq!(lab.came_to(&second).await, json!("second"));
        let kinds = lab.kinds(first.id()).await;
        assert_eq!(kinds, ["started", "reclaimed", "key_given_up", "step_completed", "done"]);
        engine.shutdown().await;
    }
}
