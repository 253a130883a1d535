//! Looking back in a file that others write to as well: the caller's own transaction, and what is forgotten.

use std::time::Duration;

use crate::common::{Database, audit, claimed, commit, done, name, run, start_one, worker};
use abide_core::model::{
    Committed, Condition, EventWait, Json, Operator, Outcome, Path, Publish, Status, Wait, WorkerId,
};
use abide_kernel::{Clock, Op, Store, SweepRequest};
use abide_sqlite::rusqlite::{Connection, TransactionBehavior};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn publish(event_id: &str, order: u32) -> Publish {
    Publish {
        event_type: name("paid"),
        payload: json(&format!("{{\"order\":{order}}}")),
        event_id: Some(name(event_id)),
    }
}

/// The event that woke a wait that looks back for an order, if any did.
async fn found(store: &dyn Store, worker: WorkerId, order: &str) -> Option<String> {
    start_one(store).await;
    let one = claimed(store, worker, 1).await.remove(0);
    let wait = EventWait {
        event_type: name("paid"),
        conditions: vec![Condition {
            left: Path::new("order").unwrap(),
            op: Operator::Eq,
            right: json(order),
        }],
        lookback_ms: Some(86_400_000),
    };
    let outcome = Outcome::Wait(Wait {
        signals: Vec::new(),
        events: vec![wait],
        timeout_ms: Some(60_000),
        next: name("go"),
        state: Json::null(),
    });
    let moved = commit(store, one.claim, outcome).await;
    if moved == Committed::Moved(Status::AwaitingSignal) {
        return None;
    }
    let woken = claimed(store, worker, 1).await;
    let source = woken[0].awaited[0].source.clone();
    run(store, done(woken)).await;
    source
}

fn terms(conn: &Connection) -> Vec<String> {
    let sql = "select e.event_id || ' ' || t.value from abide_event_terms as t
               left join abide_events as e using (sequence) order by t.sequence, t.value";
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test]
async fn terms_are_written_with_their_events_and_go_with_them() {
    // rules 14.6, 16.2 and 17.1
    let database = Database::new();
    let (store, clock) = database.clocked();
    let worker_id = worker(&*store, "w", Duration::from_secs(86_400)).await;
    run(&*store, Op::Publish(vec![publish("a", 1)])).await;
    assert_eq!(found(&*store, worker_id, "1").await.as_deref(), Some("a"));
    let mut conn = database.connect();
    for commits in [false, true] {
        let own = conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        let ops = [Op::Publish(vec![publish("b", 2), publish("c", 2)])];
        store.run_within(&own, &ops).unwrap();
        match commits {
            true => own.commit().unwrap(),
            false => own.rollback().unwrap(),
        }
    }
    assert_eq!(terms(&conn), ["a d1", "b d2", "c d2"]);
    assert_eq!(found(&*store, worker_id, "2").await.as_deref(), Some("c"));
    clock.advance(Duration::from_secs(10));
    run(&*store, Op::Publish(vec![publish("d", 2)])).await;
    let sweep = |before| {
        Op::Sweep(SweepRequest {
            before,
            after: None,
            limit: 2,
        })
    };
    run(&*store, sweep(clock.now())).await;
    assert_eq!(terms(&conn), ["c d2", "d d2"]);
    clock.advance(Duration::from_secs(10));
    for _ in 0..2 {
        run(&*store, sweep(clock.now())).await;
    }
    assert!(terms(&conn).is_empty());
    let paths = "select count(*) from abide_event_paths";
    let left: i64 = conn.query_row(paths, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    store.close().await;
    drop(audit::Audit {
        path: database.path(),
        held: (),
    });
}
