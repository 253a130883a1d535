//! Events in a file that others write to as well: the caller's own transaction, what is there after the file was closed,
//! and what is forgotten.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Database, audit, claimed, commit, name, run, start_one, worker};
use abide_core::model::{
    Cause, Committed, Condition, EventWait, InstanceId, Json, Operator, Outcome, Path, Publish,
    Published, Status, Wait, WorkerId,
};
use abide_kernel::{Answer, Clock, EventFilter, Op, Store, SweepRequest, WaiterFilter};
use abide_sqlite::Sqlite;
use abide_sqlite::rusqlite::TransactionBehavior;

const LEASE: Duration = Duration::from_secs(3600);

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn publish(event_id: Option<&str>, payload: &str) -> Publish {
    Publish {
        event_type: name("paid"),
        payload: json(payload),
        event_id: event_id.map(name),
    }
}

fn published(answer: Answer) -> Vec<Published> {
    match answer {
        Answer::Published(all) => all.into_iter().map(Result::unwrap).collect(),
        other => panic!("{other:?}"),
    }
}

/// Starts one and has it wait for the event that says one of these of its order.
async fn parked(store: &dyn Store, worker: WorkerId, orders: &str) -> InstanceId {
    let id = start_one(store).await;
    let one = claimed(store, worker, 1).await.remove(0);
    assert_eq!(one.claim.id(), id);
    let wait = EventWait {
        event_type: name("paid"),
        conditions: vec![Condition {
            left: Path::new("order").unwrap(),
            op: Operator::In,
            right: json(orders),
        }],
        lookback_ms: None,
    };
    let outcome = Outcome::Wait(Wait {
        signals: Vec::new(),
        events: vec![wait],
        timeout_ms: Some(60_000),
        next: name("go"),
        state: Json::null(),
    });
    let moved = commit(store, one.claim, outcome).await;
    assert_eq!(moved, Committed::Moved(Status::AwaitingSignal));
    id
}

async fn closed(database: &Database, store: Arc<Sqlite>) {
    store.close().await;
    drop(audit::Audit {
        path: database.path(),
        held: (),
    });
}

#[tokio::test]
async fn waiters_are_there_after_the_file_was_closed_and_are_woken_in_the_hosts_own_transaction() {
    // rules 14.1, 14.4, 14.7 and 17.1
    let database = Database::new();
    let store = database.open();
    let worker_id = worker(&*store, "w", LEASE).await;
    let one = parked(&*store, worker_id, "[1, \"2\", 1.0]").await;
    let other = parked(&*store, worker_id, "[3]").await;
    closed(&database, store).await;

    let store = database.open();
    let all = WaiterFilter::default();
    let found = store.waiters(&all, None, 9).await.unwrap().items;
    // Listed once, though it has two entries in the index.
    let ids: Vec<InstanceId> = found.iter().map(|waiter| waiter.instance).collect();
    assert_eq!(ids, [one, other]);
    assert_eq!(found[0].conditions[0].right, json("[1, \"2\", 1.0]"));
    let page = store.waiters(&all, None, 1).await.unwrap();
    assert_eq!(page.next, Some((one, 0)));
    let page = store.waiters(&all, page.next, 1).await.unwrap();
    assert_eq!((page.items[0].instance, page.next), (other, None));

    let mut conn = database.connect();
    let txn = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let events = vec![
        publish(Some("a"), "{\"order\":2}"),
        publish(Some("a"), "{\"order\":3}"),
    ];
    let answers = store.run_within(&txn, &[Op::Publish(events.clone())]);
    let published = published(answers.unwrap().remove(0));
    assert_eq!((published[0].matched, published[0].duplicate), (1, false));
    assert_eq!((published[1].matched, published[1].duplicate), (0, true));
    txn.rollback().unwrap();
    assert_eq!(store.waiters(&all, None, 9).await.unwrap().items.len(), 2);

    let txn = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    store.run_within(&txn, &[Op::Publish(events)]).unwrap();
    txn.commit().unwrap();
    let claimed = claimed(&*store, worker_id, 9).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(
        (claimed[0].claim.id(), claimed[0].cause),
        (one, Cause::Event)
    );
    assert_eq!(claimed[0].awaits.len(), 1);
    assert_eq!(claimed[0].awaited[0].arguments, json("[{\"order\":2}]"));
    let left = store.waiters(&all, None, 9).await.unwrap().items;
    assert_eq!(left.len(), 1);
    closed(&database, store).await;
}

#[tokio::test]
async fn events_are_listed_and_forgotten_and_no_sequence_number_is_given_twice() {
    // rules 14.1 and 16.2
    let database = Database::new();
    let (store, clock) = database.clocked();
    let ids = ["a", "b", "c"];
    let all = ids.map(|id| publish(Some(id), "null")).to_vec();
    let first = published(run(&*store, Op::Publish(all.clone())).await);
    let other = EventFilter {
        event_type: Some(name("other")),
    };
    let of_type = EventFilter {
        event_type: Some(name("paid")),
    };
    assert_eq!(store.events(&other, None, 9).await.unwrap().items, []);
    for filter in [&of_type, &EventFilter::default()] {
        let page = store.events(filter, None, 2).await.unwrap();
        let found: Vec<&str> = page.items.iter().map(|one| one.event_id.as_str()).collect();
        assert_eq!(found, ["c", "b"]);
        let page = store.events(filter, page.next, 2).await.unwrap();
        assert_eq!((page.items.len(), page.next), (1, None));
    }
    clock.advance(Duration::from_secs(10));
    let sweep = Op::Sweep(SweepRequest {
        before: clock.now(),
        after: None,
        limit: 9,
    });
    run(&*store, sweep).await;
    assert_eq!(store.events(&of_type, None, 9).await.unwrap().items, []);
    let again = published(run(&*store, Op::Publish(all)).await);
    assert!(again.iter().all(|one| !one.duplicate));
    assert!(again[0].sequence > first[2].sequence);
    closed(&database, store).await;
}
