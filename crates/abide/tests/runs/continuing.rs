//! Instances that continue as new, run after run.

use abide::client::{NotDone, new_start};
use abide::history::HistoryEvent;
use abide::machine::continue_as_new;
use abide::{Status, done, stop};
use serde_json::{Value, json};

use crate::common::{At, Lab, Script, eventually};
use crate::runs::{GO, NOTE, runs};

/// Takes what it is handed and continues, until it has taken `count` and run fifty times.
fn looper(count: usize) -> Script {
    Script::new(move |at, ctx| match at {
        At::One if ctx.state()["taken"].as_array().unwrap().len() < count => {
            ctx.wait_for(NOTE).then(At::Two)
        }
        _ => {
            let notes = ctx.awaited_all(NOTE)?;
            let state = ctx.state_mut();
            state["taken"]
                .as_array_mut()
                .unwrap()
                .extend(notes.into_iter().map(Value::from));
            let taken = state["taken"].as_array().unwrap().len();
            state["runs"] = json!(state["runs"].as_u64().unwrap() + 1);
            if taken >= count && state["runs"].as_u64().unwrap() >= 50 {
                done(state["taken"].clone())
            } else {
                continue_as_new(At::One)
            }
        }
    })
}

on_every_store! {
    async fn without_a_key_the_id_of_a_run_finds_the_newest(lab: Lab) {
        // rules 2.4 and 2.5
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One if *ctx.state() != json!(2) => {
                *ctx.state_mut() = json!(ctx.state().as_u64().unwrap() + 1);
                continue_as_new(At::One)
            }
            At::One => ctx.wait_for(GO).then(At::Two),
            _ => done(json!("went")),
        }));
        let engine = engine.start().await.unwrap();
        for key in [None, Some("k")] {
            let mut start = lab.start(Script::any(), json!(0));
            if let Some(key) = key {
                start = start.key(key);
            }
            let order = start.await.unwrap();
            let first = order.id();
            eventually("the third run waits", async || {
                let runs = runs(&lab, first).await;
                runs.len() == 3 && runs[2].status == Status::AwaitingSignal
            })
            .await;
            let last = runs(&lab, first).await[2].id;
            let exact = (first, 1, Status::Continued);
            let expected = if key.is_none() { (last, 3, Status::AwaitingSignal) } else { exact };
            let seen = |run: abide::model::Instance| (run.id, run.run.number, run.status);
            assert_eq!(seen(order.get().await.unwrap().unwrap()), expected);
            assert_eq!(seen(lab.current(first).await.unwrap().unwrap()), expected);
            assert_eq!(seen(lab.describe(first).await.unwrap().unwrap().instance), expected);
            assert_eq!(seen(lab.get(first).await.unwrap().unwrap()), exact, "one run is read by `get`");
            lab.signal(last, GO, &()).await.unwrap();
            assert_eq!(lab.came_to(&order).await, json!("went"));
        }
        assert_eq!(lab.current(abide::InstanceId(9_999)).await.unwrap(), None);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn fifty_runs_lose_none_of_the_signals_that_come_all_the_while(lab: Lab) {
        // rules 2.4, 2.5 and 7.7
        const COUNT: u64 = 200;
        let engine = lab.engine().machine(looper(COUNT as usize)).start().await.unwrap();
        let order = lab.start(Script::any(), json!({"taken": [], "runs": 0})).key("loop").await.unwrap();
        let sender = {
            let lab = lab.clone();
            tokio::spawn(async move {
                for n in 0..COUNT {
                    let receipt = lab.signal("loop", NOTE, &n).dedup(format!("n{n}")).await.unwrap();
                    assert_eq!(receipt.sequence().unwrap().0 as u64, n + 1, "the sequence goes on");
                    if n % 10 == 0 {
                        // Known in the whole chain, whichever run took it.
                        assert!(lab.signal("loop", NOTE, &n).dedup(format!("n{n}")).await.unwrap().duplicate);
                    }
                }
            })
        };
        let taken: Vec<u64> = serde_json::from_value(lab.came_to(&order).await).unwrap();
        sender.await.unwrap();
        assert!(taken.into_iter().eq(0..COUNT), "each once, and in order");
        let runs = runs(&lab, order.id()).await;
        assert!(runs.len() >= 50, "{} runs", runs.len());
        let (last, before) = runs.split_last().unwrap();
        assert!(before.iter().all(|run| run.status == Status::Continued && run.finished_at.is_some()));
        assert!(runs.iter().zip(1..).all(|(run, number)| run.run.number == number));
        assert!(runs.iter().skip(1).all(|run| run.run.first == Some(order.id())));
        assert_eq!((last.status, last.inbox.sequence.0 as u64, last.inbox.cursor.0 as u64), (Status::Done, COUNT, COUNT));
        assert!(runs.windows(2).all(|two| two[0].inbox.cursor <= two[1].inbox.cursor), "the cursor is inherited");
        let sent = lab.commands(last.id, None, 1_000).await.unwrap().items;
        assert_eq!(sent.len() as u64, COUNT);
        assert!(sent.iter().all(|one| one.status.name() == "applied" && one.chain == Some(order.id())));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_old_run_tells_which_follows_and_the_new_one_begins_anew(lab: Lab) {
        // rules 2.4, 2.5 and 16.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One if ctx.state() == "first" => {
                *ctx.state_mut() = json!("second");
                continue_as_new(At::Two)
            }
            At::Two => ctx.wait_for(GO).then(At::Three),
            _ => done(ctx.state().clone()),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!("first")).key("order:1").priority(3).partition("p").await.unwrap();
        let old = lab.ended(order.id()).await;
        let new = lab.get("order:1").await.unwrap().unwrap();
        assert_eq!((old.status, old.step_seq), (Status::Continued, 1));
        assert_eq!((new.run.number, new.run.first, new.priority.0), (2, Some(old.id), 3));
        assert_eq!((&new.key, &new.partition_key, new.first_step.as_str()), (&old.key, &old.partition_key, "two"));
        let events = lab.events(old.id).await;
        let HistoryEvent::Continued { run_id, run_number } = events.last().unwrap().what else { panic!("{events:?}") };
        assert_eq!((run_id, run_number), (new.id, 2));
        let events = lab.events(new.id).await;
        let HistoryEvent::Started { run_number, .. } = events[0].what else { panic!("{events:?}") };
        assert_eq!((events[0].seq, run_number), (1, 2));
        lab.signal("order:1", GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!("second"), "a result follows the chain");
        let by_new = lab.handle::<Value>(new.id).await.unwrap().unwrap();
        assert_eq!(lab.came_to(&by_new).await, json!("second"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_chain_without_a_key_is_followed_too_and_so_is_its_failure(lab: Lab) {
        // rules 2.4 and 2.5
        let engine = lab.engine().machine(Script::new(|_, ctx| {
            let left = ctx.state().as_u64().unwrap();
            *ctx.state_mut() = json!(left.saturating_sub(1));
            if left > 0 { continue_as_new(At::One) } else { stop("the end") }
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(400)).await.unwrap();
        let error = lab.result(&order).await.unwrap_err();
        let chain = runs(&lab, order.id()).await;
        let last = chain.last().unwrap();
        assert_eq!(chain.len(), 401);
        assert!(matches!(&error, NotDone::Failed { id, error } if *id == last.id && error == "the end"), "{error}");
        // Without a key the id of each run that has ended finds the newest one, also when that was restarted.
        let again = lab.restart(last.id).await.unwrap();
        for run in [&chain[0], &chain[77], last] {
            let handle = lab.handle::<Value>(run.id).await.unwrap().unwrap();
            let error = lab.result(&handle).await.unwrap_err();
            assert!(matches!(&error, NotDone::Failed { id, .. } if *id == again), "{error}");
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_result_of_a_restarted_run_is_found_by_its_first_id_unless_it_has_a_key(lab: Lab) {
        // rule 2.5
        let engine = lab.engine().machine(Script::new(|at, _| match at {
            At::One => stop("no"),
            _ => done(json!("well")),
        })).start().await.unwrap();
        for key in [None, Some("order:1")] {
            let start = lab.start(Script::any(), json!(0));
            let order = match key {
                Some(key) => start.key(key).await.unwrap(),
                None => start.await.unwrap(),
            };
            assert_eq!(lab.failed_of(&order).await, "no");
            let again = lab.restart(&order).at(At::Two).await.unwrap();
            assert_eq!(lab.ended(again).await.status, Status::Done);
            match key {
                // With one, the key finds the newest run, and the id this one.
                Some(_) => assert_eq!(lab.failed_of(&order).await, "no"),
                None => assert_eq!(lab.came_to(&order).await, json!("well")),
            }
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_that_continues_ends_once_for_its_parent(lab: Lab) {
        // rules 2.4, 10.2 and 10.3
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One if ctx.state() == "parent" => {
                ctx.spawn((0..3).map(|n| new_start(Script::any(), json!(n)).step(At::Two).key(format!("child:{n}")))).then(At::Three)
            }
            At::Three => {
                assert_eq!(ctx.missing().count(), 0);
                // By the ids of their last runs, in whatever order these were opened.
                let children = ctx.children().iter();
                let mut ends: Vec<_> = children.map(|child| (child.status.name(), child.result.as_ref().unwrap().to::<u64>().unwrap())).collect();
                ends.sort_unstable();
                done(json!(ends))
            }
            _ => {
                let left = ctx.state().as_u64().unwrap();
                if left >= 10 {
                    return done(json!(left));
                }
                *ctx.state_mut() = json!(left + 5);
                continue_as_new(At::Two)
            }
        })).start().await.unwrap();
        let parent = lab.start(Script::any(), json!("parent")).await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!([["done", 10], ["done", 11], ["done", 12]]));
        let ended = lab.kinds(parent.id()).await.iter().filter(|kind| **kind == "child_ended").count();
        assert_eq!(ended, 3);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_key_freed_and_started_again_begins_a_new_chain(lab: Lab) {
        // rules 2.2, 2.4 and 7.3
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(GO).then(At::Two),
            At::Two if ctx.state() == 1 => {
                *ctx.state_mut() = json!(0);
                continue_as_new(At::One)
            }
            _ => done(json!(null)),
        })).start().await.unwrap();
        let first = lab.start(Script::any(), json!(1)).key("k").await.unwrap();
        for n in 1..=2 {
            let receipt = lab.signal("k", GO, &()).dedup(format!("d{n}")).await.unwrap();
            assert_eq!(receipt.sequence().unwrap().0, n);
            lab.until(receipt.instance().unwrap(), "it to be taken", |row| row.status.is_terminal()).await;
        }
        lab.came_to(&first).await;
        let again = lab.start(Script::any(), json!(0)).key("k").await.unwrap();
        let row = lab.now(again.id()).await;
        assert_eq!((row.run.number, row.run.first), (1, None));
        let receipt = lab.signal("k", GO, &()).dedup("d1").await.unwrap();
        assert!(!receipt.duplicate && receipt.sequence().unwrap().0 == 1);
        lab.came_to(&again).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_is_not_consumed_and_what_is_not_answered_moves_on_in_order(lab: Lab) {
        // rules 2.4 and 4.1
        let order = lab.start(Script::any(), json!(0)).key("k").await.unwrap();
        for n in 0..3 {
            lab.signal("k", NOTE, &n).await.unwrap();
            lab.signal("k", GO, &()).await.unwrap();
        }
        let engine = lab.engine().machine(Script::waiting(|at, ctx| Box::pin(async move {
            match at {
                At::One => ctx.wait_for(GO).then(At::Two),
                At::Two => continue_as_new(At::Three),
                At::Three if ctx.signals().len() < 3 => ctx.wait_for(NOTE).then(At::Three),
                At::Three => {
                    let sequences: Vec<i64> = ctx.signals().iter().map(|one| one.sequence.unwrap().0).collect();
                    done(json!([ctx.awaited_all(NOTE)?, sequences, ctx.inbox().await?.len()]))
                }
            }
        }))).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!([[0, 1, 2], [1, 3, 5], 3]));
        let sent = lab.commands("k", None, 10).await.unwrap().items;
        let second = lab.get("k").await.unwrap().unwrap().id;
        for one in sent {
            let taken_by = if one.name.as_str() == "go" { order.id() } else { second };
            assert_eq!(one.instance, Some(taken_by));
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_worker_that_dies_leaves_one_run_open(lab: Lab) {
        // rules 1.1 and 2.4
        let code = || Script::new(|_, ctx| {
            let at = ctx.state().as_u64().unwrap();
            *ctx.state_mut() = json!(at + 1);
            if at < 40 { continue_as_new(At::One) } else { done(json!(at)) }
        });
        let mut order = None;
        for round in 0..4 {
            let killable = lab.killable(move |engine| engine.name("w").machine(code())).await;
            if order.is_none() {
                order = Some(lab.start(Script::any(), json!(0)).key("k").await.unwrap());
            }
            eventually("some runs", async || killable.stats().committed > 3 || round > 0).await;
            killable.die().await;
        }
        let engine = lab.engine().name("w").machine(code()).start().await.unwrap();
        let order = order.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(40));
        let runs = runs(&lab, order.id()).await;
        assert!(runs.iter().zip(1..).all(|(run, number)| run.run.number == number));
        assert_eq!(runs.len(), 41);
        engine.shutdown().await;
    }
}
