//! Updates that `async` code handles, and updates that come before their handler exists.

use abide::InstanceId;
use abide::client::{UpdateError, UpdateHandle, new_start};
use abide::engine::Engine;
use abide::machine::Messages;
use abide::prelude::*;
use abide::testing::replays;
use abide::workflow::{OneOf, State, WorkflowCode};
use serde_json::{Value, json};

use crate::common::{Gate, Lab, Log, eventually};
use crate::workflows::recorded::{blocked, ok, operations};

/// Adds so much, after a step.
const ADD: Update<i64, i64> = Update::new("add");
/// Waits for a signal, or for time, and tells what came.
const ASK: Update<String, String> = Update::new("ask");
/// Changes the state, and then fails of this.
const FAIL: Update<String, ()> = Update::new("fail");
/// Answers with so many bytes.
const LARGE: Update<usize, String> = Update::new("large");
/// Answers at once.
const PEEK: Update<(), i64> = Update::new("peek");
/// Never answered.
const NEVER: Update<Option<String>, ()> = Update::new("never");
const SAY: Signal<String> = Signal::new("say");
const GO: Signal<()> = Signal::new("go");
const SHUT: Signal<()> = Signal::new("shut");
const KID: Job<i64, i64> = Job::new("kid");

const DESK: Flow<Value, Value> = Flow::new("desk").messages(|| {
    let messages = Messages::new().signal(SAY).signal(GO).signal(SHUT);
    let messages = messages.update(ADD).update(ASK).update(FAIL);
    messages.update(LARGE).update(PEEK).update(NEVER)
});

/// State that handlers and their test share.
#[derive(Clone)]
struct Desk {
    gate: Gate,
    runs: Log<i64>,
}

impl Desk {
    fn open() -> Self {
        let desk = Self::shut();
        desk.gate.open();
        desk
    }

    /// One whose step `price` does not end before its gate is open.
    fn shut() -> Self {
        Self {
            gate: Gate::closed(),
            runs: Log::new(),
        }
    }

    fn handle(&self, wf: &Workflow) -> State<i64> {
        let total = wf.state(0);
        let (added, desk) = (total.clone(), self.clone());
        wf.on_update_async(ADD, move |wf, n| {
            let (added, desk) = (added.clone(), desk.clone());
            async move {
                let price = wf.step("price", || desk.price(n)).await?;
                Ok(added.update(|total| {
                    *total += price;
                    *total
                }))
            }
        });
        wf.on_update_async(ASK, |wf, name: String| async move {
            match wf.select((wf.signal(SAY), wf.sleep(hours(1)))).await {
                OneOf::First(text) => Ok(format!("{name}: {}", text?)),
                OneOf::Second(slept) => {
                    slept?;
                    Ok(format!("{name}: nothing"))
                }
            }
        });
        let spoiled = total.clone();
        wf.on_update_async(FAIL, move |wf, why: String| {
            let spoiled = spoiled.clone();
            async move {
                wf.step("before", || async { ok(()) }).await?;
                spoiled.update(|total| *total += 1_000);
                if why == "panic" {
                    panic!("the desk is on fire");
                }
                Err(why.into())
            }
        });
        wf.on_update_async(LARGE, |wf, size| async move {
            wf.sleep(millis(1)).await?;
            Ok("x".repeat(size))
        });
        let peeked = total.clone();
        wf.on_update(PEEK, move |()| Ok(peeked.get()));
        total
    }

    async fn price(&self, n: i64) -> Result<i64, BoxError> {
        self.gate.pass().await;
        self.runs.note(n);
        Ok(n)
    }

    /// Waits to be shut, and returns the total.
    fn code(&self) -> impl WorkflowCode<Value, Value> + Clone {
        let desk = self.clone();
        move |wf: Workflow, _: Value| {
            let desk = desk.clone();
            async move {
                let total = desk.handle(&wf);
                wf.signal(SHUT).await?;
                Ok(json!(total.get()))
            }
        }
    }

    async fn engine(&self, lab: &Lab, kept: usize) -> Engine {
        let engine = lab.engine().workflows_kept(kept);
        let engine = engine.workflow(DESK, self.code());
        let kid = |n: i64| async move { ok(n * 2) };
        engine.job(KID, kid).start().await.unwrap()
    }
}

fn failed<R: std::fmt::Debug>(answer: Result<R, UpdateError>) -> String {
    match answer.unwrap_err() {
        UpdateError::Failed { error, .. } => error,
        other => panic!("{other}"),
    }
}

async fn status<R>(update: &UpdateHandle<R>) -> &'static str {
    let record = update.record().await.unwrap().unwrap();
    record.status.name()
}

/// Nothing is wrong with anything, and nothing is to be done.
async fn is_well(lab: &Lab, id: InstanceId) {
    assert_eq!(lab.doctor().await.unwrap().findings, []);
    let view = lab.describe(id).await.unwrap().unwrap();
    assert_ne!(view.liveness.name(), "repair_needed");
    assert!(!lab.repair(id).await.unwrap());
}

on_every_store! {
    async fn a_handler_runs_steps_and_is_answered_with_the_last_of_them(lab: Lab) {
        // rules 9.1 and 12.1
        for kept in [100, 0] {
            let desk = Desk::open();
            let engine = desk.engine(&lab, kept).await;
            let run = lab.start(DESK, json!(null)).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            for n in 1..=4 {
                assert_eq!(lab.update(&run, ADD, &n).await.unwrap(), (1..=n).sum::<i64>());
            }
            assert_eq!(lab.update(&run, PEEK, &()).await.unwrap(), 10);
            let events = lab.events(run.id()).await;
            let ops = operations(&events);
            assert_eq!(ops[1..5], ["+2 update add", "+3 step price", "-3 step price = 1", "-2 update add = 1"]);
            let kinds = lab.kinds(run.id()).await;
            assert_eq!(kinds.iter().filter(|kind| **kind == "update_completed").count(), 5);
            lab.signal(&run, SHUT, &()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(10));
            assert_eq!(desk.runs.read(), [1, 2, 3, 4], "no step ran twice");
            let history = lab.export(run.id()).await.unwrap().unwrap();
            replays(DESK, desk.code(), &history).unwrap();
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn many_are_in_progress_at_once_and_none_holds_another_up(lab: Lab) {
        // rules 9.1 and 9.4
        for kept in [100, 0] {
            let desk = Desk::open();
            let engine = desk.engine(&lab, kept).await;
            let run = lab.start(DESK, json!(null)).await.unwrap();
            let mut updates = Vec::new();
            for name in ["ann", "ben", "cid"] {
                updates.push(lab.update(&run, ASK, &name.to_owned()).accepted().await.unwrap());
            }
            // Those behind them are answered first.
            assert_eq!(lab.update(&run, ADD, &5).await.unwrap(), 5);
            assert_eq!(lab.update(&run, PEEK, &()).await.unwrap(), 5);
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            for one in &updates {
                assert_eq!(status(one).await, "accepted");
            }
            is_well(&lab, run.id()).await;
            assert_eq!(lab.now(run.id()).await.inbox.updates, 3);
            // They were begun in the order of their messages, so the first takes the first signal (rule 12.2).
            for (text, one) in ["x", "y", "z"].iter().zip(&updates) {
                lab.signal(&run, SAY, &(*text).to_owned()).await.unwrap();
                let answer = one.answer().await.unwrap();
                assert!(answer.ends_with(text), "{answer}");
            }
            assert_eq!(updates[0].answer().await.unwrap(), "ann: x");
            assert_eq!(updates[2].answer().await.unwrap(), "cid: z");
            lab.signal(&run, SHUT, &()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(5));
            let history = lab.export(run.id()).await.unwrap().unwrap();
            replays(DESK, desk.code(), &history).unwrap();
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_handler_may_use_every_operation(lab: Lab) {
        // rules 9.1 and 12.1
        let code = |wf: Workflow, _: Value| async move {
            wf.on_update_async(ADD, |wf, n| async move {
                let inner = wf.state(n);
                let doubled: i64 = wf.child(new_start(KID, n)).await?;
                wf.sleep(millis(1)).await?;
                let (a, b) = wf.all((wf.step("a", || async { ok(1) }), wf.step("b", || async { ok(2) }))).await;
                wf.condition("inner", || inner.get() == n).await?;
                let event: Option<Value> = wf.event(Event::new("never.published")).timeout(millis(5)).await?;
                let (now, random) = (wf.now(), wf.random());
                assert_eq!(wf.side_effect("both", || (now, random)).await, (now, random));
                Ok(doubled + a? + b? + i64::from(event.is_some()) + i64::from(wf.version("new", 0..=1)))
            });
            wf.signal(SHUT).await?;
            Ok(json!(null))
        };
        for kept in [100, 0] {
            let kid = |n: i64| async move { ok(n * 2) };
            let engine = lab.engine().workflows_kept(kept).workflow(DESK, code).job(KID, kid).start().await.unwrap();
            let run = lab.start(DESK, json!(null)).await.unwrap();
            let both = [5, 6].map(|n| lab.update(&run, ADD, &n));
            for (one, came) in both.into_iter().zip([14, 16]) {
                assert_eq!(one.await.unwrap(), came);
            }
            lab.signal(&run, SHUT, &()).await.unwrap();
            lab.came_to(&run).await;
            let history = lab.export(run.id()).await.unwrap().unwrap();
            replays(DESK, code, &history).unwrap();
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn one_that_fails_panics_or_returns_too_much_fails_alone(lab: Lab) {
        // rule 9.2: what it changed before stays, since others may have seen it.
        for kept in [100, 0] {
            let desk = Desk::open();
            let engine = desk.engine(&lab, kept).await;
            let run = lab.start(DESK, json!(null)).await.unwrap();
            assert_eq!(failed(lab.update(&run, FAIL, &"no änderung".into()).await), "no änderung");
            assert!(failed(lab.update(&run, FAIL, &"panic".into()).await).contains("the desk is on fire"));
            let error = failed(lab.update(&run, LARGE, &(2 << 20)).await);
            assert!(error.contains("payload_bytes"), "{error}");
            assert_eq!(lab.update(&run, LARGE, &0).await.unwrap(), "");
            assert_eq!(lab.update(&run, ADD, &1).await.unwrap(), 2_001);
            let row = lab.until_status(run.id(), Status::AwaitingSignal).await;
            assert_eq!((row.last_error.clone(), row.inbox.updates), (None, 0));
            lab.signal(&run, SHUT, &()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(2_001));
            let history = lab.export(run.id()).await.unwrap().unwrap();
            replays(DESK, desk.code(), &history).unwrap();
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn one_that_comes_before_its_handler_waits_for_it_and_holds_nothing_up(lab: Lab) {
        // rules 9.1, 9.4 and 13.1: it was refused when the code waited without a handler.
        let code = |wf: Workflow, _: Value| async move {
            let text = wf.signal(SAY).await?;
            wf.signal(GO).await?;
            let total = Desk::open().handle(&wf);
            wf.signal(SHUT).await?;
            Ok(json!([text, total.get()]))
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(DESK, code).start().await.unwrap();
            let run = lab.start(DESK, json!(null)).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            let early = lab.update(&run, ADD, &7).accepted().await.unwrap();
            let peek = lab.update(&run, PEEK, &()).accepted().await.unwrap();
            let never = lab.update(&run, NEVER, &None).accepted().await.unwrap();
            lab.until(run.id(), "it to have seen them", |row| row.status == Status::AwaitingSignal).await;
            is_well(&lab, run.id()).await;
            let turns = lab.now(run.id()).await.step_seq;
            // A signal behind them is taken, and a turn is all that it costs.
            lab.signal(&run, SAY, &"hello".into()).await.unwrap();
            let row = lab.until(run.id(), "the signal to be taken", |row| row.inbox.signals == 0 && row.status == Status::AwaitingSignal).await;
            assert!(row.step_seq <= turns + 2, "it went round in circles: {turns} and {}", row.step_seq);
            assert_eq!((row.inbox.updates, row.aside), (3, None));
            is_well(&lab, run.id()).await;
            assert!(matches!(early.answer_within(millis(10)).await, Err(UpdateError::NotYet { .. })));
            lab.signal(&run, GO, &()).await.unwrap();
            assert_eq!((early.answer().await.unwrap(), peek.answer().await.unwrap()), (7, 0));
            let row = lab.until(run.id(), "only one to be left", |row| row.inbox.updates == 1 && row.status == Status::AwaitingSignal).await;
            is_well(&lab, run.id()).await;
            eventually("nothing to run", async || lab.now(run.id()).await.step_seq == row.step_seq).await;
            lab.signal(&run, SHUT, &()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(["hello", 7]));
            let error = failed(never.answer().await);
            assert!(error.contains("done"), "{error}");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_hundred_that_wait_for_their_handler_cost_no_turn_and_are_begun_in_order(lab: Lab) {
        // rules 9.1 and 9.4: more than are read in the middle of a turn, with signals among them that are not waited for.
        let code = |wf: Workflow, _: Value| async move {
            wf.signal(GO).await?;
            let order = wf.state(Vec::new());
            let begun = order.clone();
            wf.on_update_async(ADD, move |wf, n| {
                let begun = begun.clone();
                async move {
                    begun.update(|order| order.push(n));
                    wf.sleep(millis(1)).await?;
                    Ok(n)
                }
            });
            wf.condition("all", || order.with(Vec::len) == 100 && wf.updates_in_progress() == 0).await?;
            Ok(json!(order.get()))
        };
        let engine = lab.engine().workflow(DESK, code).start().await.unwrap();
        let run = lab.start(DESK, json!(null)).await.unwrap();
        let mut updates = Vec::new();
        for n in 0..100 {
            if n % 2 == 0 {
                lab.signal(&run, SAY, &"noise".into()).await.unwrap();
            }
            updates.push(lab.update(&run, ADD, &n).accepted().await.unwrap());
        }
        let row = lab.until_status(run.id(), Status::AwaitingSignal).await;
        assert_eq!(row.inbox.updates, 100);
        is_well(&lab, run.id()).await;
        lab.signal(&run, GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!((0..100).collect::<Vec<_>>()));
        for (one, n) in updates.iter().zip(0..) {
            assert_eq!(one.answer().await.unwrap(), n);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn when_the_code_returns_those_in_progress_fail_and_say_so(lab: Lab) {
        // rule 9.2
        let desk = Desk::shut();
        let engine = desk.engine(&lab, 100).await;
        let run = lab.start(DESK, json!(null)).await.unwrap();
        let update = lab.update(&run, ASK, &"ann".into()).accepted().await.unwrap();
        let priced = lab.update(&run, ADD, &1).accepted().await.unwrap();
        desk.gate.reached_by(1).await;
        lab.signal(&run, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(0));
        for error in [failed(update.answer().await), failed(priced.answer().await)] {
            assert!(error.contains("ended as done"), "{error}");
        }
        assert_eq!(desk.runs.read(), [0; 0], "its step was dropped");
        let ops = operations(&lab.events(run.id()).await);
        assert_eq!(ops.iter().filter(|one| one.ends_with("abandoned")).count(), 6, "{ops:?}");
        let history = lab.export(run.id()).await.unwrap().unwrap();
        replays(DESK, desk.code(), &history).unwrap();
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn code_that_waits_for_its_handlers_answers_all_of_them(lab: Lab) {
        // rule 9.2
        let code = |wf: Workflow, _: Value| async move {
            let total = Desk::open().handle(&wf);
            wf.signal(SHUT).await?;
            wf.condition("handled", || wf.updates_in_progress() == 0).await?;
            Ok(json!(total.get()))
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(DESK, code).start().await.unwrap();
            let run = lab.start(DESK, json!(null)).await.unwrap();
            let update = lab.update(&run, ASK, &"ann".into()).accepted().await.unwrap();
            lab.signal(&run, SHUT, &()).await.unwrap();
            let row = lab.until(run.id(), "the last wait", |row| row.awaited().iter().any(|name| name.as_str() == "say")).await;
            assert!(!row.status.is_terminal());
            lab.signal(&run, SAY, &"bye".into()).await.unwrap();
            assert_eq!(update.answer().await.unwrap(), "ann: bye");
            assert_eq!(lab.came_to(&run).await, json!(0));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_cancellation_reaches_handlers_which_may_clean_up(lab: Lab) {
        // rules 9.2 and 11.1
        let cleaned = Log::new();
        let at_cleaning = cleaned.clone();
        let code = move |wf: Workflow, _: Value| {
            let cleaned = at_cleaning.clone();
            async move {
                wf.on_update_async(ASK, move |wf, name: String| {
                    let cleaned = cleaned.clone();
                    async move {
                        let Err(error) = wf.signal(SAY).await else { return Ok("heard".into()) };
                        wf.step("clean up", || async { cleaned.note(name.clone()); ok(()) }).await?;
                        Err(error.into())
                    }
                });
                let shut = wf.signal(SHUT).await;
                // The main code lets its handlers finish first.
                wf.condition_unnamed(|| wf.updates_in_progress() == 0).await?;
                shut?;
                Ok(json!(null))
            }
        };
        for (kept, round) in [(100, 1), (0, 2)] {
            let engine = lab.engine().workflows_kept(kept).workflow(DESK, code.clone()).start().await.unwrap();
            let run = lab.start(DESK, json!(null)).await.unwrap();
            let update = lab.update(&run, ASK, &"ann".into()).accepted().await.unwrap();
            lab.until(run.id(), "it to wait", |row| row.awaited().len() == 2).await;
            lab.cancel(&run, "enough").await.unwrap();
            let error = failed(update.answer().await);
            assert!(error.contains("enough"), "{error}");
            let ended = lab.ended(run.id()).await;
            assert_eq!(ended.status, Status::Cancelled);
            assert_eq!(cleaned.len(), round);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn continuing_as_new_takes_along_what_was_not_begun(lab: Lab) {
        // rules 2.4 and 9.2
        let code = |wf: Workflow, round: Value| async move {
            if round == json!(2) {
                let total = Desk::open().handle(&wf);
                wf.on_update(NEVER, |_| Ok(()));
                wf.signal(SHUT).await?;
                return Ok(json!(total.get()));
            }
            wf.on_update_async(ASK, |wf, _| async move { Ok(wf.signal(SAY).await?) });
            wf.signal(GO).await?;
            wf.continue_as_new(2)
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(DESK, code).start().await.unwrap();
            let key = format!("desk:{kept}");
            let run = lab.start(DESK, json!(1)).key(key.as_str()).await.unwrap();
            let begun = lab.update(&run, ASK, &"ann".into()).accepted().await.unwrap();
            lab.until(run.id(), "it to be begun", |row| row.awaited().len() == 2).await;
            let waiting = lab.update(&run, NEVER, &Some("x".into())).accepted().await.unwrap();
            let adding = lab.update(&run, ADD, &3).accepted().await.unwrap();
            lab.signal(&run, GO, &()).await.unwrap();
            let error = failed(begun.answer().await);
            assert!(error.contains("continued as new"), "{error}");
            waiting.answer().await.unwrap();
            assert_eq!(adding.answer().await.unwrap(), 3);
            assert_eq!(lab.now(run.id()).await.status, Status::Continued);
            lab.signal(key.as_str(), SHUT, &()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(3));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_worker_that_dies_leaves_them_to_the_next(lab: Lab) {
        // rules 1.1, 5.3, 9.1 and 12.1
        let desk = Desk::shut();
        let code = desk.code();
        let killable = lab.killable(move |engine| engine.name("w").workflow(DESK, code)).await;
        let run = lab.start(DESK, json!(null)).await.unwrap();
        let update = lab.update(&run, ASK, &"ann".into()).accepted().await.unwrap();
        let priced = lab.update(&run, ADD, &5).accepted().await.unwrap();
        desk.gate.reached_by(1).await;
        killable.die().await;
        assert_eq!((status(&update).await, status(&priced).await), ("accepted", "accepted"));
        desk.gate.open();
        let engine = lab.engine().name("w").workflow(DESK, desk.code()).start().await.unwrap();
        assert_eq!(priced.answer().await.unwrap(), 5);
        lab.signal(&run, SAY, &"hello".into()).await.unwrap();
        assert_eq!(update.answer().await.unwrap(), "ann: hello");
        let begun = operations(&lab.events(run.id()).await);
        assert_eq!(begun.iter().filter(|one| one.starts_with('+') && one.contains("update")).count(), 2, "{begun:?}");
        lab.signal(&run, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(5));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn code_that_handles_them_otherwise_blocks_until_it_fits_again(lab: Lab) {
        // rule 12.4
        type Change = fn(&Workflow);
        let changes: [(&str, Change); 3] = [
            ("no such update", |_| ()),
            ("without `async` code", |wf| wf.on_update(ASK, Ok)),
            ("step \"else\"", |wf| wf.on_update_async(ASK, |wf, name| async move {
                wf.step("else", || async { ok(()) }).await?;
                Ok(name)
            })),
        ];
        for (what, change) in changes {
            let desk = Desk::open();
            let engine = desk.engine(&lab, 100).await;
            let run = lab.start(DESK, json!(null)).await.unwrap();
            let update = lab.update(&run, ASK, &"ann".into()).accepted().await.unwrap();
            lab.until(run.id(), "it to be begun", |row| row.awaited().len() == 2).await;
            engine.shutdown().await;
            let code = move |wf: Workflow, _: Value| async move {
                change(&wf);
                wf.signal(SHUT).await?;
                Ok(json!("changed"))
            };
            let engine = lab.engine().workflow(DESK, code).start().await.unwrap();
            lab.signal(&run, SAY, &"hello".into()).await.unwrap();
            let error = blocked(&lab, run.id()).await;
            assert!(error.contains(what), "{what}: {error}");
            assert_eq!(status(&update).await, "accepted");
            engine.shutdown().await;
            let engine = desk.engine(&lab, 100).await;
            assert_eq!(update.answer().await.unwrap(), "ann: hello");
            lab.signal(&run, SHUT, &()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(0));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_handler_that_awaits_what_is_not_durable_blocks_the_run(lab: Lab) {
        // rule 12.4
        let code = |wf: Workflow, _: Value| async move {
            wf.on_update_async(ASK, |_, name| async move {
                tokio::time::sleep(millis(1)).await;
                Ok(name)
            });
            wf.signal(SHUT).await?;
            Ok(json!(null))
        };
        let engine = lab.engine().workflow(DESK, code).start().await.unwrap();
        let run = lab.start(DESK, json!(null)).await.unwrap();
        let update = lab.update(&run, ASK, &"ann".into()).accepted().await.unwrap();
        let error = blocked(&lab, run.id()).await;
        assert!(error.contains("not a durable operation"), "{error}");
        assert_eq!(status(&update).await, "accepted");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn updates_signals_and_handlers_apply_in_the_order_of_messages(lab: Lab) {
        // rules 9.4 and 12.2: all of them were there before the first turn.
        let code = |wf: Workflow, _: Value| async move {
            let order = wf.state(Vec::new());
            let recorded = order.clone();
            wf.on_update_async(ASK, move |wf, name: String| {
                let recorded = recorded.clone();
                async move {
                    recorded.update(|order| order.push(name.clone()));
                    wf.signal(GO).await?;
                    recorded.update(|order| order.push(format!("{name} went")));
                    Ok(name)
                }
            });
            for _ in 0..2 {
                let text = wf.signal(SAY).await?;
                order.update(|order| order.push(text));
            }
            wf.condition("all", || order.with(Vec::len) == 6).await?;
            Ok(json!(order.get()))
        };
        for kept in [100, 0] {
            let run = lab.start(DESK, json!(null)).await.unwrap();
            for n in 1..=2 {
                lab.signal(&run, SAY, &format!("say {n}")).await.unwrap();
                lab.update(&run, ASK, &format!("ask {n}")).accepted().await.unwrap();
                lab.signal(&run, GO, &()).await.unwrap();
            }
            let engine = lab.engine().workflows_kept(kept).workflow(DESK, code).start().await.unwrap();
            let came = lab.came_to(&run).await;
            assert_eq!(came, json!(["say 1", "ask 1", "ask 1 went", "say 2", "ask 2", "ask 2 went"]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_crowd_is_handled_side_by_side_each_once(lab: Lab) {
        // rules 9.1 and 9.3
        let desk = Desk::open();
        let engine = desk.engine(&lab, 100).await;
        let run = lab.start(DESK, json!(null)).key("crowd").await.unwrap();
        let callers = (0..4).map(|caller| {
            let abide = (*lab).clone();
            tokio::spawn(async move {
                for n in 0..10 {
                    let id = format!("{caller}:{n}");
                    let first = abide.update("crowd", ADD, &1).request_id(id.as_str()).await.unwrap();
                    let again = abide.update("crowd", ADD, &1).request_id(id.as_str()).await.unwrap();
                    assert_eq!(first, again);
                }
            })
        });
        for one in callers.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        lab.signal(&run, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(40));
        assert_eq!(desk.runs.len(), 40);
        engine.shutdown().await;
    }
}
