//! In which order a queue is served.

use abide::client::new_start;
use abide::done;
use abide::testing::Kit;
use abide::time::{Timestamp, minutes, secs};
use serde_json::{Value, json};

use crate::common::{Lab, Log, Script};

/// Notes its state and ends.
fn noting(log: &Log<Value>) -> Script {
    let log = log.clone();
    Script::new(move |_, ctx| {
        log.note(ctx.state().clone());
        done(json!(null))
    })
}

on_every_store! {
    async fn a_queue_is_served_by_priority_then_due_time_then_id(lab: Lab) {
        // rule 6.1
        let past = |ago| lab_time() - secs(ago);
        let start = |name: &str, priority, ago| new_start(Script::any(), json!(name)).priority(priority).at(past(ago));
        let starts = [
            start("fourth", 0, 30),
            start("fifth", 0, 20),
            start("sixth", 0, 20),
            start("last", 5, 100),
            start("second", -5, 90),
            start("third", -5, 10),
            start("first", -32_768, 1),
        ];
        lab.start_all(starts).await.unwrap();
        let log = Log::new();
        let engine = lab.engine().queue("default", 1).machine(noting(&log)).start().await.unwrap();
        let order = log.grown_to(7).await;
        assert_eq!(order, ["first", "second", "third", "fourth", "fifth", "sixth", "last"].map(Value::from));
        engine.shutdown().await;
    }
}

/// The time, cut to seconds so that equal ones are equal.
fn lab_time() -> Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    Timestamp::from_micros(i64::try_from(since.as_secs()).unwrap() * 1_000_000)
}

on_every_store! {
    async fn many_are_served_in_the_order_they_were_started_in(lab: Lab) {
        // rule 6.1
        for n in 0..20 {
            lab.start(Script::any(), json!(n)).await.unwrap();
        }
        let log = Log::new();
        let engine = lab.engine().queue("default", 1).machine(noting(&log)).start().await.unwrap();
        assert_eq!(log.grown_to(20).await, (0..20).map(Value::from).collect::<Vec<_>>());
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn what_becomes_due_together_is_served_by_priority() {
    // rules 6.1, 6.5
    let log = Log::new();
    let kit = Kit::builder().machine(noting(&log)).queue("default", 1);
    let kit = kit.build().await.unwrap();
    for (name, priority, delay) in [("b", 0, 60), ("c", 1, 60), ("a", -1, 60), ("early", 9, 59)] {
        let start = kit.start(Script::any(), json!(name)).priority(priority);
        start.delay(secs(delay)).await.unwrap();
    }
    kit.advance(minutes(2)).await;
    assert_eq!(log.read(), ["early", "a", "b", "c"].map(Value::from));
}
