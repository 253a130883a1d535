//! Signals to workflows: which wait takes which, and when.

use abide::InstanceId;
use abide::client::{new_signal, new_start};
use abide::history::HistoryEvent;
use abide::machine::Messages;
use abide::model::{Command, WaitKind};
use abide::prelude::*;
use abide::testing::Kit;
use abide::workflow::OneOf;
use serde_json::{Value, json};

use crate::common::{Gate, Lab, Log, eventually};

const NOTE: Signal<u32> = Signal::new("note");
const OTHER: Signal<u32> = Signal::new("other");
const MAYBE: Signal<Option<u32>> = Signal::new("maybe");
const GO: Signal<()> = Signal::new("go");

const TAKER: Flow<u32, Vec<u32>> = Flow::new("taker");
const STRICT: Flow<(), u32> =
    Flow::new("strict").messages(|| Messages::new().signal(NOTE).signal(GO));
const FIRST: Flow<(), Value> = Flow::new("first");

/// Takes that many notes, one after the other.
async fn take(wf: Workflow, count: u32) -> Result<Vec<u32>, BoxError> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(wf.signal(NOTE).await?);
    }
    Ok(taken)
}

/// All commands that were sent to an instance, oldest first.
async fn sent_to(lab: &Lab, id: InstanceId) -> Vec<Command> {
    let mut page = lab.commands(id, None, 10_000).await.unwrap();
    page.items.reverse();
    page.items
}

on_every_store! {
    async fn the_waits_of_one_name_take_its_signals_in_message_order(lab: Lab) {
        // rule 12.2
        let engine = lab.engine().workflow(TAKER, take).start().await.unwrap();
        let run = lab.start(TAKER, 5).await.unwrap();
        for n in 0..5 {
            if n == 2 {
                lab.until_status(run.id(), Status::AwaitingSignal).await;
            }
            lab.signal(&run, NOTE, &n).await.unwrap();
        }
        assert_eq!(lab.came_to(&run).await, [0, 1, 2, 3, 4]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn two_waits_at_once_take_the_first_and_the_second(lab: Lab) {
        // rule 12.2: also when they are requested at once, in either way.
        let code = |wf: Workflow, _: ()| async move {
            let (a, b, c) = wf.all((wf.signal(NOTE), wf.signal(NOTE), wf.signal(NOTE))).await;
            let more = wf.all(vec![wf.signal(NOTE), wf.signal(NOTE)]).await;
            let more = more.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(json!([a?, b?, c?, more]))
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(FIRST, code).start().await.unwrap();
            let run = lab.start(FIRST, ()).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            for n in 0..5 {
                lab.signal(&run, NOTE, &n).await.unwrap();
            }
            assert_eq!(lab.came_to(&run).await, json!([0, 1, 2, [3, 4]]));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn what_came_before_the_wait_was_opened_is_taken_by_it(lab: Lab) {
        // rules 7.1 and 12.2
        let run = lab.start(TAKER, 100).await.unwrap();
        let signals = (0..100).map(|n| new_signal(run.id(), NOTE, &n));
        assert!(lab.signal_all(signals).await.unwrap().iter().all(Result::is_ok));
        let engine = lab.engine().workflow(TAKER, take).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, (0..100).collect::<Vec<_>>());
        let turns = lab.now(run.id()).await.step_seq;
        assert!(turns <= 3, "a hundred signals were taken in {turns} turns");
        let sent = sent_to(&lab, run.id()).await;
        assert!(sent.iter().all(|one| one.status.name() == "applied"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_thousand_signals_that_are_not_waited_for_do_not_disturb(lab: Lab) {
        // rules 7.1, 12.2 and 13.1
        let engine = lab.engine().workflow(TAKER, take).start().await.unwrap();
        let run = lab.start(TAKER, 3).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let signals = (0..1_000).map(|n| new_signal(run.id(), OTHER, &n));
        assert!(lab.signal_all(signals).await.unwrap().iter().all(Result::is_ok));
        let view = lab.describe(run.id()).await.unwrap().unwrap();
        assert_eq!(view.liveness.name(), "waiting_for_signal");
        let turns = view.instance.step_seq;
        for n in 0..3 {
            lab.signal(&run, NOTE, &n).await.unwrap();
        }
        assert_eq!(lab.came_to(&run).await, [0, 1, 2]);
        assert!(lab.now(run.id()).await.step_seq <= turns + 4);
        let sent = sent_to(&lab, run.id()).await;
        let discarded = sent.iter().filter(|one| one.status.name() == "discarded");
        assert_eq!(discarded.count(), 1_000);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_wait_that_times_out_is_distinct_from_a_signal_without_arguments(lab: Lab) {
        // rules 7.5 and 12.2
        let code = |wf: Workflow, _: ()| async move {
            let first = wf.signal(MAYBE).timeout(hours(1)).await?;
            let second = wf.signal(MAYBE).timeout(hours(1)).await?;
            let third = wf.signal(MAYBE).timeout(millis(20)).await?;
            Ok(json!([first == Some(None), second == Some(Some(7)), third.is_none()]))
        };
        let engine = lab.engine().workflow(FIRST, code).start().await.unwrap();
        let run = lab.start(FIRST, ()).await.unwrap();
        lab.signal(&run, MAYBE, &None).await.unwrap();
        lab.signal(&run, MAYBE, &Some(7)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([true, true, true]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_was_committed_first_decides_between_a_signal_and_the_deadline(lab: Lab) {
        // rule 7.5: a signal after the deadline's commit waits for the next wait.
        let code = |wf: Workflow, _: ()| async move {
            let in_time = wf.signal(NOTE).timeout(hours(1)).await?;
            let late = wf.signal(NOTE).timeout(secs(1)).await?;
            let next = wf.signal(NOTE).await?;
            Ok(json!([in_time, late, next]))
        };
        let busy = Gate::closed();
        let at_gate = busy.clone();
        let run = lab.start(FIRST, ()).await.unwrap();
        lab.signal(&run, NOTE, &1).await.unwrap();
        // One slot, which something else takes before the deadline is handled.
        let engine = lab.engine().queue("default", 1).workflow(FIRST, code).job(KID, hold(at_gate));
        let engine = engine.start().await.unwrap();
        lab.until(run.id(), "the second wait", |row| row.status == Status::AwaitingSignal && row.due_at.is_some()).await;
        lab.start(KID, 0).await.unwrap();
        busy.reached_by(1).await;
        lab.until_status(run.id(), Status::Runnable).await;
        lab.signal(&run, NOTE, &2).await.unwrap();
        busy.open();
        assert_eq!(lab.came_to(&run).await, json!([1, null, 2]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_later_deadline_does_not_overtake_a_signal_because_an_earlier_one_has_passed(lab: Lab) {
        // rule 7.5: the deadline of the second wait was not committed when its signal came.
        let code = |wf: Workflow, _: ()| async move {
            let waits = (wf.signal(OTHER).timeout(secs(1)), wf.signal(NOTE).timeout(secs(2)));
            let (other, note) = wf.all(waits).await;
            Ok(json!([other?, note?]))
        };
        let busy = Gate::closed();
        let engine = lab.engine().queue("default", 1).workflow(FIRST, code).job(KID, hold(busy.clone()));
        let engine = engine.start().await.unwrap();
        let run = lab.start(FIRST, ()).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.start(KID, 0).await.unwrap();
        busy.reached_by(1).await;
        lab.until_status(run.id(), Status::Runnable).await;
        lab.signal(&run, NOTE, &2).await.unwrap();
        tokio::time::sleep(millis(1_300)).await;
        busy.open();
        assert_eq!(lab.came_to(&run).await, json!([null, 2]));
        engine.shutdown().await;
    }
}

const KID: Job<u32, u32> = Job::new("kid");

/// Code of a job that waits at the gate.
fn hold(
    gate: Gate,
) -> impl Fn(u32) -> futures_util::future::BoxFuture<'static, Result<u32, BoxError>>
+ Send
+ Sync
+ 'static {
    move |n| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.pass().await;
            Ok(n)
        })
    }
}

on_every_store! {
    async fn what_breaks_the_contract_never_reaches_the_code(lab: Lab) {
        // rules 7.3, 8.2 and 8.3
        let code = |wf: Workflow, _: ()| async move { Ok(wf.signal(NOTE).await?) };
        let engine = lab.engine().workflow(STRICT, code).start().await.unwrap();
        let run = lab.start(STRICT, ()).key("strict").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let bad: Signal<String> = Signal::new("note");
        let refused = lab.signal("strict", bad, &"seven".to_owned()).await.unwrap_err();
        assert_eq!(refused.reason(), Some("invalid_signal_arguments"));
        let unknown = lab.signal("strict", OTHER, &1).await.unwrap_err();
        assert_eq!(unknown.reason(), Some("unknown_signal"));
        assert_eq!(lab.now(run.id()).await.status, Status::AwaitingSignal);
        lab.signal("strict", NOTE, &7).await.unwrap();
        assert_eq!(lab.came_to(&run).await, 7);
        let lives: Vec<_> = sent_to(&lab, run.id()).await.iter().map(|one| one.status.name()).collect();
        assert_eq!(lives, ["rejected", "rejected", "applied"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_record_shows_the_wait_that_took_it_and_the_history_both(lab: Lab) {
        // rules 7.6, 7.7 and 16.1
        let engine = lab.engine().workflow(TAKER, take).start().await.unwrap();
        let run = lab.start(TAKER, 2).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let waits = lab.describe(run.id()).await.unwrap().unwrap().wait.unwrap();
        assert_eq!((waits.kind, waits.names.len(), waits.deadline), (WaitKind::Signal, 1, None));
        let first = lab.signal(&run, NOTE, &1).await.unwrap();
        assert_eq!(first.record.wait_id, waits.id);
        lab.signal(&run, NOTE, &2).await.unwrap();
        lab.came_to(&run).await;
        let sent = sent_to(&lab, run.id()).await;
        assert_eq!((sent[0].status.name(), &sent[0].wait_id), ("applied", &waits.id));
        assert!(sent.iter().all(|one| one.step_sequence.is_some() && one.wait_id.is_some()));
        let events = lab.events(run.id()).await;
        let applied: Vec<_> = events.iter().filter_map(|entry| match &entry.what {
            HistoryEvent::SignalApplied { command_id, wait_id, .. } => Some((*command_id, Some(wait_id.clone()))),
            _ => None,
        }).collect();
        let of_records: Vec<_> = sent.iter().map(|one| (one.id, one.wait_id.clone())).collect();
        assert_eq!(applied, of_records);
        let kinds = lab.kinds(run.id()).await;
        assert!(kinds.contains(&"message_cursor_advanced"), "{kinds:?}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn one_that_is_sent_twice_is_taken_once(lab: Lab) {
        // rules 7.3 and 12.2
        let engine = lab.engine().workflow(TAKER, take).start().await.unwrap();
        let run = lab.start(TAKER, 2).key("once").await.unwrap();
        lab.signal("once", NOTE, &1).dedup("a").await.unwrap();
        eventually("it to be taken", async || lab.now(run.id()).await.inbox.signals == 0).await;
        let again = lab.signal("once", NOTE, &1).dedup("a").await.unwrap();
        assert!(again.duplicate);
        let other = lab.signal("once", NOTE, &3).dedup("a").await.unwrap_err();
        assert_eq!(other.outcome(), Some("rejected_conflicting_duplicate"));
        lab.signal("once", NOTE, &2).dedup("b").await.unwrap();
        assert_eq!(lab.came_to(&run).await, [1, 2]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn held_signals_and_one_that_starts_it_are_taken_in_order(lab: Lab) {
        // rules 7.8 and 7.9
        let engine = lab.engine().workflow(TAKER, take).start().await.unwrap();
        for n in 1..=2 {
            lab.signal("later", NOTE, &n).hold_for(hours(1)).await.unwrap();
        }
        let run = lab.signal_with_start(new_start(TAKER, 4).key("later"), NOTE, &3).await.unwrap();
        assert!(run.started);
        let same = lab.signal_with_start(new_start(TAKER, 4).key("later"), NOTE, &4).await.unwrap();
        assert!(!same.started && same.instance() == run.instance());
        let ended = lab.ended(run.instance().unwrap()).await;
        let taken: Vec<u32> = ended.result.as_ref().unwrap().to().unwrap();
        assert_eq!(taken, [1, 2, 3, 4]);
        engine.shutdown().await;
    }
}

/// A step that nothing ends, next to a signal.
async fn step_or_signal(wf: Workflow, gate: Gate, dropped: Log<u32>) -> Result<Value, BoxError> {
    let step = wf.step("long", || {
        let (gate, dropped) = (gate.clone(), dropped.clone());
        async move {
            let _note = NoteOnDrop(dropped);
            gate.pass().await;
            Ok::<_, BoxError>(0)
        }
    });
    let first = match wf.select((step, wf.signal(NOTE))).await {
        OneOf::First(step) => json!(["step", step?]),
        OneOf::Second(note) => json!(["note", note?]),
    };
    let second = wf.signal(NOTE).await?;
    Ok(json!([first, second]))
}

struct NoteOnDrop(Log<u32>);

impl Drop for NoteOnDrop {
    fn drop(&mut self) {
        self.0.note(1);
    }
}

on_every_store! {
    async fn a_signal_reaches_the_code_at_once_while_a_step_runs_long(lab: Lab) {
        // rules 6.6 and 12.2: from this process and from another, also when many others are pending.
        for (others, outside) in [(0, false), (0, true), (200, false), (200, true)] {
            let (gate, dropped) = (Gate::closed(), Log::new());
            let (at_gate, is_dropped) = (gate.clone(), dropped.clone());
            let code = move |wf: Workflow, _: ()| step_or_signal(wf, at_gate.clone(), is_dropped.clone());
            let engine = lab.engine().poll(hours(1)).workflow(FIRST, code).start().await.unwrap();
            let run = lab.start(FIRST, ()).await.unwrap();
            gate.reached_by(1).await;
            if others > 0 {
                let signals = (0..others).map(|n| new_signal(run.id(), OTHER, &n));
                lab.signal_all(signals).await.unwrap();
            }
            let sender = if outside { lab.again().await } else { (*lab).clone() };
            let since = std::time::Instant::now();
            sender.signal(run.id(), NOTE, &1).await.unwrap();
            dropped.grown_to(1).await;
            let took = since.elapsed();
            assert!(took < millis(900), "it took {took:?} with {others} others, outside: {outside}");
            sender.signal(run.id(), NOTE, &2).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([["note", 1], 2]));
            assert_eq!(gate.arrivals(), 1);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_signal_that_comes_as_the_step_ends_is_taken_once(lab: Lab) {
        // rules 4.1 and 12.2
        let code = |wf: Workflow, _: ()| async move {
            let mut got = Vec::new();
            let mut steps = 0;
            while got.len() < 20 {
                let step = wf.step("short", || async {
                    tokio::time::sleep(millis(1)).await;
                    Ok::<_, BoxError>(())
                });
                match wf.select((step, wf.signal(NOTE))).await {
                    OneOf::First(step) => {
                        step?;
                        steps += 1;
                        if steps % 10 == 0 {
                            got.push(wf.signal(NOTE).await?);
                        }
                    }
                    OneOf::Second(note) => got.push(note?),
                }
            }
            Ok(json!(got))
        };
        let engine = lab.engine().workflow(FIRST, code).start().await.unwrap();
        let run = lab.start(FIRST, ()).await.unwrap();
        for n in 0..20 {
            lab.signal(&run, NOTE, &n).await.unwrap();
            tokio::time::sleep(millis(1)).await;
        }
        assert_eq!(lab.came_to(&run).await, json!((0..20).collect::<Vec<_>>()));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_wait_that_lost_leaves_the_signal_to_the_next(lab: Lab) {
        // rules 12.2 and 7.6
        let code = |wf: Workflow, _: ()| async move {
            let lost = match wf.select((wf.signal(NOTE), wf.signal(GO))).await {
                OneOf::First(_) => false,
                OneOf::Second(go) => go.is_ok(),
            };
            wf.signal(OTHER).await?;
            Ok(json!([lost, wf.signal(NOTE).await?, wf.signal(NOTE).await?]))
        };
        let engine = lab.engine().workflow(FIRST, code).start().await.unwrap();
        let run = lab.start(FIRST, ()).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.signal(&run, GO, &()).await.unwrap();
        for n in 1..=2 {
            lab.signal(&run, NOTE, &n).await.unwrap();
        }
        lab.signal(&run, OTHER, &0).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([true, 1, 2]));
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_timeout_of_days_is_a_row() {
    // rules 6.5 and 7.5
    let code = |wf: Workflow, _: ()| async move {
        Ok(json!([
            wf.signal(NOTE).timeout(days(30)).await?,
            wf.signal(NOTE).timeout(days(1)).await?
        ]))
    };
    let kit = Kit::builder().workflow(FIRST, code).build().await.unwrap();
    let run = kit.start(FIRST, ()).await.unwrap();
    kit.advance(days(29)).await;
    kit.assert_status(&run, Status::AwaitingSignal).await;
    kit.advance(hours(25)).await;
    kit.signal(&run, NOTE, &5).await.unwrap();
    kit.settle().await;
    kit.assert_done(&run, &json!([null, 5])).await;
}
