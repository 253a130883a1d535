//! Housekeeping without delays: dead workers, leases that are renewed while all connections are busy, and sweeping.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{
    self, connect, database, one, open, register, start, start_all, until_blocked,
    with_one_connection,
};
use abide_kernel::conformance::sweeping::sweep_beside_starts;
use abide_kernel::model::{Cancel, Children, Contract, Contracted, Start};
use abide_kernel::{Answer, Op, Store, Target};
use abide_postgres::statements;
use abide_postgres::tokio_postgres::SimpleQueryMessage;
use serde_json::Value;

/// As many workers that died a minute ago.
const DEAD: &str = "\
insert into abide.workers (name, lease_until, started_at, queues, lane_machines, lane_versions) \
select 'dead' || i, now() - interval '1 minute', now() - interval '1 hour', '{}', '{}', '{}' \
from generate_series(1, $1::int) i";

#[tokio::test]
async fn dead_workers_cost_a_heartbeat_nothing() {
    // rule 5.3: they were kept for a day, and cost a statement each per heartbeat and engine.
    let url = abide_pgtest::server().fresh_database();
    let (store, client) = (open(&url).await, connect(&url).await);
    let living = register(&store, "living").await;
    start_all(&store, vec![start("m"); 20]).await;
    assert_eq!(common::claim(&store, living, &["m"], 20).await.len(), 20);
    client.execute(DEAD, &[&150_000_i32]).await.unwrap();
    client.batch_execute("analyze abide.workers").await.unwrap();
    let (_, sql) = statements::ALL
        .iter()
        .find(|(name, _)| *name == "dead_holders")
        .unwrap();
    let sql = format!(
        "explain (analyze, format json) {}",
        sql.replace("$1", "now()")
    );
    let messages = client.simple_query(&sql).await.unwrap();
    let text = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: Value = serde_json::from_str(text.unwrap()).unwrap();
    let rows = rows_of(&plan[0]["Plan"], "workers");
    assert!(rows <= 2.0, "{rows} rows of workers are read: {plan:#}");
    let begun = Instant::now();
    for _ in 0..20 {
        let answer = one(&store, Op::Reclaim { limit: 500 }).await;
        assert!(
            matches!(
                answer,
                Answer::Touched {
                    count: 0,
                    more: false
                }
            ),
            "{answer:?}"
        );
    }
    eprintln!(
        "taking back with 150,000 dead workers: {:?}",
        begun.elapsed() / 20
    );
    store.close().await;
}

/// Number of rows of a table that a plan has read.
fn rows_of(node: &Value, table: &str) -> f64 {
    let here = match node["Relation Name"] == table {
        true => {
            let each = node["Actual Rows"].as_f64().unwrap()
                + node["Rows Removed by Filter"].as_f64().unwrap_or(0.0);
            each * node["Actual Loops"].as_f64().unwrap()
        }
        false => 0.0,
    };
    let below = node["Plans"].as_array().into_iter().flatten();
    here + below.map(|node| rows_of(node, table)).sum::<f64>()
}

#[tokio::test]
async fn a_lease_is_renewed_while_all_connections_are_busy() {
    // rule 6.4
    let url = database();
    let store = Arc::new(with_one_connection(&url).await);
    let worker = register(&store, "w").await;
    let id = start_all(&store, vec![start("m")]).await[0].id();
    let mut foreign = connect(&url).await;
    let lock = foreign.transaction().await.unwrap();
    lock.execute(
        "select from abide.instances where id = $1 for update",
        &[&id.0],
    )
    .await
    .unwrap();
    let cancel = Cancel {
        target: Target::Id(id),
        reason: "it waits".into(),
        children: Children::Leave,
        force: true,
        source: None,
        claimed_source: None,
    };
    let waits = tokio::spawn({
        let store = store.clone();
        async move { store.run([Op::Cancel(vec![cancel])].into()).await }
    });
    until_blocked(&connect(&url).await, 1).await;
    let renew = Op::Renew {
        workers: vec![worker],
        lease: Duration::from_secs(10),
    };
    let renewed = tokio::time::timeout(Duration::from_secs(5), one(&store, renew)).await;
    let renewed = renewed.expect("the renewal waits for a connection");
    assert!(
        matches!(&renewed, Answer::Renewed { lost } if lost.is_empty()),
        "{renewed:?}"
    );
    lock.rollback().await.unwrap();
    waits.await.unwrap().unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_hundred_thousand_events_are_swept_and_no_request_waits() {
    // rule 16.2
    let url = database();
    let (store, client) = (Arc::new(open(&url).await), connect(&url).await);
    let events = "insert into abide.events (published_at, event_type, event_id, payload) \
        select now() - interval '30 days', 'old', i::text, '{\"some\":\"payload\"}' from generate_series(1, 100000) i";
    client.batch_execute(events).await.unwrap();
    sweep_beside_starts(store).await;
}

#[tokio::test]
async fn a_contract_is_stored_anew_by_who_needs_it_while_it_is_deleted() {
    // rule 16.2: an insert that does nothing on a conflict does not wait for the transaction that deletes the row.
    let url = database();
    let (store, client) = (Arc::new(open(&url).await), connect(&url).await);
    let given = || Start {
        contract: Contracted::Given(Box::default()),
        ..start("m")
    };
    start_all(&store, vec![given()]).await;
    let deletes =
        "update abide.definitions set used_at = 'epoch'; begin; delete from abide.definitions";
    client.batch_execute(deletes).await.unwrap();
    let starts = tokio::spawn({
        let store = store.clone();
        let op = Op::Start(vec![given()]);
        async move { one(&store, op).await }
    });
    until_blocked(&connect(&url).await, 1).await;
    client.batch_execute("commit").await.unwrap();
    assert!(matches!(starts.await.unwrap(), Answer::Started(each) if each[0].is_ok()));
    let stored = store.contract(Contract::default().id()).await.unwrap();
    assert!(stored.is_some());
}
