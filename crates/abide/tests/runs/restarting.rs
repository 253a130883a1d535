//! New runs of what failed or was cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide::client::{OperateError, new_start};
use abide::history::HistoryEvent;
use abide::{InstanceId, Status, done, next, stop};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::runs::{GO, NOTE, runs};

/// Fails in its second step until it is well.
fn ill(well: &Arc<AtomicBool>) -> Script {
    let well = well.clone();
    Script::new(move |at, ctx| match at {
        At::One => {
            *ctx.state_mut() = json!("one was here");
            next(At::Two)
        }
        At::Two if well.load(Ordering::SeqCst) => done(json!(["two", ctx.state(), ctx.attempt()])),
        At::Two => stop("ill"),
        At::Three => done(json!(["three", ctx.state(), ctx.attempt()])),
    })
}

on_every_store! {
    async fn what_failed_goes_on_where_it_ended_or_at_the_step_named(lab: Lab) {
        // rules 2.4 and 11.2
        let well = Arc::new(AtomicBool::new(false));
        let engine = lab.engine().machine(ill(&well)).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.failed_of(&order).await;
        let second = lab.restart("order:1").await.unwrap();
        assert_eq!(lab.ended(second).await.last_error.as_deref(), Some("ill"), "not cured yet");
        well.store(true, Ordering::SeqCst);
        let third = lab.restart(second).await.unwrap();
        let row = lab.ended(third).await;
        assert_eq!(row.result.as_ref().unwrap().as_str(), r#"["two","one was here",0]"#);
        assert_eq!((row.run.number, row.run.first, row.key.as_ref().unwrap().as_str()), (3, Some(order.id()), "order:1"));
        let events = lab.events(order.id()).await;
        let HistoryEvent::Continued { run_id, run_number } = events.last().unwrap().what else { panic!("{events:?}") };
        assert_eq!((run_id, run_number), (second, 2));

        well.store(false, Ordering::SeqCst);
        let other = lab.start(Script::any(), json!(null)).await.unwrap();
        lab.failed_of(&other).await;
        let new = lab.restart(&other).at(At::Three).await.unwrap();
        assert_eq!(lab.ended(new).await.result.unwrap().as_str(), r#"["three","one was here",0]"#);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_that_reads_what_woke_it_can_succeed_when_it_is_restarted(lab: Lab) {
        // rule 11.2: it was handed nothing, and failed of that for ever
        let well = Arc::new(AtomicBool::new(false));
        let mended = well.clone();
        let engine = lab.engine().machine(Script::new(move |at, ctx| match at {
            At::One => ctx.wait_for(NOTE).or(GO).then(At::Two),
            _ if mended.load(Ordering::SeqCst) => done(json!([ctx.awaited(NOTE)?, ctx.attempt()])),
            _ => stop("the carrier is away"),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.signal("order:1", NOTE, &7).dedup("once").await.unwrap();
        lab.failed_of(&order).await;
        let second = lab.restart("order:1").await.unwrap();
        assert_eq!(lab.ended(second).await.status, Status::Failed, "not mended yet");
        well.store(true, Ordering::SeqCst);
        let third = lab.restart("order:1").await.unwrap();
        assert_eq!(lab.ended(third).await.result.unwrap().as_str(), "[7,0]");
        let events = lab.events(third).await;
        let handed = events.iter().find_map(|one| match &one.what {
            HistoryEvent::HandedAgain { run_id, signals, .. } => Some((*run_id, signals.len())),
            _ => None,
        });
        assert_eq!(handed, Some((second, 1)));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_that_joins_children_is_handed_them_when_it_is_restarted(lab: Lab) {
        // rule 11.2: it counted no children, and was done with the wrong result
        let well = Arc::new(AtomicBool::new(false));
        let mended = well.clone();
        let engine = lab.engine().machine(Script::new(move |at, ctx| match at {
            At::One => ctx.spawn(["a", "b"].map(|name| new_start(Script::any(), json!(name)).step(At::Three))).then(At::Two),
            At::Two if mended.load(Ordering::SeqCst) => done(json!(ctx.children().len())),
            At::Two => stop("the carrier is away"),
            At::Three => done(json!(null)),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.failed_of(&order).await;
        let second = lab.restart("order:1").await.unwrap();
        assert_eq!(lab.ended(second).await.status, Status::Failed, "not mended yet");
        well.store(true, Ordering::SeqCst);
        let third = lab.restart("order:1").await.unwrap();
        assert_eq!(lab.ended(third).await.result.unwrap().as_str(), "2");
        let events = lab.events(third).await;
        let handed = events.iter().find_map(|one| match &one.what {
            HistoryEvent::HandedAgain { run_id, children, .. } => Some((*run_id, *children)),
            _ => None,
        });
        assert_eq!(handed, Some((second, 2)));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_was_cancelled_goes_on_too_and_what_was_discarded_stays_so(lab: Lab) {
        // rule 11.2
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(GO).then(At::Two),
            _ => done(json!([ctx.got(GO), ctx.timed_out()])),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.until_status(order.id(), Status::AwaitingSignal).await;
        lab.signal("order:1", NOTE, &1).dedup("d").await.unwrap();
        lab.cancel("order:1", "not wanted").await.unwrap();
        let new = lab.restart("order:1").at(At::One).await.unwrap();
        lab.until_status(new, Status::AwaitingSignal).await;
        let sent = lab.commands("order:1", None, 9).await.unwrap().items;
        assert_eq!((sent[0].status.name(), sent[0].instance), ("discarded", Some(order.id())));
        assert!(lab.signal("order:1", NOTE, &1).dedup("d").await.unwrap().duplicate);
        assert_eq!(lab.signal("order:1", GO, &()).await.unwrap().sequence().unwrap().0, 2, "the chain goes on");
        assert_eq!(lab.ended(new).await.result.unwrap().as_str(), "[true,false]");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn anything_else_is_refused(lab: Lab) {
        // rules 2.5 and 11.2
        let well = Arc::new(AtomicBool::new(false));
        let waiting = lab.start(Script::any(), json!(null)).key("waiting").await.unwrap();
        let refused = async |target: InstanceId| lab.restart(target).await.unwrap_err();
        let error = refused(waiting.id()).await;
        assert!(matches!(error, OperateError::NotRestartable(Status::Runnable)));
        assert_eq!(error.outcome(), Some("rejected_not_restartable"));
        assert!(matches!(refused(InstanceId(999_999)).await, OperateError::NoTarget(_)));
        assert!(matches!(lab.restart("missing").await, Err(OperateError::NoTarget(_))));
        let engine = lab.engine().machine(ill(&well)).start().await.unwrap();
        lab.failed_of(&waiting).await;
        let second = lab.restart("waiting").await.unwrap();
        lab.ended(second).await;
        let error = refused(waiting.id()).await;
        assert!(matches!(error, OperateError::NotCurrent { current } if current == second));
        assert_eq!(error.outcome(), Some("rejected_not_current"));
        // Another has its key by now.
        well.store(true, Ordering::SeqCst);
        let holder = lab.start(Script::any(), json!(null)).key("waiting").scope(abide::model::Scope::ALWAYS).await.unwrap();
        lab.came_to(&holder).await;
        let error = lab.restart(second).await.unwrap_err();
        assert!(matches!(error, OperateError::KeyTaken { holder: by } if by == holder.id()), "{error}");
        let error = refused(holder.id()).await;
        assert!(matches!(error, OperateError::NotRestartable(Status::Done)), "{error}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_that_is_restarted_is_waited_for_again(lab: Lab) {
        // rules 10.2 and 11.2
        let well = Arc::new(AtomicBool::new(false));
        let of_child = well.clone();
        let engine = lab.engine().machine(Script::new(move |at, ctx| match at {
            At::One if ctx.state() == "parent" => {
                ctx.spawn(["a", "b"].map(|name| new_start(Script::any(), json!(name)).step(At::Two).key(name))).then(At::Three)
            }
            At::Two if ctx.state() == "a" && !of_child.load(Ordering::SeqCst) => stop("ill"),
            At::Two if ctx.state() == "b" => ctx.wait_for(GO).then(At::One),
            At::Three => done(json!(ctx.children().iter().map(|child| child.status.name()).collect::<Vec<_>>())),
            _ => done(json!(null)),
        })).start().await.unwrap();
        let parent = lab.start(Script::any(), json!("parent")).await.unwrap();
        lab.until_status(parent.id(), Status::AwaitingChildren).await;
        let child = lab.get("a").await.unwrap().unwrap();
        lab.ended(child.id).await;
        well.store(true, Ordering::SeqCst);
        let again = lab.restart("a").await.unwrap();
        lab.ended(again).await;
        assert_eq!(lab.now(parent.id()).await.status, Status::AwaitingChildren, "the other has not ended");
        lab.signal("b", GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!(["done", "done"]));
        assert_eq!(runs(&lab, child.id).await.len(), 2);
        engine.shutdown().await;
    }
}
