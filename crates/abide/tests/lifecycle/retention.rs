//! Finished instances are deleted when their time is over.

use abide::client::new_start;
use abide::engine::Retention;
use abide::store::Filter;
use abide::testing::Kit;
use abide::time::{days, hours, millis};
use abide::{Job, done};
use serde_json::json;

use crate::common::{At, Gate, Lab, Log, Script, eventually};
use crate::lifecycle::quick;

const CHILD: Job<u32, u32> = Job::new("child");

async fn count(lab: &Lab) -> usize {
    lab.list(&Filter::default(), None, 1_000)
        .await
        .unwrap()
        .items
        .len()
}

on_every_store! {
    async fn what_has_ended_is_deleted_after_its_retention_and_what_has_not_stays(lab: Lab) {
        // rule 16.2
        let engine = lab.engine().retention(Retention::For(millis(20))).machine(quick("it")).start().await.unwrap();
        let waiting = lab.start(Script::any(), json!(1)).key("waiting").delay(hours(1)).await.unwrap();
        let started = lab.start_all((0..600).map(|n| new_start(Script::any(), json!(n)))).await.unwrap();
        eventually("all that ended to be deleted", async || count(&lab).await == 1).await;
        assert!(lab.get(waiting.id()).await.unwrap().is_some());
        let id = started[0].as_ref().unwrap().id();
        assert_eq!(lab.history(id).await.unwrap(), [], "with all that belongs to it");
        eventually("it to be counted", async || engine.stats().swept == 600).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_is_spared_as_long_as_its_parent_waits_to_join_it(lab: Lab) {
        // rule 16.2
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let engine = lab.engine().retention(Retention::For(millis(1))).job(CHILD, move |n| {
            let gate = at_gate.clone();
            async move {
                if n > 1 {
                    gate.pass().await;
                }
                Ok(n)
            }
        });
        let log = Log::new();
        let noted = log.clone();
        let engine = engine.machine(Script::new(move |at, ctx| match at {
            At::One => ctx.spawn([1, 2].map(|n| new_start(CHILD, n))).then(At::Two),
            _ => {
                let results = ctx.children().iter().map(|child| child.result.as_ref().unwrap().to::<u32>().unwrap());
                noted.note(results.collect::<Vec<_>>());
                done(json!(null))
            }
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        lab.until(parent.id(), "one child to have ended", |row| row.family.pending == 1).await;
        // What ends after the child is deleted, so the sweep has passed the child over.
        let swept = engine.stats().swept;
        lab.start(CHILD, 0).await.unwrap();
        eventually("a sweep", async || engine.stats().swept > swept).await;
        let children = lab.list(&Filter { parent: Some(parent.id()), ..Filter::default() }, None, 10).await.unwrap();
        assert_eq!(children.items.len(), 2);
        gate.open();
        assert_eq!(log.grown_to(1).await, [[1, 2]]);
        eventually("all to be deleted", async || count(&lab).await == 0).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn without_a_retention_everything_is_kept(lab: Lab) {
        // rule 16.2: two engines, one of which sweeps nothing.
        let forever = lab.engine().retention(Retention::Forever).machine(quick("it")).start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        lab.came_to(&order).await;
        let default = lab.again().await.engine().machine(quick("it")).start().await.unwrap();
        let second = lab.start(Script::any(), json!(2)).await.unwrap();
        lab.came_to(&second).await;
        assert_eq!(count(&lab).await, 2);
        assert_eq!(forever.stats().swept + default.stats().swept, 0);
        forever.shutdown().await;
        default.shutdown().await;
    }
}

#[tokio::test]
async fn a_retention_of_days_goes_by_the_clock() {
    // rule 16.2
    let kit = Kit::builder()
        .machine(quick("it"))
        .retention(days(7))
        .build()
        .await
        .unwrap();
    let order = kit.start(Script::any(), json!(1)).await.unwrap();
    kit.settle().await;
    kit.advance(days(6)).await;
    kit.assert_done(&order, &json!(["it", 0])).await;
    kit.advance(days(1) + hours(1)).await;
    assert_eq!(kit.get(order.id()).await.unwrap(), None);
}
