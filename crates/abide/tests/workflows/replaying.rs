//! Histories: what a turn leaves there, and what is made of it.

use abide::client::new_start;
use abide::testing::Kit;
use abide::time::{hours, millis, minutes, secs};
use abide::{Flow, Job, Signal, Status, Workflow};
use serde_json::{Value, json};

use crate::common::{Gate, Lab};
use crate::workflows::recorded::{ok, operations};

const RUN: Flow<Value, Value> = Flow::new("run");
const GO: Signal<u32> = Signal::new("go");
const KID: Job<u32, u32> = Job::new("kid");

/// The events that each commit added to a run's history.
async fn commits(lab: &Lab, id: abide::InstanceId) -> Vec<Vec<&'static str>> {
    let store = lab.store().await;
    let rows = store.history(id, 0, 1_000).await.unwrap();
    let commits = rows.iter().map(|row| {
        let entries = row.unpack().unwrap();
        assert!(entries.iter().all(|entry| entry.at == row.at));
        entries.iter().map(|entry| entry.what.kind()).collect()
    });
    let commits = commits.collect();
    if !lab.is_memory() {
        store.close().await;
    }
    commits
}

on_every_store! {
    async fn the_whole_of_a_turn_is_one_commit_with_its_park(lab: Lab) {
        // rules 12.3 and 12.1
        let code = |wf: Workflow, _: Value| async move {
            wf.now();
            let go = wf.signal(GO).await?;
            let (wf, n) = (&wf, wf.random() % 2);
            let (kid, slept, again) = wf.all((wf.child(new_start(KID, go)), wf.sleep(hours(1)), wf.signal(GO))).await;
            slept?;
            Ok(json!([kid?, again?, n]))
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.signal(run.id(), GO, &1).await.unwrap();
        lab.until(run.id(), "the second wait", |row| row.step_seq == 3 && row.status == Status::AwaitingSignal).await;
        let done = commits(&lab, run.id()).await;
        // That it was started, the row tells.
        assert_eq!(done[0], ["operation_completed", "operation_opened", "wait_opened"]);
        assert_eq!(done[1], ["signal_received"]);
        let mut turn = done[2].clone();
        turn.sort_unstable();
        assert_eq!(turn, [
            "children_spawned", "message_cursor_advanced", "operation_completed", "operation_completed", "operation_opened",
            "operation_opened", "operation_opened", "operation_opened", "signal_applied", "wait_opened",
        ], "all of it, in one row");
        let row = lab.now(run.id()).await;
        assert!(row.due_at.is_some());
        engine.shutdown().await;
        lab.cancel(run.id(), "enough").force().await.unwrap();
    }
}

on_every_store! {
    async fn what_is_not_committed_leaves_nothing(lab: Lab) {
        // rules 12.3 and 1.1: the worker dies in the middle of its turn
        let gate = Gate::closed();
        let code = |gate: Gate| move |wf: Workflow, _: Value| {
            let gate = gate.clone();
            async move {
                let gate = &gate;
                let go = wf.signal(GO).await?;
                // In one poll: they are committed together, before the step begins.
                let (a, b) = (wf.uuid(), wf.uuid());
                wf.step("held", || async move { gate.pass().await; ok(()) }).await?;
                let after = wf.uuid();
                Ok(json!([go, a != b, b != after]))
            }
        };
        let dying = code(gate.clone());
        let killable = lab.killable(move |engine| engine.name("w").lease(secs(600)).workflow(RUN, dying)).await;
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.signal(run.id(), GO, &1).await.unwrap();
        gate.reached_by(1).await;
        killable.die().await;
        let before = operations(&lab.events(run.id()).await);
        assert_eq!(before.len(), 5, "{before:?}");
        assert_eq!((&*before[1], &*before[4]), ("-1 signal go = [1]", "+4 step held"));
        gate.open();
        let engine = lab.engine().name("w").workflow(RUN, code(gate)).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([1, true, true]));
        let after = operations(&lab.events(run.id()).await);
        assert_eq!(after[..5], before);
        assert_eq!(after.len(), 7, "{after:?}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn every_operation_takes_the_next_number_and_a_crash_after_every_commit_changes_nothing() {
    // rules 12.1, 12.3 and 1.1
    let code = |wf: Workflow, n: Value| async move {
        let now = wf.now();
        let a = wf.step("a", || async { ok(n["a"].as_u64()) }).await?;
        let (b, kid) = wf
            .all((
                async {
                    wf.sleep(minutes(3)).await?;
                    wf.step("b", || async { ok("b".to_owned()) }).await
                },
                wf.child(new_start(KID, 3)),
            ))
            .await;
        let first = wf.select((wf.signal(GO), wf.sleep(minutes(1)))).await;
        let timed_out = wf.signal(GO).timeout(minutes(1)).await?.is_none();
        let effect = wf.side_effect("e", || "effect".to_owned()).await;
        let kids = wf.children((0..3).map(|n| new_start(KID, n))).await?;
        let kids: Vec<u32> = kids.into_iter().collect::<Result<_, _>>()?;
        let passed = wf.now().since(now).as_secs();
        Ok(json!([
            a,
            b?,
            kid?,
            matches!(first, abide::workflow::OneOf::Second(_)),
            timed_out,
            effect,
            kids,
            passed
        ]))
    };
    let mut histories = Vec::new();
    for (kept, dies) in [(100, false), (0, false), (100, true), (0, true)] {
        let kit = Kit::builder()
            .workflow(RUN, code)
            .workflows_kept(kept)
            .job(KID, |n| async move { Ok(n * 10) });
        let kit = kit.build().await.unwrap();
        kit.kill_worker_after_every_commit(dies);
        let run = kit.start(RUN, json!({ "a": 1 })).await.unwrap();
        let mut rounds = 0;
        while !kit
            .get(run.id())
            .await
            .unwrap()
            .unwrap()
            .status
            .is_terminal()
        {
            kit.settle().await;
            if kit.worker_is_dead().await {
                kit.restart_worker().await.unwrap();
            } else {
                kit.advance(minutes(1)).await;
            }
            rounds += 1;
            assert!(rounds < 200, "it comes to no end");
        }
        let expected = json!([1, "b", 30, true, true, "effect", [0, 10, 20], 300]);
        kit.assert_done(&run, &expected).await;
        let history = kit.history(run.id()).await.unwrap();
        let mut all = operations(&history);
        // Times and durations apart, and the order in which a child and a timer came.
        for one in &mut all {
            if one.contains("now =") {
                one.clear();
            }
        }
        all.sort_unstable();
        histories.push(all);
    }
    for other in &histories[1..] {
        assert_eq!(other, &histories[0]);
    }
    for number in 2..=12 {
        let is_it = |one: &&String| one.starts_with(&format!("-{number} "));
        assert_eq!(
            histories[0].iter().filter(is_it).count(),
            1,
            "{:?}",
            histories[0]
        );
    }
}

on_every_store! {
    async fn what_came_concurrently_comes_in_the_same_order_again(lab: Lab) {
        // rule 12.1: which of several branches went first decides what the code sees
        let code = |wf: Workflow, _: Value| async move {
            let order = wf.state(Vec::new());
            let one = |n: u64| {
                let (wf, order) = (wf.clone(), order.clone());
                async move {
                    let step = wf.step(format!("step {n}"), move || async move {
                        tokio::time::sleep(millis(fastrand::u64(0..20))).await;
                        ok(n)
                    });
                    step.await?;
                    order.update(|order| order.push(n));
                    let position = order.with(Vec::len);
                    // Its number depends on the branches that came before.
                    wf.step(format!("after {n} as {position}"), || async { ok(()) }).await?;
                    ok(())
                }
            };
            for done in wf.all((0..8).map(one).collect::<Vec<_>>()).await {
                done?;
            }
            let before = order.get();
            wf.signal(GO).await?;
            Ok(json!([before, order.get()]))
        };
        let engine = lab.engine().workflow(RUN, code).workflows_kept(0).start().await.unwrap();
        let mut runs = Vec::new();
        for _ in 0..5 {
            runs.push(lab.start(RUN, json!(null)).await.unwrap());
        }
        for run in &runs {
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            let recorded = operations(&lab.events(run.id()).await);
            let ends = recorded.iter().filter_map(|op| op.split(" step step ").nth(1).filter(|_| op.starts_with('-')));
            let ends: Vec<u64> = ends.map(|end| end[..1].parse().unwrap()).collect();
            lab.signal(run.id(), GO, &1).await.unwrap();
            let orders = lab.came_to(run).await;
            assert_eq!(orders[0], json!(ends));
            assert_eq!(orders[0], orders[1]);
        }
        engine.shutdown().await;
    }
}
