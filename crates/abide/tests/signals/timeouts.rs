//! Waits that end when their time is up.

use abide::history::HistoryEvent;
use abide::model::{Cause, WaitKind};
use abide::time::{hours, millis};
use abide::{Status, done};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{GO, PAID, parked, payment, sent_to, value};

on_every_store! {
    async fn a_wait_that_nothing_ends_is_woken_at_its_deadline_and_sees_the_timeout(lab: Lab) {
        // rules 6.5 and 7.5
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).timeout(millis(20)).then(At::Two),
            _ => {
                assert!(ctx.timed_out() && !ctx.got(PAID) && ctx.signals().is_empty());
                assert_eq!((ctx.cause(), ctx.attempt()), (Cause::Timeout, 0), "a wake, not a failure");
                assert!(ctx.awaited(PAID).unwrap_err().to_string().contains("timed_out"));
                done(json!("late"))
            }
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!("late"));
        let events = lab.events(order.id()).await;
        let opened = events.iter().find_map(|entry| match &entry.what {
            HistoryEvent::WaitOpened { wait_kind, names, deadline, wait_id, .. } => {
                assert_eq!((*wait_kind, names.len()), (WaitKind::Signal, 1));
                Some((*deadline, wait_id.clone()))
            }
            _ => None,
        }).unwrap();
        let out = events.iter().find_map(|entry| match &entry.what {
            HistoryEvent::TimedOut { deadline, wait_id, .. } => {
                assert!(entry.at >= *deadline, "not before its time");
                Some((Some(*deadline), wait_id.clone()))
            }
            _ => None,
        }).unwrap();
        assert_eq!(opened, out);
        assert!(opened.1.is_some());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_signal_in_time_ends_the_wait_and_its_deadline_with_it(lab: Lab) {
        // rule 7.5
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).timeout(hours(1)).then(At::Two),
            _ => done(json!([ctx.timed_out(), ctx.awaited(PAID)?.amount])),
        })).start().await.unwrap();
        let id = parked(&lab, "order:1").await;
        assert!(lab.describe(id).await.unwrap().unwrap().wait.unwrap().deadline.is_some());
        lab.signal(id, PAID, &payment(3)).await.unwrap();
        assert_eq!(value(&lab.ended(id).await.result.unwrap()), json!([false, 3]));
        assert!(!lab.kinds(id).await.contains(&"timed_out"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_deadline_hands_over_the_part_of_the_pack_that_came(lab: Lab) {
        // rules 7.4 and 7.5
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for("part").timeout(hours(1)).then(At::Two),
            _ if ctx.signals().len() < 2 => ctx.wait_for("part").timeout(hours(1)).then(At::Two),
            _ if ctx.signals().len() < 3 && !ctx.timed_out() => {
                ctx.wait_for("part").timeout(millis(20)).then(At::Two)
            }
            _ => done(json!([ctx.timed_out(), ctx.signals().len()])),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        for _ in 0..2 {
            lab.signal(&order, "part", crate::signals::args(&[])).await.unwrap();
        }
        assert_eq!(lab.came_to(&order).await, json!([true, 2]));
        let sent = sent_to(&lab, order.id()).await;
        assert!(sent.iter().all(|one| one.status.name() == "applied"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_wait_for_nothing_but_time_is_a_sleep(lab: Lab) {
        // rules 3.1 and 13.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One if ctx.state() == "long" => ctx.wait_for_any(Vec::<&str>::new()).timeout(hours(1)).then(At::Two),
            At::One => ctx.wait_for_any(Vec::<&str>::new()).timeout(millis(10)).then(At::Two),
            _ => done(json!(ctx.cause() == Cause::Timeout)),
        })).start().await.unwrap();
        let short = lab.start(Script::any(), json!("short")).await.unwrap();
        assert_eq!(lab.came_to(&short).await, json!(true));
        let long = lab.start(Script::any(), json!("long")).key("long").await.unwrap();
        let row = lab.until_status(long.id(), Status::Scheduled).await;
        assert_eq!(row.wait_kind(), Some(WaitKind::Timer));
        // No signal ends it.
        lab.signal(&long, GO, &()).await.unwrap();
        let view = lab.describe("long").await.unwrap().unwrap();
        assert_eq!((view.liveness.name(), view.wait.unwrap().kind), ("scheduled", WaitKind::Timer));
        assert_eq!(view.instance.inbox.signals, 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_comes_after_the_deadline_stays_in_the_inbox_and_is_discarded_at_the_end(lab: Lab) {
        // rules 4.1, 7.5 and 7.6
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).timeout(millis(10)).then(At::Two),
            At::Two => {
                assert!(ctx.timed_out() && !ctx.got(PAID));
                ctx.wait_for(GO).then(At::Three)
            }
            At::Three => done(json!(ctx.got(PAID))),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.until(order.id(), "it to wait for the other", |row| row.awaited().first().is_some_and(|name| name.as_str() == "go")).await;
        lab.signal(&order, PAID, &payment(1)).await.unwrap();
        lab.signal(&order, GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(false));
        let lives: Vec<&str> = sent_to(&lab, order.id()).await.iter().map(|one| one.status.name()).collect();
        assert_eq!(lives, ["discarded", "applied"]);
        assert!(lab.kinds(order.id()).await.contains(&"signal_discarded"));
        engine.shutdown().await;
    }
}
