//! Tasks that fail, that take too long and that no worker takes: one child each, however often it is tried.

use std::time::{Duration, Instant};

use abide::time::{hours, millis, secs};
use abide::{Context, Graph, InstanceId, Machine, Outcome, Status, Step, done};
use serde_json::{Value, json};

use super::steps::{children, step};
use crate::common::{Gate, Lab, Log, eventually};

/// A task as a machine: it notes its id and token at each attempt, and fails as often as its input requires.
#[derive(Clone, Default)]
struct Flaky {
    seen: Log<(InstanceId, u32, String)>,
}

#[derive(Step)]
enum Run {
    Run,
}

impl Machine for Flaky {
    const NAME: &'static str = "task/flaky";
    type Step = Run;
    type State = u32;
    type Output = Value;

    async fn step(&self, _: Run, ctx: &mut Context<Self>) -> Outcome<Self> {
        self.seen.note((ctx.id(), ctx.attempt(), ctx.token()));
        match ctx.attempt() < *ctx.state() {
            true => Err("no luck".into()),
            false => done(json!(ctx.attempt())),
        }
    }
}

fn flaky(attempts: u32, delay: Duration) -> Graph {
    let graph = Graph::builder("flaky").task("flaky").retry(attempts, delay);
    graph.build().unwrap()
}

/// The one child of a run, as soon as it is there.
async fn task(lab: &Lab, run: InstanceId) -> abide::model::Instance {
    eventually("the task", async || !children(lab, run).await.is_empty()).await;
    let mut children = children(lab, run).await;
    assert_eq!(children.len(), 1, "{children:?}");
    children.remove(0)
}

/// Lets that much time pass, without any notification.
async fn pass(time: Duration) {
    let begun = Instant::now();
    eventually("time to pass", async || begun.elapsed() > time).await;
}

on_every_store! {
    async fn a_task_that_is_tried_again_is_the_same_child_with_the_same_token(lab: Lab) {
        // rules 1.2, 5.2 and 15.3
        let (graph, machine) = (flaky(3, millis(1)), Flaky::default());
        let engine = lab.engine().graph(&graph).machine(machine.clone()).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(2)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"flaky": 2}));
        let child = task(&lab, run.id()).await;
        assert_eq!((child.status, child.attempt, child.step_seq), (Status::Done, 2, 1));
        let seen = machine.seen.read();
        let token = &seen[0].2;
        let expected: Vec<_> = (0..3).map(|attempt| (child.id, attempt, token.clone())).collect();
        assert_eq!(seen, expected);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_task_whose_attempts_are_spent_fails_the_run(lab: Lab) {
        // rules 5.2 and 15.4
        let (graph, machine) = (flaky(2, millis(1)), Flaky::default());
        let engine = lab.engine().graph(&graph).machine(machine.clone()).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(9)).await.unwrap();
        let error = lab.failed_of(&run).await;
        assert!(error.contains("step \"flaky\"") && error.contains("no luck"), "{error}");
        let child = task(&lab, run.id()).await;
        assert_eq!((child.status, child.attempt), (Status::Failed, 1));
        assert_eq!(machine.seen.read().len(), 2);
        assert_eq!(step(&lab, run.id(), "flaky").await["status"], json!("failed"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_outage_of_workers_that_is_longer_than_the_timeout_fails_nothing(lab: Lab) {
        // rules 5.4 and 15.3. The bug: a task was given ten seconds, its workers were deployed anew for a minute, and
        // the run had failed for good when they were back.
        let graph = Graph::builder("outage").task("work").timeout(millis(40)).build().unwrap();
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(7)).await.unwrap();
        let waiting = task(&lab, run.id()).await;
        pass(millis(200)).await;
        assert_eq!(step(&lab, run.id(), "work").await, json!({"status": "running"}));
        let worker = lab.again().await.engine().task("work", |n: Value| async move { Ok(n) }).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"work": 7}));
        let child = task(&lab, run.id()).await;
        assert_eq!((child.id, child.status, child.attempt), (waiting.id, Status::Done, 0));
        engine.shutdown().await;
        worker.shutdown().await;
    }
}

on_every_store! {
    async fn every_attempt_has_the_whole_timeout_from_its_claim(lab: Lab) {
        // rule 5.4: also one that waited in its queue, and one that was tried before.
        let graph = Graph::builder("slow").task("slow").timeout(millis(300)).retry(2, millis(1)).build().unwrap();
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        task(&lab, run.id()).await;
        pass(millis(350)).await;
        let (gate, tries) = (Gate::closed(), Log::new());
        let (at_gate, noted) = (gate.clone(), tries.clone());
        let worker = lab.again().await.engine().task("slow", move |_: Value| {
            let (gate, tries) = (at_gate.clone(), noted.clone());
            async move {
                tries.note(Instant::now());
                if tries.read().len() == 1 { gate.pass().await; }
                Ok(json!("in time"))
            }
        }).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"slow": "in time"}));
        let tries = tries.read();
        assert!(tries[1] - tries[0] >= millis(300), "{tries:?}");
        let child = task(&lab, run.id()).await;
        assert_eq!(child.attempt, 1);
        assert_eq!(lab.kinds(child.id).await, ["started", "step_failed", "retried", "step_completed", "done"]);
        engine.shutdown().await;
        worker.shutdown().await;
    }
}

on_every_store! {
    async fn a_schedule_timeout_ends_a_task_that_waits_in_its_queue(lab: Lab) {
        // rule 15.3
        let graph = Graph::builder("late").task_named("s", "none").queue("docks").timeout(secs(1)).schedule_timeout(millis(80))
            .task("after").after("s").build().unwrap();
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        let error = lab.failed_of(&run).await;
        let expected = "task \"none\" did not end within 80 ms: it was waiting in queue \"docks\" for a worker, attempt 1";
        assert!(error.contains(expected), "{error}");
        let child = task(&lab, run.id()).await;
        assert_eq!((child.status, child.attempt), (Status::Cancelled, 0));
        let shown = step(&lab, run.id(), "s").await;
        assert!(shown["status"] == "failed" && shown["error"].as_str().unwrap().contains(expected), "{shown}");
        assert_eq!(step(&lab, run.id(), "after").await["status"], json!("cancelled"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_schedule_timeout_ends_a_task_that_executes(lab: Lab) {
        // rules 15.3 and 11.1
        let graph = Graph::builder("late").task("slow").schedule_timeout(millis(300)).build().unwrap();
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let engine = lab.engine().grace(millis(10)).graph(&graph)
            .task("slow", move |_: Value| { let gate = at_gate.clone(); async move { gate.pass().await; Ok(json!(1)) } })
            .start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        gate.reached_by(1).await;
        let error = lab.failed_of(&run).await;
        assert!(error.contains("did not end within 300 ms: it was executing, attempt 1"), "{error}");
        assert_eq!(task(&lab, run.id()).await.status, Status::Cancelled);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_schedule_timeout_ends_a_task_between_two_attempts(lab: Lab) {
        // rule 15.3
        let graph = Graph::builder("late").task("flaky").retry(5, hours(1)).schedule_timeout(millis(300)).build().unwrap();
        let engine = lab.engine().graph(&graph).machine(Flaky::default()).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(9)).await.unwrap();
        let error = lab.failed_of(&run).await;
        let expected = "did not end within 300 ms: it was waiting to be tried again, attempt 2; the last attempt failed: no luck";
        assert!(error.contains(expected), "{error}");
        let child = task(&lab, run.id()).await;
        assert_eq!((child.status, child.attempt), (Status::Cancelled, 1));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_task_that_ended_while_no_worker_advanced_its_run_has_ended(lab: Lab) {
        // rule 15.3: its schedule timeout passes while it is there to be read.
        let graph = Graph::builder("away").task("quick").schedule_timeout(millis(250)).task_named("bad", "bad").build().unwrap();
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(1)).await.unwrap();
        eventually("both tasks", async || children(&lab, run.id()).await.len() == 2).await;
        engine.shutdown().await;
        let worker = lab.again().await.engine().task("quick", |n: Value| async move { Ok(n) })
            .task("bad", |n: Value| async move { Ok(n) }).start().await.unwrap();
        eventually("both to end", async || children(&lab, run.id()).await.iter().all(|child| child.status == Status::Done)).await;
        worker.shutdown().await;
        pass(millis(300)).await;
        let engine = lab.again().await.engine().graph(&graph).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"quick": 1, "bad": 1}));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_process_that_dies_between_two_attempts_leaves_the_task_as_it_was(lab: Lab) {
        // rules 5.3 and 15.3
        let (graph, machine) = (flaky(4, millis(200)), Flaky::default());
        let build = |name: &'static str, kept: usize| {
            let (graph, machine) = (graph.clone(), machine.clone());
            move |engine: abide::engine::EngineBuilder| {
                engine.name(name).lease(millis(900)).workflows_kept(kept).graph(&graph).machine(machine)
            }
        };
        let killable = lab.killable(build("one", 100)).await;
        let run = lab.start(graph.clone(), json!(2)).await.unwrap();
        eventually("the first attempt to have failed", async || {
            children(&lab, run.id()).await.first().is_some_and(|child| child.status == Status::Scheduled)
        }).await;
        killable.die().await;
        let engine = build("two", 0)(lab.again().await.engine()).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"flaky": 2}));
        let child = task(&lab, run.id()).await;
        assert!(machine.seen.read().iter().all(|(id, ..)| *id == child.id));
        assert_eq!(lab.kinds(run.id()).await.iter().filter(|kind| **kind == "children_spawned").count(), 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_worker_that_dies_has_made_an_attempt_and_failed_nothing(lab: Lab) {
        // rules 5.3 and 15.3: one attempt is allowed, and the death of a worker is none of the task's failures.
        let graph = Graph::builder("dies").task("work").timeout(secs(60)).retry(1, millis(1)).build().unwrap();
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let killable = lab.killable(move |engine| {
            engine.name("dying").lease(millis(900)).task("work", move |_: Value| {
                let gate = at_gate.clone();
                async move { gate.pass().await; Ok(json!("never")) }
            })
        }).await;
        let run = lab.start(graph.clone(), json!(1)).await.unwrap();
        gate.reached_by(1).await;
        killable.die().await;
        let worker = lab.again().await.engine().name("next").task("work", |n: Value| async move { Ok(n) }).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"work": 1}));
        assert_eq!(task(&lab, run.id()).await.attempt, 1);
        engine.shutdown().await;
        worker.shutdown().await;
    }
}

on_every_store! {
    async fn times_that_are_longer_than_any_instance_may_have_are_cut(lab: Lab) {
        // rule 5.2: a graph takes any positive time, and its tasks start all the same.
        let graph = Graph::builder("long").task("a").timeout(Duration::MAX).retry(3, Duration::MAX).schedule_timeout(Duration::MAX)
            .build().unwrap();
        let engine = lab.engine().graph(&graph).task("a", |n: Value| async move { Ok(n) }).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(1)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"a": 1}));
        engine.shutdown().await;
    }
}
