//! Conditions: waits for a predicate over the workflow's own state.

use abide::testing::Kit;
use abide::*;
use serde_json::{Value, json};

use crate::common::{Gate, Lab};

const SET: Update<u32, u32> = Update::new("set");
const BUMP: Signal<u32> = Signal::new("bump");
const LEVEL: Flow<u32, Value> =
    Flow::new("level").messages(|| Messages::new().signal(BUMP).update(SET));

/// A level that updates set.
fn level(wf: &Workflow) -> State<u32> {
    let level = wf.state(0);
    let set = level.clone();
    wf.on_update(SET, move |n| {
        set.set(n);
        Ok(n)
    });
    level
}

on_every_store! {
    async fn it_is_looked_at_after_every_update_until_it_is_true(lab: Lab) {
        // rule 9.5
        let code = |wf: Workflow, at: u32| async move {
            let level = level(&wf);
            wf.condition("level.reached", || level.get() >= at).await?;
            Ok(json!(level.get()))
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(LEVEL, code).start().await.unwrap();
            let run = lab.start(LEVEL, 3).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            for n in 1..=2 {
                assert_eq!(lab.update(&run, SET, &n).await.unwrap(), n);
                lab.until_status(run.id(), Status::AwaitingSignal).await;
            }
            assert_eq!(lab.update(&run, SET, &5).await.unwrap(), 5);
            assert_eq!(lab.came_to(&run).await, json!(5));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn it_shows_its_kind_its_key_and_its_deadline(lab: Lab) {
        // rules 9.5 and 13.1
        let code = |wf: Workflow, _: u32| async move {
            let level = level(&wf);
            let reached = wf.condition("level.reached", || level.get() > 0).fingerprint("v1").timeout(hours(1)).await?;
            Ok(json!(reached))
        };
        let engine = lab.engine().workflow(LEVEL, code).start().await.unwrap();
        let run = lab.start(LEVEL, 0).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let look = lab.look(run.id()).await.unwrap().unwrap();
        assert_eq!(look.liveness.name(), "waiting_for_condition");
        let wait = look.wait.unwrap();
        let names: Vec<_> = wait.names.iter().map(Name::as_str).collect();
        assert_eq!((wait.kind, names), (WaitKind::Condition, vec!["level.reached"]));
        assert!(wait.id.is_some() && wait.deadline.is_some() && wait.since.is_some());
        let events = lab.events(run.id()).await;
        let signature = events.iter().find_map(|entry| match &entry.what {
            Happening::OperationOpened(opened) => Some(opened.signature.clone()),
            _ => None,
        }).unwrap();
        assert_eq!(signature.key.unwrap().as_str(), "level.reached");
        assert_eq!(signature.fingerprint.as_deref(), Some("v1"));
        lab.update(&run, SET, &1).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(true));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn its_timeout_is_false_and_told_apart_from_true(lab: Lab) {
        // rules 7.5 and 9.5
        let code = |wf: Workflow, _: u32| async move {
            let level = level(&wf);
            let first = wf.condition("a", || level.get() > 0).timeout(millis(20)).await?;
            let second = wf.condition_unnamed(|| level.get() > 0).timeout(hours(1)).await?;
            let third = wf.condition("c", || level.get() > 0).timeout(millis(0)).await?;
            Ok(json!([first, second, third]))
        };
        let engine = lab.engine().workflow(LEVEL, code).start().await.unwrap();
        let run = lab.start(LEVEL, 0).await.unwrap();
        lab.until(run.id(), "the second", |row| row.wait_kind == Some(WaitKind::Condition) && row.awaits.is_empty()).await;
        lab.update(&run, SET, &1).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([false, true, true]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_was_committed_first_decides_between_an_update_and_the_deadline(lab: Lab) {
        // rules 7.5 and 9.5
        let code = |wf: Workflow, _: u32| async move {
            let level = level(&wf);
            let reached = wf.condition("a", || level.get() > 0).timeout(secs(1)).await?;
            let seen = level.get();
            wf.condition("b", || level.get() > 0).await?;
            Ok(json!([reached, seen, level.get()]))
        };
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let busy = move |_: ()| { let gate = at_gate.clone(); async move { gate.pass().await; Ok(()) } };
        let engine = lab.engine().queue("default", 1).workflow(LEVEL, code).job(BUSY, busy).start().await.unwrap();
        let run = lab.start(LEVEL, 0).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.start(BUSY, ()).await.unwrap();
        gate.reached_by(1).await;
        lab.until(run.id(), "its time to be up", |row| row.timed_out).await;
        let asked = lab.update(&run, SET, &1).accepted().await.unwrap();
        gate.open();
        assert_eq!(lab.came_to(&run).await, json!([false, 0, 1]));
        assert_eq!(asked.answer().await.unwrap(), 1);
        engine.shutdown().await;
    }
}

const BUSY: Job<(), ()> = Job::new("busy");

on_every_store! {
    async fn it_is_looked_at_after_signals_and_steps_of_other_branches(lab: Lab) {
        // rule 9.5
        let code = |wf: Workflow, _: u32| async move {
            let level = wf.state(0);
            let of_signal = async {
                let by = wf.signal(BUMP).await?;
                level.update(|level| *level += by);
                Ok::<_, BoxError>(())
            };
            let of_step = async {
                let by = wf.step("bump", || async { Ok::<_, BoxError>(2) }).await?;
                level.update(|level| *level += by);
                wf.sleep(millis(10)).await?;
                level.update(|level| *level += 10);
                Ok::<_, BoxError>(())
            };
            let (reached, a, b) = wf.all((wf.condition("level", || level.get() >= 15), of_signal, of_step)).await;
            reached?;
            a?;
            b?;
            Ok(json!(level.get()))
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(LEVEL, code).start().await.unwrap();
            let run = lab.start(LEVEL, 0).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            lab.signal(&run, BUMP, &3).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(15));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn one_that_is_true_already_does_not_wait(lab: Lab) {
        // rule 9.5
        let code = |wf: Workflow, _: u32| async move {
            for n in 0..50 {
                wf.condition(&format!("n:{n}"), || true).await?;
                wf.condition_unnamed(|| true).fingerprint("always").await?;
            }
            Ok(json!(null))
        };
        let engine = lab.engine().workflow(LEVEL, code).start().await.unwrap();
        let run = lab.start(LEVEL, 0).await.unwrap();
        lab.came_to(&run).await;
        let kinds = lab.kinds(run.id()).await;
        assert!(!kinds.contains(&"wait_opened"), "it never parked");
        assert_eq!(kinds.iter().filter(|kind| **kind == "operation_completed").count(), 100);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_signal_and_a_condition_are_waited_for_at_once(lab: Lab) {
        // rules 9.5 and 13.1
        let code = |wf: Workflow, _: u32| async move {
            let level = level(&wf);
            let mut ends = Vec::new();
            for _ in 0..2 {
                let seen = level.get();
                ends.push(match wf.select((wf.signal(BUMP), wf.condition("changed", || level.get() != seen))).await {
                    OneOf::First(by) => json!(["signal", by?]),
                    OneOf::Second(changed) => {
                        changed?;
                        json!(["condition", level.get()])
                    }
                });
            }
            Ok(json!(ends))
        };
        let engine = lab.engine().workflow(LEVEL, code).start().await.unwrap();
        let run = lab.start(LEVEL, 0).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        assert_eq!(lab.look(run.id()).await.unwrap().unwrap().wait.unwrap().kind, WaitKind::Signal);
        lab.update(&run, SET, &4).await.unwrap();
        lab.signal(&run, BUMP, &9).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([["condition", 4], ["signal", 9]]));
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_condition_is_waited_for_through_crashes_and_days() {
    // rules 1.1 and 9.5
    let code = |wf: Workflow, _: u32| async move {
        let level = level(&wf);
        let first = wf
            .condition("a", || level.get() == 1)
            .timeout(days(2))
            .await?;
        let second = wf
            .condition("b", || level.get() == 2)
            .timeout(days(2))
            .await?;
        Ok(json!([first, second]))
    };
    let kit = Kit::builder().workflow(LEVEL, code).build().await.unwrap();
    let run = kit.start(LEVEL, 0).await.unwrap();
    kit.advance(days(1)).await;
    kit.restart_worker().await.unwrap();
    assert_eq!(kit.update(&run, SET, &1).await.unwrap(), 1);
    kit.restart_worker().await.unwrap();
    kit.advance(days(1)).await;
    kit.restart_worker().await.unwrap();
    kit.assert_status(&run, Status::AwaitingSignal).await;
    kit.advance(days(2)).await;
    kit.assert_done(&run, &json!([true, false])).await;
}

on_every_store! {
    async fn a_condition_without_a_key_is_listed_among_the_waits(lab: Lab) {
        // rule 13.1
        let code = |wf: Workflow, _: u32| async move {
            let level = level(&wf);
            wf.condition_unnamed(|| level.get() > 0).timeout(hours(1)).await?;
            Ok(json!(null))
        };
        let engine = lab.engine().workflow(LEVEL, code).start().await.unwrap();
        let run = lab.start(LEVEL, 0).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let filter = WaitsFilter { kind: Some(WaitKind::Condition), ..WaitsFilter::default() };
        let waits = lab.waits(&filter, None, 9).await.unwrap().items;
        assert_eq!(waits.iter().map(|wait| (wait.instance, wait.name.as_str())).collect::<Vec<_>>(), [(run.id(), "")]);
        assert!(waits[0].deadline.is_some());
        let named = WaitsFilter { name: Some("level".into()), ..filter };
        assert!(lab.waits(&named, None, 9).await.unwrap().items.is_empty());
        engine.shutdown().await;
    }
}
