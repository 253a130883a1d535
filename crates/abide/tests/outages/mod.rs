//! Databases that go away, are locked, or refuse: work pauses and goes on, nothing is lost and nothing happens twice.

mod faulty;
mod folded;
mod isolated;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_failover;
#[cfg(feature = "postgres")]
mod postgres_locked;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod refusing;
mod repeated;
mod signals;
#[cfg(feature = "sqlite")]
mod sqlite;

use crate::common::{At, Lab, Script};
use abide::time::millis;
use abide::{InstanceId, Status, done, next};
use serde_json::json;

/// The number of steps of each instance.
const STEPS: u32 = 6;

/// Takes its steps one after the other, each for a little while.
fn walk() -> Script {
    Script::waiting(|_, ctx| {
        Box::pin(async move {
            tokio::time::sleep(millis(3)).await;
            let taken = ctx.state().as_u64().unwrap() + 1;
            *ctx.state_mut() = json!(taken);
            if taken == u64::from(STEPS) {
                done(json!(taken))
            } else {
                next(At::One)
            }
        })
    })
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
async fn start_walks(lab: &Lab, count: usize) -> Vec<InstanceId> {
    let starts = (0..count).map(|_| abide::client::new_start(Script::any(), json!(0)));
    let started = lab.start_all(starts).await.unwrap();
    started.into_iter().map(|one| one.unwrap().id()).collect()
}

/// Waits until all have ended, and asserts of each that its steps were committed in full, in order, and once.
async fn each_took_its_steps_once(lab: &Lab, ids: &[InstanceId]) {
    let steps: Vec<_> = (1..=STEPS).map(|n| ("one".to_owned(), n)).collect();
    for id in ids {
        let row = lab.ended(*id).await;
        assert_eq!(row.status, Status::Done, "{}", lab.standing(*id).await);
        assert_eq!(
            lab.committed(*id).await,
            steps,
            "{}",
            lab.standing(*id).await
        );
        let kinds = lab.kinds(*id).await;
        assert_eq!(kinds.iter().filter(|kind| **kind == "done").count(), 1);
    }
}
