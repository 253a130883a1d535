//! Several operations at once: all of them, or the first.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use abide::client::new_start;
use abide::history::HistoryEvent;
use abide::model::CommandStatus;
use abide::testing::Kit;
use abide::time::{hours, millis, minutes, secs};
use abide::workflow::{OneOf, StepRun};
use abide::{BoxError, Flow, Signal, Status, Workflow};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::{Barrier, oneshot};

use crate::common::{Gate, Lab, Log, Most, soon};
use crate::workflows::recorded::{ok, operations};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");
const OTHER: Signal<u32> = Signal::new("other");

/// A value that notes when it is dropped.
struct Dropped(Log<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

on_every_store! {
    async fn steps_that_wait_for_each_other_run_side_by_side(lab: Lab) {
        // the issue: steps may run concurrently inside `all`
        let code = |wf: Workflow, _: Value| async move {
            let barrier = &Barrier::new(3);
            let meets = |n: u32| wf.step(format!("meets {n}"), move || async move {
                barrier.wait().await;
                ok(n)
            });
            let (a, b, c) = wf.all((meets(1), meets(2), meets(3))).await;
            Ok(json!([a?, b?, c?]))
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([1, 2, 3]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn each_step_is_committed_when_it_ends_while_the_others_still_run(lab: Lab) {
        // rules 1.1 and 12.3
        let gate = Gate::closed();
        let held = gate.clone();
        let ran = Log::new();
        let notes = ran.clone();
        let code = move |wf: Workflow, _: Value| {
            let (gate, notes) = (held.clone(), notes.clone());
            async move {
                let (gate, notes) = (&gate, &notes);
                let quick = async {
                    let one = wf.step("quick", || async move { notes.note("quick"); ok(1) }).await?;
                    wf.step("after", move || async move { notes.note("after"); ok(one + 1) }).await
                };
                let slow = wf.step("slow", || async move { notes.note("slow"); gate.pass().await; ok(5) });
                let (quick, slow) = wf.all((quick, slow)).await;
                Ok(json!([quick?, slow?]))
            }
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        gate.reached_by(1).await;
        let what = "both of the quick branch to be committed";
        lab.until(run.id(), what, |row| row.step_seq >= 3).await;
        let ops = operations(&lab.events(run.id()).await);
        assert_eq!(ops, [
            "+1 all", "+2 step quick", "+3 step slow", "-2 step quick = 1", "+4 step after", "-4 step after = 2",
        ]);
        assert_eq!(lab.now(run.id()).await.status, Status::Executing, "the slow one still runs");
        gate.open();
        assert_eq!(lab.came_to(&run).await, json!([2, 5]));
        let mut ran = ran.read();
        ran.sort_unstable();
        assert_eq!(ran, ["after", "quick", "slow"], "each ran once, through all the commits");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_that_is_woken_while_the_engine_reads_is_polled(lab: Lab) {
        // rule 12.3: children that nothing waits for any more end, and the engine checks each time, while the step yields
        const CHILD: Flow<(), ()> = Flow::new("child");
        let gate = Gate::closed();
        let held = gate.clone();
        let child = move |wf: Workflow, ()| {
            let gate = held.clone();
            async move { Ok(wf.step("passes", || async { gate.pass().await; ok(()) }).await?) }
        };
        let opens = gate.clone();
        let code = move |wf: Workflow, _: Value| {
            let gate = opens.clone();
            async move {
                let late = wf.children((0..10).map(|_| new_start(CHILD, ()))).timeout(millis(1)).await?;
                let yields = wf.step("yields", || async {
                    gate.open();
                    let began = Instant::now();
                    while began.elapsed() < millis(500) {
                        tokio::task::yield_now().await;
                    }
                    ok(5)
                });
                Ok(json!([late.is_none(), yields.await?]))
            }
        };
        let engine = lab.engine().workflow(CHILD, child).workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([true, 5]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_waits_of_the_branches_that_lost_close_in_the_same_commit(lab: Lab) {
        // rules 12.3 and 12.2: a signal that came for a loser is there for the next wait, once
        for kept in [0, 100] {
            let code = |wf: Workflow, _: Value| async move {
                let first = match wf.select((wf.signal(GO), wf.signal(OTHER), wf.sleep(hours(1)))).await {
                    OneOf::First(go) => json!(["go", go?]),
                    OneOf::Second(other) => json!(["other", other?]),
                    other => panic!("{other:?}"),
                };
                let next = wf.signal(OTHER).await?;
                let after = wf.signal(OTHER).timeout(millis(1)).await?;
                Ok(json!([first, next, after]))
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            // Both are there before it runs: the first that was sent wins, and the other stays.
            let run = lab.start(RUN, json!(null)).delay(millis(200)).await.unwrap();
            lab.signal(run.id(), GO, &1).await.unwrap();
            let other = lab.signal(run.id(), OTHER, &2).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([["go", 1], 2, null]));
            let events = lab.events(run.id()).await;
            let at = |text: &str| {
                let ops = operations(&events);
                let index = ops.iter().position(|op| op == text);
                let index = index.unwrap_or_else(|| panic!("no {text} in {ops:?}"));
                let mut seen = 0;
                let entry = events.iter().find(|entry| {
                    let is = entry.what.kind().starts_with("operation_");
                    seen += usize::from(is);
                    is && seen == index + 1
                });
                entry.unwrap().at
            };
            let closed = at("-1 select = 0");
            for text in ["-2 signal go = [1]", "-3 signal other abandoned", "-4 sleep abandoned", "-5 signal other = [2]"] {
                assert_eq!(at(text), closed, "{text}");
            }
            let applied = events.iter().filter(|entry| {
                matches!(&entry.what, HistoryEvent::SignalApplied { name, .. } if name.as_str() == "other")
            });
            assert_eq!(applied.count(), 1);
            let records = lab.commands(run.id(), None, 10).await.unwrap().items;
            let record = records.iter().find(|record| record.id == other.id()).unwrap();
            assert_eq!(record.status, CommandStatus::Applied);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_parked_select_continues_with_the_first_branch_that_ends(lab: Lab) {
        // rules 12.2 and 7.2
        for kept in [0, 100] {
            let code = |wf: Workflow, _: Value| async move {
                let mut order = Vec::new();
                for _ in 0..3 {
                    order.push(match wf.select((wf.signal(GO), wf.signal(OTHER), wf.sleep(millis(400)))).await {
                        OneOf::First(go) => json!(go?),
                        OneOf::Second(other) => json!(other?),
                        _ => json!("time"),
                    });
                }
                Ok(json!(order))
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            lab.until(run.id(), "the first wait", |row| row.step_seq >= 2).await;
            lab.signal(run.id(), OTHER, &1).await.unwrap();
            lab.until(run.id(), "the second wait", |row| row.step_seq >= 3).await;
            lab.signal(run.id(), GO, &2).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([1, 2, "time"]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_select_ends_while_a_step_in_it_runs_and_the_step_is_dropped(lab: Lab) {
        // rule 12.3, and the issue: the first of several
        let gate = Gate::closed();
        let (held, drops) = (gate.clone(), Log::new());
        let notes = drops.clone();
        let code = move |wf: Workflow, _: Value| {
            let (gate, notes) = (held.clone(), notes.clone());
            async move {
                let (gate, notes) = (&gate, &notes);
                let slow = |name: &str| wf.step(name, || async move {
                    let _dropped = Dropped(notes.clone());
                    gate.pass().await;
                    ok(())
                });
                let timed = match wf.select((slow("slow one"), wf.sleep(millis(100)))).await {
                    OneOf::Second(slept) => { slept?; "time" }
                    _ => "step",
                };
                let signalled = match wf.select((slow("slow two"), wf.signal(GO))).await {
                    OneOf::Second(go) => json!(go?),
                    _ => json!("step"),
                };
                let quick = wf.step("quick", || async { ok("quick".to_owned()) });
                let first = match wf.select((slow("slow three"), quick)).await {
                    OneOf::Second(quick) => quick?,
                    _ => "slow".to_owned(),
                };
                Ok(json!([timed, signalled, first]))
            }
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        gate.reached_by(2).await;
        assert_eq!(drops.len(), 1, "the first step is gone");
        lab.signal(run.id(), GO, &7).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(["time", 7, "quick"]));
        assert_eq!(drops.len(), 3);
        let ops = operations(&lab.events(run.id()).await);
        for text in ["-2 step slow one abandoned", "-5 step slow two abandoned", "-8 step slow three abandoned"] {
            assert!(ops.iter().any(|op| op == text), "{text}: {ops:?}");
        }
        engine.shutdown().await;
    }
}

/// A value that cleans up in a task when it is dropped, as connections of a pool do.
struct CleansUp(Log<&'static str>);

impl Drop for CleansUp {
    fn drop(&mut self) {
        let log = self.0.clone();
        tokio::spawn(async move {
            tokio::time::sleep(millis(1)).await;
            log.note("cleaned up");
        });
    }
}

on_every_store! {
    async fn steps_may_use_all_of_tokio_and_when_they_are_dropped_too(lab: Lab) {
        // rule 12.5: it is the workflow's own code that may not
        let log = Log::new();
        let notes = log.clone();
        let code = move |wf: Workflow, _: Value| {
            let notes = notes.clone();
            async move {
                let notes = &notes;
                let slow = wf.step("slow", || async move {
                    let _cleans_up = CleansUp(notes.clone());
                    std::future::pending::<()>().await;
                    ok(())
                });
                let quick = wf.step("quick", || async move {
                    let task = tokio::spawn(async { tokio::time::sleep(millis(5)).await; 1 });
                    let file = tokio::task::spawn_blocking(|| 2);
                    let more = tokio::time::timeout(millis(2_000), async { 3 });
                    let _cleans_up = CleansUp(notes.clone());
                    ok(task.await? + file.await? + more.await?)
                });
                match wf.select((slow, quick)).await {
                    OneOf::Second(sum) => Ok(json!(sum?)),
                    OneOf::First(slow) => Ok(json!(slow?)),
                }
            }
        };
        let engine = lab.engine().workflow(RUN, code).workflows_kept(0).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(6));
        assert_eq!(log.grown_to(2).await, ["cleaned up"; 2]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_wins_against_waits_and_closes_them(lab: Lab) {
        // rule 12.3
        let code = |wf: Workflow, _: Value| async move {
            let quick = wf.step("quick", || async { ok(1) });
            let won = match wf.select((wf.signal(GO), wf.sleep(hours(1)), quick)).await {
                OneOf::Third(one) => one?,
                _ => 0,
            };
            wf.sleep(millis(1)).await?;
            Ok(json!(won))
        };
        let engine = lab.engine().workflow(RUN, code).workflows_kept(0).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(1));
        let ops = operations(&lab.events(run.id()).await);
        assert!(ops.contains(&"-2 signal go abandoned".to_owned()), "{ops:?}");
        assert!(ops.contains(&"-3 sleep abandoned".to_owned()), "{ops:?}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn groups_nest(lab: Lab) {
        // rule 12.1
        for kept in [0, 100] {
            let code = |wf: Workflow, _: Value| async move {
                let one = |n: u32| wf.step(format!("step {n}"), move || async move { ok(n) });
                let inner = async {
                    let (a, go) = wf.all((one(1), wf.signal(GO))).await;
                    ok(a? + go?)
                };
                let raced = async {
                    match wf.select((wf.signal(OTHER), async { wf.all(vec![one(2), one(3)]).await })).await {
                        OneOf::First(other) => ok(other?),
                        OneOf::Second(both) => ok(both.into_iter().sum::<Result<u32, _>>()?),
                    }
                };
                let (inner, raced, last) = wf.all((inner, raced, one(4))).await;
                // The first of a list, with a list inside.
                let (position, first) = wf.select(vec![wf.signal(OTHER), wf.signal(GO)]).await;
                Ok(json!([inner?, raced?, last?, position, first?]))
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            lab.signal(run.id(), GO, &10).await.unwrap();
            lab.signal(run.id(), GO, &20).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([11, 5, 4, 1, 20]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn two_hundred_steps_at_once(lab: Lab) {
        // rules 12.1 and 1.1
        for kept in [0, 100] {
            let most = Most::default();
            let inside = most.clone();
            let code = move |wf: Workflow, _: Value| {
                let most = inside.clone();
                async move {
                    let (most, barrier) = (&most, &Barrier::new(200));
                    let one = |n: u32| wf.step(format!("step {n}"), move || async move {
                        let _inside = most.enter();
                        barrier.wait().await;
                        ok(n)
                    });
                    let all = wf.all((0..200).map(one).collect::<Vec<_>>()).await;
                    let all: Vec<u32> = all.into_iter().collect::<Result<_, _>>()?;
                    wf.sleep(millis(1)).await?;
                    assert!(all.is_sorted());
                    Ok(json!(all.len()))
                }
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(200));
            assert_eq!(most.seen(), 200, "all at once");
            engine.shutdown().await;
        }
    }
}

/// A step that comes to its number, after others have been let run.
fn step(wf: &Workflow, n: u32) -> StepRun<'static, u32> {
    wf.step(format!("step {n}"), move || async move {
        tokio::time::sleep(millis(u64::from(n % 7))).await;
        ok(n)
    })
}

on_every_store! {
    async fn the_joins_of_others_work_too(lab: Lab) {
        // rule 12.1
        for kept in [0, 100] {
            let code = |wf: Workflow, _: Value| async move {
                let (a, b) = futures_util::join!(step(&wf, 3), step(&wf, 1));
                let (c, go, d) = tokio::join!(step(&wf, 2), wf.signal(GO), async {
                    let one = step(&wf, 4).await?;
                    ok(one + step(&wf, 5).await?)
                });
                let many = join_all((0..100).map(|n| step(&wf, n))).await;
                let many: Vec<u32> = many.into_iter().collect::<Result<_, _>>()?;
                let few = futures_util::future::try_join_all((0..3).map(|n| step(&wf, n))).await?;
                let waits = join_all((0..40).map(|_| wf.sleep(millis(1)))).await;
                let first = tokio::select! {
                    biased;
                    slow = wf.signal(OTHER) => slow?,
                    quick = step(&wf, 9) => quick?,
                };
                assert!(waits.iter().all(Result::is_ok) && many.is_sorted());
                Ok(json!([a?, b?, c?, go?, d?, many.len(), few, first]))
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            lab.signal(run.id(), GO, &10).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([3, 1, 2, 10, 9, 100, [0, 1, 2], 9]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn branches_may_tell_each_other_what_came_of_durable_operations(lab: Lab) {
        // rule 12.1: a channel within the code is deterministic: it is the same when the code runs again
        for kept in [0, 100] {
            let code = |wf: Workflow, _: Value| async move {
                let (sender, receiver) = oneshot::channel();
                let teller = async {
                    let go = wf.signal(GO).await?;
                    sender.send(go).map_err(|_| "the receiver is gone")?;
                    ok(())
                };
                let listener = async {
                    let go = receiver.await?;
                    ok(wf.step("use it", || async move { ok(go + 1) }).await?)
                };
                let (teller, listener) = wf.all((teller, listener)).await;
                teller?;
                wf.sleep(millis(1)).await?;
                Ok(json!(listener?))
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            lab.signal(run.id(), GO, &1).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(2));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_worker_that_dies_in_the_middle_of_many_runs_only_those_that_are_missing(lab: Lab) {
        // rules 1.1 and 5.3
        let (gate, ran) = (Gate::closed(), Log::new());
        let code = |gate: Gate, ran: Log<u32>| move |wf: Workflow, _: Value| {
            let (gate, ran) = (gate.clone(), ran.clone());
            async move {
                let (gate, ran) = (&gate, &ran);
                let one = |n: u32| wf.step(format!("step {n}"), move || async move {
                    if n % 2 == 1 { gate.pass().await }
                    ran.note(n);
                    ok(n)
                });
                let all = wf.all((0..10).map(one).collect::<Vec<_>>()).await;
                Ok(json!(all.into_iter().collect::<Result<Vec<u32>, _>>()?))
            }
        };
        let dying = code(gate.clone(), ran.clone());
        let killable = lab.killable(move |engine| engine.name("w").lease(secs(600)).workflow(RUN, dying)).await;
        let run = lab.start(RUN, json!(null)).await.unwrap();
        gate.reached_by(5).await;
        soon("the even ones to be committed", async {
            while operations(&lab.events(run.id()).await).iter().filter(|op| op.starts_with('-')).count() < 5 {
                tokio::time::sleep(millis(5)).await;
            }
        }).await;
        killable.die().await;
        gate.open();
        let engine = lab.engine().name("w").workflow(RUN, code(gate, ran.clone())).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
        let mut ran = ran.read();
        ran.sort_unstable();
        assert_eq!(ran, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "each came to its end once");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_step_runs_on_while_time_passes_and_signals_come_in_other_branches() {
    // rule 1.1: what the other branches come to is committed meanwhile
    for kept in [0, 100] {
        let gate = Gate::closed();
        let held = gate.clone();
        let begun = Log::new();
        let notes = begun.clone();
        let code = move |wf: Workflow, _: Value| {
            let (gate, notes) = (held.clone(), notes.clone());
            async move {
                let (gate, notes) = (&gate, &notes);
                let slow = wf.step("slow", || async move {
                    notes.note("slow");
                    gate.pass().await;
                    ok(1)
                });
                let others = async {
                    let go = wf.signal(GO).await?;
                    wf.sleep(minutes(5)).await?;
                    let note = || async move {
                        notes.note("other");
                        ok(())
                    };
                    wf.step("other", note).await?;
                    ok(go)
                };
                let (slow, others) = wf.all((slow, others)).await;
                Ok(json!([slow?, others?]))
            }
        };
        let kit = Kit::builder().workflow(RUN, code).workflows_kept(kept);
        let kit = kit.build().await.unwrap();
        let run = kit.start(RUN, json!(null)).await.unwrap();
        gate.reached_by(1).await;
        kit.signal(run.id(), GO, &3).await.unwrap();
        kit.settle().await;
        kit.advance(minutes(5)).await;
        begun.grown_to(2).await;
        assert_eq!(begun.read(), ["slow", "other"]);
        gate.open();
        kit.settle().await;
        kit.assert_done(&run, &json!([1, 3])).await;
        assert_eq!(begun.len(), 2, "with {kept} kept");
    }
}

/// Boxes code of different shapes.
fn boxed<F>(code: F) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, BoxError>> + Send>>
where
    F: Future<Output = Result<u32, BoxError>> + Send + 'static,
{
    Box::pin(code)
}

#[tokio::test]
async fn a_list_may_hold_anything_that_is_boxed() {
    // rule 12.1
    let code = |wf: Workflow, _: Value| async move {
        let wf = Arc::new(wf);
        let (one, two) = (wf.clone(), wf.clone());
        let branches = vec![
            boxed(async move { Ok(one.step("one", || async { ok(1) }).await?) }),
            boxed(async move {
                two.sleep(minutes(1)).await?;
                Ok(2)
            }),
        ];
        let all = wf.all(branches).await;
        Ok(json!(all.into_iter().collect::<Result<Vec<u32>, _>>()?))
    };
    let kit = Kit::builder().workflow(RUN, code).build().await.unwrap();
    let run = kit.start(RUN, json!(null)).await.unwrap();
    kit.settle().await;
    kit.advance(minutes(1)).await;
    kit.assert_done(&run, &json!([1, 2])).await;
}
