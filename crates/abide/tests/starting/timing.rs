//! Starts that are due later.

use abide::testing::Kit;
use abide::time::{Timestamp, hours, millis, minutes, secs};
use abide::{Status, done};
use serde_json::json;

use crate::common::{Lab, Script};

on_every_store! {
    async fn a_start_with_a_delay_is_scheduled_and_runs_then(lab: Lab) {
        // rules 3.1, 6.5
        let engine = lab.engine().machine(Script::new(|_, _| done(json!(null)))).start().await.unwrap();
        let later = lab.start(Script::any(), json!(1)).delay(hours(1)).await.unwrap();
        let row = lab.now(later.id()).await;
        assert_eq!((row.status, row.due_at.unwrap().since(row.created_at)), (Status::Scheduled, hours(1)));
        let soon = lab.start(Script::any(), json!(2)).delay(millis(50)).await.unwrap();
        lab.came_to(&soon).await;
        let row = lab.now(soon.id()).await;
        assert!(row.finished_at.unwrap().since(row.created_at) >= millis(50));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_start_may_name_its_moment(lab: Lab) {
        let now = lab.now(lab.start(Script::any(), json!(0)).await.unwrap().id()).await.created_at;
        let at = |moment| lab.start(Script::any(), json!(1)).at(moment);
        let row = lab.now(at(now + hours(5)).await.unwrap().id()).await;
        assert_eq!((row.status, row.due_at), (Status::Scheduled, Some(now + hours(5))));
        // What has passed is due, since then.
        let row = lab.now(at(now - hours(5)).await.unwrap().id()).await;
        assert_eq!((row.status, row.due_at), (Status::Runnable, Some(now - hours(5))));
        let row = lab.now(at(Timestamp::MAX).await.unwrap().id()).await;
        assert_eq!((row.status, row.due_at), (Status::Scheduled, Some(Timestamp::MAX)));
    }
}

#[tokio::test]
async fn a_moment_is_met_to_the_microsecond() {
    // rule 6.5
    let kit = Kit::builder().machine(Script::new(|_, _| done(json!(null))));
    let kit = kit.build().await.unwrap();
    let due = kit.now() + minutes(90);
    let order = kit.start(Script::any(), json!(1)).at(due).await.unwrap();
    kit.advance(minutes(90) - millis(1)).await;
    kit.assert_status(&order, Status::Scheduled).await;
    kit.advance(secs(5)).await;
    kit.assert_done(&order, &json!(null)).await;
    let row = order.get().await.unwrap().unwrap();
    assert_eq!(row.finished_at, Some(due));
}
