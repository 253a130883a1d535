//! Conditions: waits for a predicate over the workflow's own state.

use abide::client::WaitsFilter;
use abide::history::HistoryEvent;
use abide::machine::Messages;
use abide::model::{Name, WaitKind};
use abide::prelude::*;
use abide::testing::Kit;
use abide::workflow::{OneOf, State};
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
    async fn it_is_evaluated_after_every_update_until_it_is_true(lab: Lab) {
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
        let view = lab.describe(run.id()).await.unwrap().unwrap();
        assert_eq!(view.liveness.name(), "waiting_for_condition");
        let wait = view.wait.unwrap();
        let names: Vec<_> = wait.names.iter().map(Name::as_str).collect();
        assert_eq!((wait.kind, names), (WaitKind::Condition, vec!["level.reached"]));
        assert!(wait.id.is_some() && wait.deadline.is_some() && wait.since.is_some());
        let events = lab.events(run.id()).await;
        let signature = events.iter().find_map(|entry| match &entry.what {
            HistoryEvent::OperationOpened(opened) => Some(opened.signature.clone()),
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
    async fn its_timeout_is_false_and_distinct_from_true(lab: Lab) {
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
        lab.until(run.id(), "the second", |row| row.wait_kind() == Some(WaitKind::Condition) && row.awaited().is_empty()).await;
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
        let update = lab.update(&run, SET, &1).accepted().await.unwrap();
        gate.open();
        assert_eq!(lab.came_to(&run).await, json!([false, 0, 1]));
        assert_eq!(update.answer().await.unwrap(), 1);
        engine.shutdown().await;
    }
}

const BUSY: Job<(), ()> = Job::new("busy");

on_every_store! {
    async fn it_is_evaluated_after_signals_and_steps_of_other_branches(lab: Lab) {
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
        assert_eq!(lab.describe(run.id()).await.unwrap().unwrap().wait.unwrap().kind, WaitKind::Signal);
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

on_every_store! {
    async fn conditions_are_listed_one_by_one_also_beside_other_waits(lab: Lab) {
        // rule 13.1: beside a signal none was listed, and beside one with a key those without were not.
        const MIXED: Flow<bool, Value> = Flow::new("mixed").messages(|| Messages::new().signal(BUMP).update(SET));
        let code = |wf: Workflow, signal: bool| async move {
            let level = level(&wf);
            let keyed = wf.condition("level.reached", || level.get() > 0);
            let unkeyed = wf.condition_unnamed(|| level.get() > 1).timeout(hours(1));
            if signal {
                let (by, ..) = wf.all((wf.signal(BUMP), keyed, unkeyed)).await;
                return Ok(json!(by?));
            }
            let _ = wf.all((keyed, unkeyed)).await;
            Ok(json!(null))
        };
        let engine = lab.engine().workflow(MIXED, code).start().await.unwrap();
        for signal in [false, true] {
            let run = lab.start(MIXED, signal).await.unwrap();
            let id = run.id();
            lab.until_status(id, Status::AwaitingSignal).await;
            let of_run = WaitsFilter { instance: Some(id), ..WaitsFilter::default() };
            let listed = |filter: WaitsFilter| {
                let lab = lab.clone();
                async move {
                    let waits = lab.waits(&filter, None, 9).await.unwrap().items.into_iter();
                    let waits = waits.map(|one| (one.kind.name(), one.name, one.deadline.is_some()));
                    waits.collect::<Vec<_>>()
                }
            };
            let conditions = [("condition", "level.reached".to_owned(), false), ("condition", String::new(), true)];
            let first = signal.then(|| ("signal", "bump".to_owned(), false));
            let all: Vec<_> = first.into_iter().chain(conditions.clone()).collect();
            assert_eq!(listed(of_run.clone()).await, all);
            let of_kind = WaitsFilter { kind: Some(WaitKind::Condition), ..of_run.clone() };
            assert_eq!(listed(of_kind).await, conditions);
            // Also when nothing but the key is known.
            let named = WaitsFilter { name: Some("level.reached".into()), ..WaitsFilter::default() };
            assert_eq!(listed(named).await, conditions[..1]);
            let waits = lab.waits(&of_run, None, 9).await.unwrap().items;
            let ids: Vec<_> = waits.iter().map(|one| one.wait_id.clone().unwrap().to_string()).collect();
            let expected: Vec<_> = waits.iter().map(|one| format!("wait:{id}:{}", one.operation.unwrap())).collect();
            assert_eq!(ids, expected);
            let view = lab.describe(id).await.unwrap().unwrap();
            assert!(view.reason.is_none(), "{:?}", view.reason);
            assert_eq!(view.wait.unwrap().waits.len(), all.len());
            // A signal is for the wait that wants it, and no condition.
            if signal {
                lab.signal(id, BUMP, &1).await.unwrap();
                let record = lab.commands(id, None, 1).await.unwrap().items.remove(0);
                let wait = waits.iter().find(|one| one.kind == WaitKind::Signal).unwrap();
                assert_eq!(record.wait_id, wait.wait_id);
            }
            assert_eq!(lab.update(&run, SET, &2).await.unwrap(), 2);
            lab.came_to(&run).await;
        }
        engine.shutdown().await;
    }
}
