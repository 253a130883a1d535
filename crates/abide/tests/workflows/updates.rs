//! Updates of workflows: handlers over their own state.

use abide::client::UpdateError;
use abide::engine::Engine;
use abide::machine::Messages;
use abide::prelude::*;
use abide::workflow::State;
use serde_json::{Value, json};

use crate::common::{Gate, Lab, Log, eventually};

const ADD: Update<i64, i64> = Update::new("add");
const FAIL: Update<String, ()> = Update::new("fail");
const PANIC: Update<(), ()> = Update::new("panic");
const LARGE: Update<usize, String> = Update::new("large");
const LATE: Update<i64, i64> = Update::new("late");
const NEVER: Update<i64, i64> = Update::new("never");
const NOTE: Signal<i64> = Signal::new("note");
const SHUT: Signal<()> = Signal::new("shut");

const TILL: Flow<(), Value> = Flow::new("till").messages(|| {
    let messages = Messages::new()
        .signal(NOTE)
        .signal(SHUT)
        .update(ADD)
        .update(FAIL);
    messages
        .update(PANIC)
        .update(LARGE)
        .update(LATE)
        .update(NEVER)
});

/// A total, and what was added to it.
fn handle(wf: &Workflow, log: &Log<i64>) -> (State<i64>, State<Vec<i64>>) {
    let (total, entries) = (wf.state(0), wf.state(Vec::new()));
    let adds = (total.clone(), entries.clone(), log.clone());
    wf.on_update(ADD, move |n| {
        let (total, entries, log) = &adds;
        log.note(n);
        entries.update(|entries| entries.push(n));
        Ok(total.update(|total| {
            *total += n;
            *total
        }))
    });
    let fails = (total.clone(), entries.clone());
    wf.on_update(FAIL, move |why: String| {
        fails.0.set(-1);
        fails.1.update(Vec::clear);
        Err(why.into())
    });
    let panics = (total.clone(), entries.clone());
    wf.on_update(PANIC, move |()| {
        panics.0.set(-1);
        panics.1.update(|entries| {
            entries.clear();
            panic!("the till is on fire")
        })
    });
    wf.on_update(LARGE, {
        let total = total.clone();
        move |size| {
            total.set(-2);
            Ok("x".repeat(size))
        }
    });
    (total, entries)
}

async fn till(wf: Workflow, log: Log<i64>) -> Result<Value, BoxError> {
    let (total, entries) = handle(&wf, &log);
    wf.signal(SHUT).await?;
    Ok(json!([total.get(), entries.get()]))
}

async fn engine(lab: &Lab, kept: usize) -> (Engine, Log<i64>) {
    let log = Log::new();
    let noted = log.clone();
    let engine = lab
        .engine()
        .workflows_kept(kept)
        .workflow(TILL, move |wf, ()| till(wf, noted.clone()));
    (engine.start().await.unwrap(), log)
}

fn failed<R: std::fmt::Debug>(answer: Result<R, UpdateError>) -> String {
    match answer.unwrap_err() {
        UpdateError::Failed { error, .. } => error,
        other => panic!("{other}"),
    }
}

on_every_store! {
    async fn each_is_answered_from_the_state_that_those_before_it_left(lab: Lab) {
        // rules 9.1 and 9.2
        for kept in [100, 0] {
            let (engine, _) = engine(&lab, kept).await;
            let run = lab.start(TILL, ()).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            for n in 1..=5 {
                assert_eq!(lab.update(&run, ADD, &n).await.unwrap(), (1..=n).sum::<i64>());
            }
            lab.signal(&run, SHUT, &()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([15, [1, 2, 3, 4, 5]]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_handler_that_fails_or_panics_changes_nothing(lab: Lab) {
        // rule 9.2: in memory, and when it is replayed.
        for kept in [100, 0] {
            let (engine, _) = engine(&lab, kept).await;
            let run = lab.start(TILL, ()).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            lab.update(&run, ADD, &5).await.unwrap();
            assert_eq!(failed(lab.update(&run, FAIL, &"no change".into()).await), "no change");
            assert!(failed(lab.update(&run, PANIC, &()).await).contains("the till is on fire"));
            assert_eq!(lab.update(&run, ADD, &1).await.unwrap(), 6);
            let row = lab.until_status(run.id(), Status::AwaitingSignal).await;
            assert_eq!(row.last_error, None);
            lab.signal(&run, SHUT, &()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([6, [5, 1]]));
            let kinds = lab.kinds(run.id()).await;
            assert_eq!(kinds.iter().filter(|kind| **kind == "update_failed").count(), 2);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn an_answer_that_is_too_large_fails_the_update_and_nothing_else(lab: Lab) {
        // rules 9.2 and 16.3
        let (engine, _) = engine(&lab, 100).await;
        let run = lab.start(TILL, ()).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        assert_eq!(lab.update(&run, LARGE, &10).await.unwrap().len(), 10);
        lab.update(&run, ADD, &3).await.unwrap();
        let error = failed(lab.update(&run, LARGE, &(2 << 20)).await);
        assert!(error.contains("payload_bytes"), "{error}");
        assert_eq!(lab.update(&run, ADD, &5).await.unwrap(), 6, "it changed nothing");
        lab.signal(&run, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([6, [3, 5]]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_request_id_makes_it_one_update_with_one_answer(lab: Lab) {
        // rule 9.3
        let (engine, log) = engine(&lab, 100).await;
        let run = lab.start(TILL, ()).await.unwrap();
        assert_eq!(lab.update(&run, ADD, &5).request_id("r").await.unwrap(), 5);
        lab.update(&run, ADD, &1).await.unwrap();
        assert_eq!(lab.update(&run, ADD, &5).request_id("r").await.unwrap(), 5);
        let other = lab.update(&run, ADD, &6).request_id("r").await.unwrap_err();
        assert!(matches!(&other, UpdateError::Send(error) if error.outcome() == Some("rejected_conflicting_duplicate")), "{other}");
        lab.signal(&run, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([6, [5, 1]]));
        assert_eq!(log.len(), 2);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn one_that_comes_before_there_is_a_handler_waits_for_it_while_the_code_goes_on(lab: Lab) {
        // rules 9.1 and 9.4
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let code = move |wf: Workflow, ()| {
            let gate = at_gate.clone();
            async move {
                wf.step("before", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(()) } }).await?;
                let total = wf.state(10);
                let late = total.clone();
                wf.on_update(LATE, move |n| Ok(late.update(|total| { *total += n; *total })));
                wf.signal(SHUT).await?;
                Ok(json!(total.get()))
            }
        };
        let run = lab.start(TILL, ()).await.unwrap();
        let early = lab.update(&run, LATE, &1).accepted().await.unwrap();
        let engine = lab.engine().workflow(TILL, code).start().await.unwrap();
        gate.reached_by(1).await;
        let update = lab.update(&run, LATE, &1).accepted().await.unwrap();
        assert!(matches!(update.answer_within(millis(100)).await, Err(UpdateError::NotYet { .. })));
        gate.open();
        assert_eq!((early.answer().await.unwrap(), update.answer().await.unwrap()), (11, 12));
        lab.signal(&run, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(12));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn one_that_nothing_answers_stays_pending_and_costs_no_turn_after_the_first(lab: Lab) {
        // rules 9.1 and 9.2
        let (engine, _) = engine(&lab, 100).await;
        let run = lab.start(TILL, ()).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let never = lab.update(&run, NEVER, &1).accepted().await.unwrap();
        assert_eq!(lab.update(&run, ADD, &5).await.unwrap(), 5);
        let turns = lab.until_status(run.id(), Status::AwaitingSignal).await.step_seq;
        assert!(matches!(never.answer_within(millis(100)).await, Err(UpdateError::NotYet { .. })));
        assert_eq!(lab.now(run.id()).await.step_seq, turns);
        lab.signal(&run, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([5, [5]]));
        assert!(failed(never.answer().await).contains("done"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn one_that_comes_while_a_step_runs_is_answered_meanwhile(lab: Lab) {
        // rules 6.6 and 9.1: also from another process.
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let code = move |wf: Workflow, ()| {
            let gate = at_gate.clone();
            async move {
                let (total, _) = handle(&wf, &Log::new());
                wf.step("long", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(()) } }).await?;
                Ok(json!(total.get()))
            }
        };
        let engine = lab.engine().poll(hours(1)).workflow(TILL, code).start().await.unwrap();
        let run = lab.start(TILL, ()).await.unwrap();
        gate.reached_by(1).await;
        let outside = lab.again().await;
        for n in 1..=3 {
            let since = std::time::Instant::now();
            let sender = if n == 2 { &outside } else { &*lab };
            assert_eq!(sender.update(&run, ADD, &1).await.unwrap(), n);
            assert!(since.elapsed() < millis(900), "it took {:?} (number {n})", since.elapsed());
        }
        assert_eq!(failed(lab.update(&run, FAIL, &"no".into()).await), "no");
        gate.open();
        assert_eq!(lab.came_to(&run).await, json!(3));
        assert_eq!(gate.arrivals(), 1, "the step was not disturbed");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn updates_and_signals_apply_in_the_order_in_which_they_came(lab: Lab) {
        // rule 9.4: all of them were there before the first turn.
        let code = |wf: Workflow, ()| async move {
            let order = wf.state(Vec::new());
            wf.on_update(ADD, { let order = order.clone(); move |n| { order.update(|order| order.push(n)); Ok(n) } });
            for _ in 0..3 {
                let n = wf.signal(NOTE).await?;
                order.update(|order| order.push(n));
            }
            wf.condition("six", || order.with(Vec::len) == 6).await?;
            Ok(json!(order.get()))
        };
        for others in [0, 100] {
            let run = lab.start(TILL, ()).await.unwrap();
            // A buffered signal that is not waited for delays nothing.
            lab.signal(&run, SHUT, &()).await.unwrap();
            for _ in 0..others {
                lab.signal(&run, SHUT, &()).await.unwrap();
            }
            let mut updates = Vec::new();
            for n in 0..3 {
                lab.signal(&run, NOTE, &(2 * n)).await.unwrap();
                updates.push(lab.update(&run, ADD, &(2 * n + 1)).accepted().await.unwrap());
            }
            let engine = lab.engine().workflow(TILL, code).start().await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([0, 1, 2, 3, 4, 5]));
            for (update, n) in updates.iter().zip(0..) {
                assert_eq!(update.answer().await.unwrap(), 2 * n + 1);
            }
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn those_that_are_pending_at_the_end_fail_and_say_so(lab: Lab) {
        // rule 9.2
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let code = move |wf: Workflow, ()| {
            let gate = at_gate.clone();
            async move {
                wf.step("last", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(()) } }).await?;
                Ok(json!(null))
            }
        };
        let engine = lab.engine().workflow(TILL, code).start().await.unwrap();
        let run = lab.start(TILL, ()).await.unwrap();
        gate.reached_by(1).await;
        let update = lab.update(&run, NEVER, &1).accepted().await.unwrap();
        gate.open();
        lab.came_to(&run).await;
        let error = failed(update.answer().await);
        assert!(error.contains("done"), "{error}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_update_that_it_does_not_take_is_refused(lab: Lab) {
        // rules 8.3 and 9.1
        let (engine, log) = engine(&lab, 100).await;
        let run = lab.start(TILL, ()).await.unwrap();
        let text: Update<String, i64> = Update::new("add");
        let error = lab.update(&run, text, &"five".into()).await.unwrap_err();
        assert!(matches!(&error, UpdateError::Send(error) if error.reason() == Some("invalid_update_arguments")), "{error}");
        let unknown: Update<(), ()> = Update::new("unheard-of");
        let error = lab.update(&run, unknown, &()).await.unwrap_err();
        assert!(matches!(&error, UpdateError::Send(error) if error.reason() == Some("unknown_update")), "{error}");
        assert_eq!(log.len(), 0);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_crowd_of_them_is_answered_each_once(lab: Lab) {
        // rules 9.1 and 9.4
        let (engine, log) = engine(&lab, 100).await;
        let run = lab.start(TILL, ()).key("crowd").await.unwrap();
        let callers = (0..8).map(|_| {
            let abide = (*lab).clone();
            tokio::spawn(async move {
                let mut answers = Vec::new();
                for _ in 0..25 {
                    answers.push(abide.update("crowd", ADD, &1).await.unwrap());
                }
                answers
            })
        });
        let mut answers = Vec::new();
        for one in callers.collect::<Vec<_>>() {
            answers.extend(one.await.unwrap());
        }
        answers.sort_unstable();
        assert_eq!(answers, (1..=200).collect::<Vec<_>>());
        lab.signal(&run, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await[0], json!(200));
        eventually("all to be noted", async || log.len() >= 200).await;
        engine.shutdown().await;
    }
}
