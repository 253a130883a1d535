//! Events that are published inside a transaction of the caller's own.

use abide::message::eq;
use abide::store::EventFilter;
use abide::time::hours;
use abide::{Abide, Event, done};
use serde_json::{Value, json};

use super::waiting::until_standing;
use crate::common::{At, Lab, Script};

async fn engine(lab: &Lab) -> abide::engine::Engine {
    let code = Script::new(|at, ctx| match at {
        At::One => ctx
            .wait_for_event(Event::new("tick").matching("n", eq(1)))
            .timeout(hours(1))
            .then(At::Two),
        _ => done(json!(ctx.event::<Value>()?)),
    });
    let engine = lab.engine().poll(hours(1)).machine(code);
    engine.start().await.unwrap()
}

async fn count(lab: &Lab) -> usize {
    let page = Abide::events(lab, &EventFilter::default(), None, 100).await;
    page.unwrap().items.len()
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_callers_rows_or_not_at_all_on_sqlite() {
    // rules 14.1 and 17.1
    use abide::sqlite::rusqlite::{Connection, TransactionBehavior};
    let lab = Lab::sqlite().await;
    let engine = engine(&lab).await;
    let run = lab.start(Script::any(), json!(null)).await.unwrap();
    until_standing(&lab, 1).await;
    let mut mine = Connection::open(lab.url().trim_start_matches("sqlite:")).unwrap();
    mine.busy_timeout(abide::time::secs(10)).unwrap();
    for commits in [false, true] {
        let transaction = mine
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        let publish = lab.publish("tick", &json!({"n": 1})).event_id("e");
        let published = publish.within(&transaction).unwrap();
        assert_eq!((published.matched, published.duplicate), (1, false));
        assert_eq!(count(&lab).await, 0, "it is not visible before");
        if commits {
            transaction.commit().unwrap();
        } else {
            transaction.rollback().unwrap();
            assert_eq!(count(&lab).await, 0);
            until_standing(&lab, 1).await;
        }
    }
    assert_eq!(lab.came_to(&run).await, json!({"n": 1}));
    until_standing(&lab, 0).await;
    engine.shutdown().await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_callers_rows_or_not_at_all_on_postgres() {
    // rules 14.1 and 17.1
    use abide::postgres::tokio_postgres::{NoTls, connect};
    let lab = Lab::postgres().await;
    let engine = engine(&lab).await;
    let run = lab.start(Script::any(), json!(null)).await.unwrap();
    until_standing(&lab, 1).await;
    let (mut mine, driver) = connect(lab.url(), NoTls).await.unwrap();
    tokio::spawn(driver);
    for commits in [false, true] {
        let transaction = mine.transaction().await.unwrap();
        let publish = lab.publish("tick", &json!({"n": 1})).event_id("e");
        let published = publish.within(&transaction).await.unwrap();
        assert_eq!((published.matched, published.duplicate), (1, false));
        assert_eq!(count(&lab).await, 0, "it is not visible before");
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
            assert_eq!(count(&lab).await, 0);
            until_standing(&lab, 1).await;
        }
    }
    assert_eq!(lab.came_to(&run).await, json!({"n": 1}));
    until_standing(&lab, 0).await;
    engine.shutdown().await;
}
