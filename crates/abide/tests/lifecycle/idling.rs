//! An engine with nothing to do does nothing.

use std::time::Duration;

use abide::engine::Stats;
use abide::time::hours;
use serde_json::json;

use crate::common::{Lab, Script};
use crate::lifecycle::quick;

on_every_store! {
    async fn an_idle_engine_sends_next_to_nothing_to_its_database(lab: Lab) {
        // rules 2.1, 6.6
        let engine = lab.engine().queue("a", 5).queue("b", 5).queue("default", 5).machine(quick("it"));
        let engine = engine.start().await.unwrap();
        for n in 0..50 {
            lab.start(Script::any(), json!(n)).delay(hours(1)).await.unwrap();
        }
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        lab.came_to(&order).await;
        let before = engine.stats();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = engine.stats();
        assert!(after.batches - before.batches <= 3, "{before:?}, then {after:?}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_engine_counts_what_it_does(lab: Lab) {
        let engine = lab.engine().name("counted").machine(quick("it")).start().await.unwrap();
        assert_eq!(engine.name().as_str(), "counted");
        for n in 0..3 {
            let order = lab.start(Script::any(), json!(n)).await.unwrap();
            lab.came_to(&order).await;
        }
        crate::common::eventually("it to have counted", async || engine.stats().committed == 3).await;
        let Stats { claimed, stale, refused, reclaimed, swept, .. } = engine.stats();
        assert_eq!((claimed, stale, refused, reclaimed, swept), (3, 0, 0, 0, 0));
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_name_that_is_none_is_refused_when_the_engine_starts() {
    let lab = Lab::memory().await;
    let long = "x".repeat(256);
    for engine in [
        lab.engine().name(""),
        lab.engine().name(&long),
        lab.engine().queue("a\nb", 1),
    ] {
        let error = engine.machine(Script::any()).start().await.err().unwrap();
        assert!(error.to_string().contains("cannot be a name"), "{error}");
    }
}
