//! Due times are met, and what was missed is made up for.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use abide::done;
use abide::time::{Timestamp, hours, millis};
use serde_json::json;

use crate::common::{At, Lab, Log, Script, eventually};
use crate::lifecycle::quick;

/// Notes when it runs, by the clock of this computer.
fn timed(log: &Log<Timestamp>) -> Script {
    let log = log.clone();
    Script::new(move |_, _| {
        log.note(clock());
        done(json!(null))
    })
}

fn clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
}

on_every_store! {
    async fn on_an_idle_engine_a_due_time_is_met_within_50_ms(lab: Lab) {
        // rule 6.5: of several the median, for the sake of machines that do other things as well.
        let log = Log::new();
        let engine = lab.engine().poll(hours(1)).machine(timed(&log)).start().await.unwrap();
        let mut late = Vec::new();
        for n in 0..9 {
            let order = lab.start(Script::any(), json!(n)).delay(millis(60)).await.unwrap();
            lab.came_to(&order).await;
            let due = lab.now(order.id()).await.created_at + millis(60);
            let ran = log.read()[n];
            assert!(ran >= due, "it ran at {ran}, and was due at {due}");
            late.push(ran.since(due));
        }
        late.sort();
        assert!(late[4] < Duration::from_millis(50), "{late:?}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_due_time_that_comes_closer_is_met_too(lab: Lab) {
        // rule 6.5: the engine sleeps until the hour, and is notified of the minute; from another process as well.
        let log = Log::new();
        let engine = lab.engine().poll(hours(1)).machine(timed(&log)).start().await.unwrap();
        let far = lab.start(Script::any(), json!(1)).delay(hours(1)).await.unwrap();
        let near = lab.again().await.start(Script::any(), json!(2)).delay(millis(100)).await.unwrap();
        lab.came_to(&near).await;
        assert_eq!(log.len(), 1, "the other is not due: {}", lab.standing(far.id()).await);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_passed_while_nothing_ran_fires_at_once_after_a_restart(lab: Lab) {
        // rule 6.5
        let mut orders = Vec::new();
        for n in 0..20 {
            orders.push(lab.start(Script::any(), json!(n)).delay(millis(1 + n)).await.unwrap());
        }
        let sleeper = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.sleep(millis(200)).then(At::Two),
            _ => done(json!(null)),
        }));
        let sleeper = sleeper.queue("sleepers", 1).start().await.unwrap();
        let asleep = lab.start(Script::any(), json!(1)).queue("sleepers").await.unwrap();
        lab.until_status(asleep.id(), abide::Status::Scheduled).await;
        sleeper.shutdown().await;
        let last = lab.now(asleep.id()).await.due_at.unwrap();
        eventually("all of it to be overdue", async || clock() > last + millis(10)).await;
        let begun = Instant::now();
        let engine = lab.engine().poll(hours(1)).queue("default", 10).queue("sleepers", 1).machine(quick("late"));
        let engine = engine.start().await.unwrap();
        for order in orders.iter().chain([&asleep]) {
            lab.came_to(order).await;
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn many_due_times_are_met_together(lab: Lab) {
        // rule 6.5: more than are fired in one transaction.
        let at = clock() + millis(300);
        let starts = (0..1_200).map(|n| abide::client::new_start(Script::any(), json!(n)).at(at));
        let started = lab.start_all(starts).await.unwrap();
        let engine = lab.engine().poll(hours(1)).machine(quick("it")).start().await.unwrap();
        lab.all_done(&started.into_iter().map(|one| one.unwrap().id()).collect::<Vec<_>>()).await;
        engine.shutdown().await;
    }
}
