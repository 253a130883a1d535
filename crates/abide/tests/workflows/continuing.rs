//! Workflows that go on in a new run.

use abide::machine::Messages;
use abide::model::{Key, Limits};
use abide::prelude::*;
use abide::store::Filter;
use abide::testing::Kit;
use serde_json::{Value, json};

use crate::common::Lab;

const LOOP: Flow<(u32, Vec<u32>), Value> =
    Flow::new("loop").messages(|| Messages::new().signal(NOTE).signal(GO).update(ADD));
const NOTE: Signal<u32> = Signal::new("note");
const GO: Signal<()> = Signal::new("go");
const ADD: Update<u32, u32> = Update::new("add");

on_every_store! {
    async fn fifty_runs_of_one_chain(lab: Lab) {
        // rules 2.4, 2.5 and 12.1
        let code = |wf: Workflow, (n, mut seen): (u32, Vec<u32>)| async move {
            seen.push(wf.step("count", || async { Ok::<_, BoxError>(n) }).await?);
            if n < 50 { wf.continue_as_new((n + 1, seen)) } else { Ok(json!(seen)) }
        };
        let engine = lab.engine().workflow(LOOP, code).start().await.unwrap();
        let first = lab.start(LOOP, (1, Vec::new())).key("loop").await.unwrap();
        lab.until(first.id(), "it to go on", |row| row.status == Status::Continued).await;
        let mut id = first.id();
        crate::common::eventually("the last run", async || {
            let newest = lab.get("loop").await.unwrap();
            newest.is_none_or(|row| { id = row.id; row.run.number == 50 })
        }).await;
        let last = lab.ended(id).await;
        assert_eq!((last.status, last.run.number), (Status::Done, 50));
        assert_eq!(last.result.unwrap().to::<Vec<u32>>().unwrap(), (1..=50).collect::<Vec<_>>());
        assert_eq!(last.key.as_ref().map(Key::as_str), Some("loop"));
        assert!(lab.kinds(first.id()).await.contains(&"continued"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_chain_comes_to_another_version_and_its_signals(lab: Lab) {
        // rules 2.4 and 8.2
        const FIRST: Flow<(), u32> = Flow::new("chain").messages(|| Messages::new().signal(NOTE));
        const SECOND: Flow<(), u32> = Flow::new("chain").version(2).messages(|| Messages::new().signal(NOTE).signal(GO));
        let first = |wf: Workflow, ()| async move {
            wf.signal(NOTE).await?;
            wf.continue_as_version(2, ())
        };
        let second = |wf: Workflow, ()| async move {
            wf.signal(GO).await?;
            Ok(wf.signal(NOTE).await?)
        };
        let engine = lab.engine().workflow(FIRST, first).workflow(SECOND, second).start().await.unwrap();
        let run = lab.start(FIRST, ()).key("chain").await.unwrap();
        let unknown = lab.signal("chain", GO, &()).await.unwrap_err();
        assert!(unknown.to_string().contains("declares"), "{unknown}");
        lab.signal("chain", NOTE, &1).await.unwrap();
        lab.until(run.id(), "it to go on", |row| row.status == Status::Continued).await;
        lab.signal("chain", NOTE, &2).await.unwrap();
        lab.signal("chain", GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, 2);
        let last = lab.get("chain").await.unwrap().unwrap();
        assert_eq!((last.version, last.run.number), (2, 2));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn pending_signals_and_updates_go_on_in_order(lab: Lab) {
        // rules 2.4, 9.4 and 12.2
        let code = |wf: Workflow, (run, mut seen): (u32, Vec<u32>)| async move {
            if run > 0 {
                // Only runs but the first answer.
                let total = wf.state(100 * run);
                wf.on_update(ADD, { let total = total.clone(); move |n| Ok(total.get() + n) });
            }
            for _ in 0..2 {
                seen.push(wf.signal(NOTE).await?);
            }
            if run < 2 { wf.continue_as_new((run + 1, seen)) } else { Ok(json!(seen)) }
        };
        let run = lab.start(LOOP, (0, Vec::new())).key("loop").await.unwrap();
        let update = lab.update("loop", ADD, &1).accepted().await.unwrap();
        for n in 0..6 {
            lab.signal("loop", NOTE, &n).await.unwrap();
        }
        let engine = lab.engine().workflow(LOOP, code).start().await.unwrap();
        lab.until(run.id(), "it to go on", |row| row.status == Status::Continued).await;
        assert_eq!(update.answer().await.unwrap(), 101);
        let filter = Filter::default();
        crate::common::eventually("its end", async || {
            let all = lab.list(&filter, None, 10).await.unwrap().items;
            all.iter().any(|one| one.status == Status::Done)
        }).await;
        let all = lab.list(&filter, None, 10).await.unwrap().items;
        assert_eq!(all.len(), 3);
        let done = all.into_iter().find(|one| one.status == Status::Done).unwrap();
        assert_eq!(done.result.unwrap().to::<Vec<u32>>().unwrap(), [0, 1, 2, 3, 4, 5]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_old_run_is_not_the_current_one(lab: Lab) {
        // rules 2.4, 2.5 and 7.3
        let code = |wf: Workflow, (run, seen): (u32, Vec<u32>)| async move {
            if run == 0 {
                return wf.continue_as_new((1, seen));
            }
            wf.signal(GO).await?;
            Ok(json!(wf.id().0))
        };
        let engine = lab.engine().workflow(LOOP, code).start().await.unwrap();
        let old = lab.start(LOOP, (0, Vec::new())).key("loop").await.unwrap();
        lab.until_status(old.id(), Status::Continued).await;
        let error = lab.signal(old.id(), GO, &()).await.unwrap_err();
        assert_eq!((error.outcome(), error.reason()), (Some("rejected_not_current"), Some("run_not_current")));
        assert!(lab.cancel(old.id(), "no").await.is_err());
        let current = lab.handle::<Value>("loop").await.unwrap().unwrap();
        assert_ne!(current.id(), old.id());
        lab.signal("loop", GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&current).await, json!(current.id().0));
        assert_eq!(lab.came_to(&old).await, json!(current.id().0), "a caller that waits for the first gets the result of the last");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn one_that_is_cancelled_does_not_go_on_in_a_new_run(lab: Lab) {
        // rules 2.4 and 11.1: a caller that cancels a workflow wants it to end.
        let code = |wf: Workflow, (n, seen): (u32, Vec<u32>)| async move {
            let _ = wf.signal(GO).await;
            wf.continue_as_new((n + 1, seen))
        };
        let engine = lab.engine().workflow(LOOP, code).start().await.unwrap();
        let run = lab.start(LOOP, (0, Vec::new())).key("loop").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.cancel("loop", "enough").await.unwrap();
        let row = lab.ended(run.id()).await;
        assert_eq!(row.status, Status::Cancelled, "{}", lab.standing(run.id()).await);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_cancel_that_came_too_late_for_one_run_reaches_the_next(lab: Lab) {
        // rules 2.4 and 11.1
        let gate = crate::common::Gate::closed();
        let at_gate = gate.clone();
        let code = move |wf: Workflow, (n, seen): (u32, Vec<u32>)| {
            let gate = at_gate.clone();
            async move {
                if n == 0 {
                    // It ignores an error here.
                    let _ = wf.step("slow", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(()) } }).await;
                    if wf.cancelled().is_some() {
                        return Ok(json!("cancelled"));
                    }
                    return wf.continue_as_new((1, seen));
                }
                wf.signal(GO).await?;
                Ok(json!("went"))
            }
        };
        let engine = lab.engine().workflow(LOOP, code).start().await.unwrap();
        for n in 0..20 {
            let key = format!("loop:{n}");
            lab.start(LOOP, (0, Vec::new())).key(&key).await.unwrap();
            if n == 0 {
                gate.reached_by(1).await;
                gate.open();
            }
            // As it goes on, or just before or after.
            while let Err(error) = lab.cancel(&*key, "enough").await {
                assert!(error.to_string().contains("not the current"), "{error}");
            }
            crate::common::eventually("its end", async || lab.get(&*key).await.unwrap().unwrap().status == Status::Cancelled).await;
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_long_history_is_reported_to_the_code_and_to_readers(lab: Lab) {
        // rule 12.6
        let limits = Limits { history_events: 40, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let code = |wf: Workflow, (n, mut seen): (u32, Vec<u32>)| async move {
            let mut steps = 0;
            while !wf.continue_as_new_recommended() {
                wf.step("one more", || async { Ok::<_, BoxError>(()) }).await?;
                steps += 1;
            }
            seen.push(steps);
            wf.signal(GO).await?;
            if n < 2 { wf.continue_as_new((n + 1, seen)) } else { Ok(json!(seen)) }
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(LOOP, code).start().await.unwrap();
            let key = format!("loop {kept}");
            lab.start(LOOP, (0, Vec::new())).key(&key).await.unwrap();
            for number in 1..=3 {
                crate::common::eventually("the wait", async || {
                    let view = lab.describe(&*key).await.unwrap().unwrap();
                    view.instance.run.number == number && view.instance.status == Status::AwaitingSignal
                }).await;
                let view = lab.describe(&*key).await.unwrap().unwrap();
                assert!(view.continue_as_new_recommended, "{} events", view.instance.history_seq);
                assert!(view.instance.history_seq >= 40 && view.instance.history_seq < 80);
                let handle = lab.handle::<Value>(&*key).await.unwrap().unwrap();
                lab.signal(&*key, GO, &()).await.unwrap();
                let ended = lab.ended(handle.id()).await;
                if number == 3 {
                    let steps: Vec<u32> = ended.result.as_ref().unwrap().to().unwrap();
                    assert!(steps.iter().all(|steps| (10..40).contains(steps)), "{steps:?}");
                }
            }
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn one_that_failed_is_restarted_from_its_beginning(lab: Lab) {
        // rules 2.4 and 11.2: a new run has a history of its own.
        let log = crate::common::Log::new();
        let noted = log.clone();
        let code = move |wf: Workflow, (n, _): (u32, Vec<u32>)| {
            let log = noted.clone();
            async move {
                let log = &log;
                let count = wf.step("count", || async move { log.note(n); Ok::<_, BoxError>(log.len()) }).await?;
                wf.signal(GO).await?;
                if count < 2 { Err("too few".into()) } else { Ok(json!(count)) }
            }
        };
        let engine = lab.engine().workflow(LOOP, code).start().await.unwrap();
        let run = lab.start(LOOP, (7, Vec::new())).key("again").await.unwrap();
        lab.signal("again", GO, &()).await.unwrap();
        assert_eq!(lab.failed_of(&run).await, "too few");
        lab.restart("again").await.unwrap();
        lab.signal("again", GO, &()).await.unwrap();
        let second = lab.handle::<Value>("again").await.unwrap().unwrap();
        assert_eq!(lab.came_to(&second).await, json!(2));
        assert_eq!(log.read(), [7, 7]);
        assert_eq!(lab.now(second.id()).await.run.number, 2);
        // So is one that was cancelled, whose new run is not.
        let third = lab.start(LOOP, (8, Vec::new())).key("third").await.unwrap();
        lab.until_status(third.id(), Status::AwaitingSignal).await;
        lab.cancel("third", "stop").await.unwrap();
        assert_eq!(lab.ended(third.id()).await.status, Status::Cancelled);
        lab.restart("third").await.unwrap();
        lab.signal("third", GO, &()).await.unwrap();
        let third = lab.handle::<Value>("third").await.unwrap().unwrap();
        assert_eq!(lab.came_to(&third).await, json!(4));
        // And it can be cancelled again.
        let fourth = lab.start(LOOP, (9, Vec::new())).key("fourth").await.unwrap();
        for _ in 0..2 {
            let run = lab.get("fourth").await.unwrap().unwrap().id;
            lab.until_status(run, Status::AwaitingSignal).await;
            lab.cancel("fourth", "stop").await.unwrap();
            assert_eq!(lab.ended(run).await.status, Status::Cancelled);
            lab.restart("fourth").await.unwrap();
        }
        assert_ne!(lab.get("fourth").await.unwrap().unwrap().id, fourth.id());
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_loop_through_a_crash_after_every_commit() {
    // rules 1.1 and 2.4
    let code = |wf: Workflow, (n, mut seen): (u32, Vec<u32>)| async move {
        seen.push(wf.signal(NOTE).await?);
        wf.sleep(hours(1)).await?;
        if n < 5 {
            wf.continue_as_new((n + 1, seen))
        } else {
            Ok(json!(seen))
        }
    };
    let kit = Kit::builder().workflow(LOOP, code).build().await.unwrap();
    kit.kill_worker_after_every_commit(true);
    kit.start(LOOP, (0, Vec::new())).key("loop").await.unwrap();
    for n in 0..6 {
        kit.signal("loop", NOTE, &n).await.unwrap();
    }
    for _ in 0..60 {
        kit.advance(minutes(30)).await;
        if kit.worker_is_dead().await {
            kit.restart_worker().await.unwrap();
        }
    }
    let row = kit.list(&Filter::default(), None, 20).await.unwrap().items;
    let done: Vec<_> = row
        .iter()
        .filter(|one| one.status == Status::Done)
        .collect();
    assert_eq!(done.len(), 1);
    assert_eq!(
        done[0].result.as_ref().unwrap().to::<Vec<u32>>().unwrap(),
        [0, 1, 2, 3, 4, 5]
    );
    assert_eq!(done[0].run.number, 6);
}
