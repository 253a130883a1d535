//! Code that a worker keeps in memory: it changes nothing but time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide::time::secs;
use abide::{Flow, Job, Signal, Status, Workflow};
use serde_json::{Value, json};

use crate::common::{Gate, Lab, eventually};
use crate::workflows::recorded::{Code, ok, operations};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");
const BUSY: Job<(), ()> = Job::new("busy");

type Count = Arc<AtomicUsize>;

/// Takes three signals, with a step after each, and counts how often it is begun.
fn counted(
    entries: &Count,
) -> impl Fn(Workflow, Value) -> futures_util::future::BoxFuture<'static, Result<Value, abide::BoxError>>
+ Send
+ Sync
+ 'static {
    let entries = entries.clone();
    move |wf, _| {
        entries.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let mut all = Vec::new();
            for _ in 0..3 {
                let go = wf.signal(GO).await?;
                all.push(wf.step("double", || async move { ok(go * 2) }).await?);
            }
            Ok(json!(all))
        })
    }
}

/// Waits until a run waits for its signal of that number, and sends it.
async fn send_go(lab: &Lab, id: abide::InstanceId, number: usize) {
    eventually("it to wait", async || {
        let row = lab.now(id).await;
        let ops = operations(&lab.events(id).await);
        let opened = ops.iter().filter(|op| op.ends_with("signal go"));
        row.status == Status::AwaitingSignal && opened.count() == number
    })
    .await;
    lab.signal(id, GO, &u32::try_from(number).unwrap())
        .await
        .unwrap();
}

on_every_store! {
    async fn code_that_is_kept_is_not_run_from_the_top(lab: Lab) {
        // the issue: a busy workflow does not replay at every wake
        let mut histories = Vec::new();
        for (kept, least, most) in [(1_000, 1, 1), (0, 4, 7)] {
            let entries = Count::default();
            let engine = lab.engine().workflow(RUN, counted(&entries)).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            for number in 1..=3 {
                send_go(&lab, run.id(), number).await;
            }
            assert_eq!(lab.came_to(&run).await, json!([2, 4, 6]));
            let entries = entries.load(Ordering::SeqCst);
            assert!((least..=most).contains(&entries), "with {kept} kept it was begun {entries} times");
            histories.push(operations(&lab.events(run.id()).await));
            engine.shutdown().await;
        }
        assert_eq!(histories[0], histories[1]);
    }
}

on_every_store! {
    async fn no_more_are_kept_than_there_is_room_for(lab: Lab) {
        // the issue: the cache is bounded
        let entries = Count::default();
        let engine = lab.engine().workflow(RUN, counted(&entries)).workflows_kept(2).start().await.unwrap();
        let mut runs = Vec::new();
        for _ in 0..10 {
            runs.push(lab.start(RUN, json!(null)).await.unwrap());
        }
        for number in 1..=3 {
            for run in &runs {
                send_go(&lab, run.id(), number).await;
            }
        }
        for run in &runs {
            assert_eq!(lab.came_to(run).await, json!([2, 4, 6]));
        }
        let entries = entries.load(Ordering::SeqCst);
        assert!(entries >= 30, "they were begun {entries} times");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn code_whose_run_went_on_elsewhere_is_not_gone_on_with(lab: Lab) {
        // rule 12.1: the engine that kept it finds that it is of another time
        let (first, second) = (Count::default(), Count::default());
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let busy = move |()| { let gate = at_gate.clone(); async move { gate.pass().await; Ok(()) } };
        let keeps = lab.engine().name("first").queue("default", 1).workflow(RUN, counted(&first)).job(BUSY, busy);
        let keeps = keeps.start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        send_go(&lab, run.id(), 1).await;
        lab.until(run.id(), "the second wait", |row| row.step_seq > 3 && row.status == Status::AwaitingSignal).await;
        // The first has its hands full, and another takes the next turn.
        let job = lab.start(BUSY, ()).await.unwrap();
        gate.reached_by(1).await;
        let other = lab.again().await.engine().name("second").workflow(RUN, counted(&second)).start().await.unwrap();
        send_go(&lab, run.id(), 2).await;
        eventually("the third wait", async || {
            let ops = operations(&lab.events(run.id()).await);
            ops.iter().filter(|op| op.ends_with("signal go")).count() == 3
        }).await;
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        other.shutdown().await;
        gate.open();
        lab.came_to(&job).await;
        send_go(&lab, run.id(), 3).await;
        assert_eq!(lab.came_to(&run).await, json!([2, 4, 6]));
        assert_eq!((first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (2, 1));
        keeps.shutdown().await;
    }
}

on_every_store! {
    async fn code_whose_turn_was_thrown_away_is_forgotten(lab: Lab) {
        // rules 1.3 and 12.1: what the first did after its claim was taken is as if it had never been
        let (gate, other_gate) = (Gate::closed(), Gate::closed());
        let code = |gate: Gate, text: &'static str| move |wf: Workflow, _: Value| {
            let gate = gate.clone();
            async move {
                let gate = &gate;
                let result = wf.step("say", || async move { gate.pass().await; ok(text.to_owned()) }).await?;
                let go = wf.signal(GO).await?;
                Ok(json!([result, go]))
            }
        };
        let first = lab.engine().name("w").queue("default", 1).workflow(RUN, code(gate.clone(), "first"));
        let first = first.start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        gate.reached_by(1).await;
        let second = lab.again().await.engine().name("w").workflow(RUN, code(other_gate.clone(), "second"));
        let second = second.start().await.unwrap();
        other_gate.reached_by(1).await;
        gate.open();
        eventually("the first to lose its claim", async || first.stats().stale == 1).await;
        other_gate.open();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        second.shutdown().await;
        lab.signal(run.id(), GO, &1).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(["second", 1]));
        first.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_that_runs_goes_on_through_commits_whatever_is_kept(lab: Lab) {
        // rule 1.2: it is not begun again by its own worker while that lives
        for kept in [0, 1] {
            let (gate, begun) = (Gate::closed(), Count::default());
            let (held, count) = (gate.clone(), begun.clone());
            let code = move |wf: Workflow, _: Value| {
                let (gate, count) = (held.clone(), count.clone());
                async move {
                    let (gate, count) = (&gate, &count);
                    let slow = wf.step("slow", || async move {
                        count.fetch_add(1, Ordering::SeqCst);
                        gate.pass().await;
                        ok(1)
                    });
                    let quick = async {
                        for n in 0..5 {
                            wf.step(format!("quick {n}"), || async { ok(()) }).await?;
                        }
                        ok(())
                    };
                    let (slow, quick) = wf.all((slow, quick)).await;
                    quick?;
                    Ok(json!(slow?))
                }
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            lab.until(run.id(), "the quick ones to be committed", |row| row.step_seq >= 6).await;
            gate.open();
            assert_eq!(lab.came_to(&run).await, json!(1));
            assert_eq!(begun.load(Ordering::SeqCst), 1, "with {kept} kept");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_worker_that_takes_over_replays_what_it_has_not_kept(lab: Lab) {
        // rules 12.1 and 5.3
        let entries = Count::default();
        let code: Code = |wf, _| Box::pin(async move {
            let one = wf.step("one", || async { ok(1) }).await?;
            Ok(json!([one, wf.signal(GO).await?]))
        });
        let count = entries.clone();
        let again = move |wf: Workflow, input: Value| { count.fetch_add(1, Ordering::SeqCst); code(wf, input) };
        let killable = lab.killable(move |engine| engine.name("a").lease(secs(600)).workflow(RUN, code)).await;
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        killable.die().await;
        let engine = lab.engine().name("b").workflow(RUN, again).start().await.unwrap();
        lab.signal(run.id(), GO, &5).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([1, 5]));
        assert_eq!(entries.load(Ordering::SeqCst), 1);
        engine.shutdown().await;
    }
}
