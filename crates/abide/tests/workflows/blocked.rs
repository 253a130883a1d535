//! Code that does not fit its history: the run waits for code that does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide::client::new_start;
use abide::history::HistoryEvent;
use abide::machine::Messages;
use abide::model::{CommandStatus, Liveness};
use abide::time::millis;
use abide::{BoxError, Flow, InstanceId, Job, Signal, Status, Update, Workflow};
use serde_json::{Value, json};

use crate::common::{Lab, eventually};
use crate::workflows::recorded::{Code, blocked, ok};

const GO: Signal<u32> = Signal::new("go");
const KID: Job<u32, u32> = Job::new("kid");
const OTHER_KID: Job<u32, u32> = Job::new("other-kid");
const TEXT_KID: Job<u32, String> = Job::new("kid");

/// A change of the code: its name, the code before and after, and what the two sides are called.
type Change = (&'static str, Code, Code, &'static str, &'static str);

/// Code that does one thing, and then waits for a signal.
macro_rules! code {
    ($wf:ident $body:block) => {
        |$wf, _| {
            Box::pin(async move {
                let came = $body;
                let go = $wf.signal(GO).await?;
                Ok(json!([came, go]))
            })
        }
    };
}

/// Every way in which code can differ from what was recorded.
const CHANGES: &[Change] = &[
    (
        "kind",
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        code!(wf { wf.sleep(millis(1)).await? }),
        r#"step "a""#,
        "sleep",
    ),
    (
        "name",
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        code!(wf { wf.step("b", || async { ok(1) }).await? }),
        r#"step "a""#,
        r#"step "b""#,
    ),
    (
        "key",
        code!(wf { wf.condition("one", || true).await? }),
        code!(wf { wf.condition("two", || true).await? }),
        r#"condition with key "one" and fingerprint none"#,
        r#"condition with key "two" and fingerprint none"#,
    ),
    (
        "no-key",
        code!(wf { wf.condition("one", || true).await? }),
        code!(wf { wf.condition_unnamed(|| true).await? }),
        r#"condition with key "one" and fingerprint none"#,
        r#"condition with key none and fingerprint none"#,
    ),
    (
        "a-key",
        code!(wf { wf.condition_unnamed(|| true).await? }),
        code!(wf { wf.condition("none", || true).await? }),
        r#"condition with key none and fingerprint none"#,
        r#"condition with key "none" and fingerprint none"#,
    ),
    (
        "fingerprint",
        code!(wf { wf.condition("one", || true).fingerprint("1").await? }),
        code!(wf { wf.condition("one", || true).fingerprint("2").await? }),
        r#"fingerprint "1""#,
        r#"fingerprint "2""#,
    ),
    (
        "no-fingerprint",
        code!(wf { wf.condition("one", || true).fingerprint("1").await? }),
        code!(wf { wf.condition("one", || true).await? }),
        r#"fingerprint "1""#,
        "fingerprint none",
    ),
    (
        "a-fingerprint",
        code!(wf { wf.condition("one", || true).await? }),
        code!(wf { wf.condition("one", || true).fingerprint("none").await? }),
        "fingerprint none",
        r#"fingerprint "none""#,
    ),
    (
        "removed",
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        code!(wf { 1 }),
        r#"step "a""#,
        r#"signal "go""#,
    ),
    (
        "added",
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        code!(wf { wf.step("a", || async { ok(1) }).await?; wf.step("b", || async { ok(1) }).await? }),
        r#"signal "go""#,
        r#"step "b""#,
    ),
    (
        "returns",
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        |wf, _| Box::pin(async move { Ok(json!(wf.step("a", || async { ok(1) }).await?)) }),
        r#"signal "go""#,
        "nothing: it has returned",
    ),
    (
        "fails",
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        |wf, _| {
            Box::pin(async move {
                wf.step("a", || async { ok(1) }).await?;
                Err("no more".into())
            })
        },
        r#"signal "go""#,
        "nothing: it has returned",
    ),
    (
        "returns-at-once",
        code!(wf { 1 }),
        |_, _| Box::pin(async { ok(json!(1)) }),
        r#"signal "go""#,
        "nothing: it has returned",
    ),
    (
        "panics",
        code!(wf { wf.now(); 1 }),
        |_, _| Box::pin(async { panic!("oh") }),
        "now",
        "nothing: it has returned",
    ),
    (
        "signal",
        code!(wf { 1 }),
        |wf, _| Box::pin(async move { Ok(json!(wf.signal::<u32>("gone").await?)) }),
        r#"signal "go""#,
        r#"signal "gone""#,
    ),
    (
        "signal-type",
        code!(wf { 1 }),
        |wf, _| Box::pin(async move { Ok(json!(wf.signal::<String>("go").await?)) }),
        "",
        "one that does",
    ),
    (
        "child",
        code!(wf { wf.child(new_start(KID, 1)).await? }),
        code!(wf { wf.child(new_start(OTHER_KID, 1)).await? }),
        r#"child "kid""#,
        r#"child "other-kid""#,
    ),
    (
        "child-to-children",
        code!(wf { wf.child(new_start(KID, 1)).await? }),
        code!(wf { wf.children([new_start(KID, 1)]).await?.len() }),
        r#"child "kid""#,
        r#"children "kid""#,
    ),
    (
        "child-result",
        code!(wf { wf.child(new_start(KID, 1)).await? }),
        code!(wf { wf.child(new_start(TEXT_KID, 1)).await? }),
        "a child's result",
        "one that does",
    ),
    (
        "step-result",
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        code!(wf { wf.step("a", || async { ok("text".to_owned()) }).await? }),
        "a step's result",
        "one that does",
    ),
    (
        "effect-type",
        code!(wf { wf.side_effect("e", || 1).await }),
        code!(wf { wf.side_effect("e", || "text".to_owned()).await }),
        "a side effect",
        "one that does",
    ),
    (
        "effect-name",
        code!(wf { wf.side_effect("e", || 1).await }),
        code!(wf { wf.side_effect("f", || 1).await }),
        r#"side_effect "e""#,
        r#"side_effect "f""#,
    ),
    (
        "now-random",
        code!(wf { wf.now(); 1 }),
        code!(wf { wf.random(); 1 }),
        "now",
        "random",
    ),
    (
        "uuid-step",
        code!(wf { wf.uuid(); 1 }),
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        "uuid",
        r#"step "a""#,
    ),
    (
        "step-uuid",
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        code!(wf { wf.uuid(); 1 }),
        r#"step "a""#,
        "uuid",
    ),
    (
        "removed-now",
        code!(wf { wf.now(); 1 }),
        code!(wf { 1 }),
        "now",
        r#"signal "go""#,
    ),
    (
        "all-select",
        code!(wf { wf.all(vec![wf.step("a", || async { ok(1) })]).await.len() }),
        code!(wf { wf.select(vec![wf.step("a", || async { ok(1) })]).await.0 }),
        "all",
        "select",
    ),
    (
        "group-removed",
        code!(wf { wf.all(vec![wf.step("a", || async { ok(1) })]).await.len() }),
        code!(wf { wf.step("a", || async { ok(1) }).await? }),
        "all",
        r#"step "a""#,
    ),
    (
        "swapped",
        code!(wf { wf.all((wf.step("a", || async { ok(1) }), wf.step("b", || async { ok(1) }))).await.0?; 1 }),
        code!(wf { wf.all((wf.step("b", || async { ok(1) }), wf.step("a", || async { ok(1) }))).await.0?; 1 }),
        r#"step "a""#,
        r#"step "b""#,
    ),
];

const fn flow(name: &'static str) -> Flow<Value, Value> {
    Flow::new(name)
}

/// An engine with the code from before or after all changes.
async fn engine(lab: &Lab, after: bool, kept: usize) -> abide::engine::Engine {
    let mut engine = lab.engine().workflows_kept(kept);
    for (name, old, new, ..) in CHANGES {
        engine = engine.workflow(flow(name), if after { *new } else { *old });
    }
    let engine = engine
        .job(KID, |n| async move { Ok(n) })
        .job(OTHER_KID, |n| async move { Ok(n) });
    engine.start().await.unwrap()
}

fn blocks(events: &[abide::history::Entry]) -> usize {
    events
        .iter()
        .filter(|entry| matches!(entry.what, HistoryEvent::ReplayBlocked(_)))
        .count()
}

on_every_store! {
    async fn code_that_asks_for_something_else_blocks_and_goes_on_when_code_that_fits_is_back(lab: Lab) {
        // rules 12.4 and 9.5
        let old = engine(&lab, false, 100).await;
        let mut runs = Vec::new();
        for (name, ..) in CHANGES {
            runs.push(lab.start(flow(name), json!(null)).await.unwrap());
        }
        for run in &runs {
            lab.until_status(run.id(), Status::AwaitingSignal).await;
        }
        old.shutdown().await;
        for run in &runs {
            lab.signal(run.id(), GO, &7).await.unwrap();
        }
        let new = engine(&lab, true, 100).await;
        for (run, (name, _, _, recorded, requested)) in runs.iter().zip(CHANGES) {
            let why = blocked(&lab, run.id()).await;
            let (before, after) = why.split_once(", and the code asks for ").unwrap();
            assert!(before.contains(recorded), "{name}: {why}");
            assert!(after.contains(requested), "{name}: {why}");
            assert!(after.contains("wf.version"), "the cure: {why}");
            // What came is not lost.
            let sent = lab.commands(run.id(), None, 10).await.unwrap().items;
            assert_eq!(sent[0].status, CommandStatus::Received, "{name}");
            // Code that does not fit, again.
            assert!(lab.repair(run.id()).await.unwrap(), "{name}");
        }
        for (run, (name, ..)) in runs.iter().zip(CHANGES) {
            eventually("it to be blocked again", async || blocks(&lab.events(run.id()).await) == 2).await;
            let why = blocked(&lab, run.id()).await;
            assert!(!why.is_empty(), "{name}");
        }
        new.shutdown().await;
        // The engine that starts lets all of them go on, by itself.
        let old = engine(&lab, false, 0).await;
        for (run, (name, ..)) in runs.iter().zip(CHANGES) {
            let came = lab.came_to(run).await;
            assert_eq!(came[1], json!(7), "{name}: {came}");
            assert_eq!(blocks(&lab.events(run.id()).await), 2, "{name}");
        }
        old.shutdown().await;
    }
}

on_every_store! {
    async fn a_run_whose_input_does_not_fit_waits_for_code_that_takes_it(lab: Lab) {
        // rule 12.4
        const NUMBER: Flow<u32, Value> = Flow::new("run");
        const TEXT: Flow<String, Value> = Flow::new("run");
        let number = |_: Workflow, n: u32| async move { Ok(json!(n + 1)) };
        let text = |_: Workflow, text: String| async move { Ok(json!(text)) };
        let wrong = lab.engine().workflow(TEXT, text).start().await.unwrap();
        let run = lab.start(NUMBER, 1).await.unwrap();
        let why = blocked(&lab, run.id()).await;
        assert!(why.contains("the history has its input") && why.contains("String"), "{why}");
        wrong.shutdown().await;
        let right = lab.engine().workflow(NUMBER, number).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(2));
        right.shutdown().await;
    }
}

on_every_store! {
    async fn a_repair_tries_again_and_what_came_meanwhile_is_there(lab: Lab) {
        // rules 12.4 and 11.3
        const SET: Update<u32, u32> = Update::new("set");
        const RUN: Flow<Value, Value> = Flow::new("run").messages(|| Messages::new().signal(GO).update(SET));
        let fits = Arc::new(AtomicBool::new(true));
        let now = fits.clone();
        let code = move |wf: Workflow, _: Value| {
            let fits = now.clone();
            async move {
                let state = wf.state(0);
                wf.on_update(SET, { let state = state.clone(); move |n| { state.set(n); ok(n) } });
                let name = if fits.load(Ordering::SeqCst) { "a" } else { "b" };
                wf.step(name, || async { ok(1) }).await?;
                let one = wf.signal(GO).await?;
                let two = wf.signal(GO).await?;
                Ok(json!([one, two, state.get()]))
            }
        };
        let engine = lab.engine().workflow(RUN, code).workflows_kept(0).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).key("it").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        assert!(!lab.repair("it").await.unwrap(), "it is well");
        fits.store(false, Ordering::SeqCst);
        lab.signal("it", GO, &1).await.unwrap();
        blocked(&lab, run.id()).await;
        // Nothing wakes it, and nothing is refused.
        let update = lab.update("it", SET, &5).accepted().await.unwrap();
        lab.signal("it", GO, &2).await.unwrap();
        tokio::time::sleep(millis(50)).await;
        let row = lab.now(run.id()).await;
        assert_eq!((row.status, row.due_at), (Status::Scheduled, None));
        assert_eq!(blocks(&lab.events(run.id()).await), 1);
        assert!(lab.doctor().await.unwrap().findings.is_empty(), "it is blocked, and not broken");
        fits.store(true, Ordering::SeqCst);
        assert!(lab.repair("it").await.unwrap());
        assert_eq!(lab.came_to(&run).await, json!([1, 2, 5]));
        assert_eq!(update.answer().await.unwrap(), 5);
        assert_eq!(lab.now(run.id()).await.last_error, None);
        let events = lab.events(run.id()).await;
        assert!(events.iter().any(|entry| matches!(entry.what, HistoryEvent::Repaired { .. })));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_update_that_is_gone_or_fails_now_blocks(lab: Lab) {
        // rule 12.4: an update changed the state that the code went on from
        const SET: Update<u32, u32> = Update::new("set");
        const RUN: Flow<Value, Value> = Flow::new("run").messages(|| Messages::new().signal(GO).update(SET));
        async fn rest(wf: Workflow) -> Result<Value, BoxError> {
            Ok(json!(wf.signal(GO).await?))
        }
        let good: Code = |wf, _| Box::pin(async move { wf.on_update(SET, ok::<u32>); rest(wf).await });
        let gone: Code = |wf, _| Box::pin(rest(wf));
        let fails: Code = |wf, _| Box::pin(async move {
            wf.on_update(SET, |_| Err::<u32, BoxError>("not any more".into()));
            rest(wf).await
        });
        let engine = lab.engine().workflow(RUN, good).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        assert_eq!(lab.update(run.id(), SET, &3).await.unwrap(), 3);
        engine.shutdown().await;
        lab.signal(run.id(), GO, &1).await.unwrap();
        for (code, problem) in [(gone, "no such update"), (fails, "an update that fails: not any more")] {
            let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
            eventually("it to be blocked so", async || {
                let view = lab.describe(run.id()).await.unwrap().unwrap();
                let why = view.reason.map_or(String::new(), |reason| reason.text);
                view.liveness == Liveness::ReplayBlocked && why.contains(problem) && why.contains(r#"update "set""#)
            }).await;
            engine.shutdown().await;
        }
        let engine = lab.engine().workflow(RUN, good).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(1));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_blocked_run_can_be_cancelled_and_delays_no_other(lab: Lab) {
        // rules 12.4 and 11.1
        const OLD: Code = |wf, _| Box::pin(async move { wf.now(); Ok(json!(wf.signal(GO).await?)) });
        const NEW: Code = |wf, _| Box::pin(async move { Ok(json!(wf.signal(GO).await?)) });
        let engine = lab.engine().workflow(flow("run"), OLD).start().await.unwrap();
        let run = lab.start(flow("run"), json!(null)).partition("p").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        engine.shutdown().await;
        lab.signal(run.id(), GO, &1).await.unwrap();
        let engine = lab.engine().workflow(flow("run"), NEW).start().await.unwrap();
        blocked(&lab, run.id()).await;
        let next = lab.start(flow("run"), json!(null)).partition("p").await.unwrap();
        lab.signal(next.id(), GO, &2).await.unwrap();
        assert_eq!(lab.came_to(&next).await, json!(2), "its partition goes on");
        lab.cancel(run.id(), "never mind").await.unwrap();
        let ended: InstanceId = lab.ended(run.id()).await.id;
        assert_eq!(lab.now(ended).await.status, Status::Cancelled);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn code_that_waits_for_a_signal_which_the_contract_of_the_run_lacks_blocks(lab: Lab) {
        // rules 8.6 and 12.4: the first deploy of code with one signal more failed all runs that it met, for good.
        const EXTRA: Signal<u32> = Signal::new("extra");
        const OLD: Flow<Value, Value> = Flow::new("run").messages(|| Messages::new().signal(GO));
        const NEW: Flow<Value, Value> = Flow::new("run").messages(|| Messages::new().signal(GO).signal(EXTRA));
        let old: Code = |wf, _| Box::pin(async move { Ok(json!(wf.signal(GO).await?)) });
        let new: Code = |wf, _| Box::pin(async move {
            let go = wf.signal(GO).await?;
            Ok(json!([go, wf.signal(EXTRA).await?]))
        });
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(OLD, old).start().await.unwrap();
            let run = lab.start(OLD, json!(null)).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            engine.shutdown().await;
            lab.signal(run.id(), GO, &7).await.unwrap();
            let engine = lab.engine().workflows_kept(kept).workflow(NEW, new).start().await.unwrap();
            lab.until(run.id(), "it to be blocked", |one| one.is_blocked() || one.status.is_terminal()).await;
            blocked(&lab, run.id()).await;
            let why = lab.describe(run.id()).await.unwrap().unwrap().reason.unwrap().text;
            assert!(why.contains("\"extra\"") && why.contains("contract") && why.contains("operation 2"), "{why}");
            // Nothing of that turn was committed.
            let record = lab.commands(run.id(), None, 1).await.unwrap().items.remove(0);
            assert_eq!(record.status, CommandStatus::Received);
            // A run that the new code starts has its contract.
            let fresh = lab.start(NEW, json!(null)).await.unwrap();
            lab.signal(fresh.id(), GO, &1).await.unwrap();
            lab.signal(fresh.id(), EXTRA, &2).await.unwrap();
            assert_eq!(lab.came_to(&fresh).await, json!([1, 2]));
            engine.shutdown().await;
            let engine = lab.engine().workflows_kept(kept).workflow(OLD, old).start().await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(7));
            engine.shutdown().await;
        }
    }
}
