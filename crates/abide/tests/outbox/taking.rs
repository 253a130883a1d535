//! Requests that are inserted are carried out once, in order, when their transaction commits.

use std::time::{Duration, Instant};

use abide::Graph;
use abide::store::EventFilter;
use abide::time::{hours, millis};

use super::*;
use crate::outbox::caller::connect;

on_both! {
async fn every_kind_of_request_is_carried_out_with_the_rows_that_it_was_committed_with(lab: Lab, caller: Caller) {
    // rule 17.3
    let engine = engine(&lab).await;
    caller.begin().await;
    caller.sql("insert into orders values (42)").await;
    caller.insert(&start("order:42", json!("wait"))).await;
    // What is inserted later may speak of what was inserted before, in the same transaction.
    caller.insert(&signal("order:42", 1)).await;
    caller.insert(r#"{"publish": {"type": "placed", "payload": {"order": 42}, "event_id": "e1"}}"#).await;
    caller.insert(&start("order:43", json!("wait"))).await;
    caller.insert(r#"{"cancel": {"target": "order:43", "reason": "sold out"}}"#).await;
    caller.insert(
        r#"{"signal_with_start": {"start": {"machine": "script", "key": "order:44", "state": "wait"}, "name": "paid", "payload": 7}}"#,
    ).await;
    caller.insert(r#"{"start": {"machine": "script", "key": "order:45", "reserve": true}}"#).await;
    caller.insert(&start("order:46", json!("run"))).await;
    assert_eq!(lab.get("order:42").await.unwrap(), None, "not before it commits");
    caller.sql("commit").await;

    assert_eq!(until(&lab, "order:46", Status::Done).await.result.unwrap().as_str(), "\"run\"");
    until(&lab, "order:42", Status::AwaitingSignal).await;
    assert_eq!(payloads(&lab, "order:42").await, [json!(1)]);
    let cancelled = until(&lab, "order:43", Status::Cancelled).await;
    assert_eq!(cancelled.last_error.as_deref(), Some("sold out"));
    assert_eq!(payloads(&lab, "order:44").await, [json!(7)]);
    until(&lab, "order:45", Status::Reserved).await;
    let store = lab.store().await;
    let events = store.events(&EventFilter::default(), None, 9).await.unwrap().items;
    assert_eq!(events[0].payload.as_str(), r#"{"order": 42}"#, "as it was written");
    until_taken(&lab).await;
    assert_eq!(lab.outbox_depth().await.unwrap(), Default::default());

    let record = lab.commands("order:42", None, 1).await.unwrap().items.remove(0);
    let source = record.source.unwrap();
    match caller {
        Caller::Sqlite(_) => assert_eq!(source, "outbox"),
        Caller::Postgres(_) => assert!(source.starts_with("outbox:"), "{source}"),
    }
    engine.shutdown().await;
}}

on_both! {
async fn what_is_rolled_back_never_was(lab: Lab, caller: Caller) {
    // rule 17.3
    let engine = engine(&lab).await;
    caller.begin().await;
    caller.insert(&start("never", json!(1))).await;
    caller.sql("rollback").await;
    caller.begin().await;
    caller.sql("savepoint s").await;
    caller.insert(&start("never", json!(2))).await;
    caller.sql("rollback to s").await;
    caller.insert(&start("order:1", json!(3))).await;
    caller.sql("commit").await;
    until(&lab, "order:1", Status::Done).await;
    assert_eq!((lab.get("never").await.unwrap(), count(&lab).await), (None, 1));
    engine.shutdown().await;
}}

on_both! {
async fn requests_of_one_caller_are_taken_in_the_order_in_which_they_were_inserted(lab: Lab, caller: Caller) {
    // rule 17.3: in a transaction, and from one that was committed to the next.
    let engine = engine(&lab).await;
    caller.insert(&start("order:1", json!("wait"))).await;
    for transaction in 0..20 {
        caller.begin().await;
        for n in 0..15 {
            caller.insert(&signal("order:1", transaction * 15 + n)).await;
        }
        caller.sql("commit").await;
    }
    until_taken(&lab).await;
    let expected: Vec<Value> = (0..300).map(|n| json!(n)).collect();
    assert_eq!(payloads(&lab, "order:1").await, expected);
    engine.shutdown().await;
}}

on_both! {
async fn requests_wait_until_somebody_takes_them(lab: Lab, caller: Caller) {
    // rule 17.3
    caller.insert(&start("order:1", json!("later"))).await;
    caller.insert(&signal("order:1", 1)).await;
    let depth = lab.outbox_depth().await.unwrap();
    assert_eq!((depth.waiting, depth.refused), (2, 0));
    let age = lab.store().await.clock().now().as_micros() - depth.oldest.unwrap().as_micros();
    assert!((-60_000_000..3_600_000_000).contains(&age), "{age}");
    let engine = engine(&lab).await;
    until(&lab, "order:1", Status::Done).await;
    engine.shutdown().await;
}}

on_both! {
async fn engines_that_take_at_the_same_time_take_each_request_once_and_keep_the_order(lab: Lab, caller: Caller) {
    // rule 17.3
    let mut engines = Vec::new();
    for _ in 0..3 {
        engines.push(engine(&lab).await);
    }
    let mut callers = Vec::new();
    for number in 0..4_u32 {
        let mut caller = Caller::new(&lab).await;
        callers.push(tokio::spawn(async move {
            let key = format!("order:{number}");
            caller.insert(&start(&key, json!("wait"))).await;
            for transaction in 0..10 {
                caller.begin().await;
                for n in 0..10 {
                    caller.insert(&signal(&key, transaction * 10 + n)).await;
                }
                caller.insert(r#"{"start": {"machine": "script", "state": 0}}"#).await;
                caller.sql("commit").await;
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    until_taken(&lab).await;
    let expected: Vec<Value> = (0..100).map(|n| json!(n)).collect();
    for number in 0..4 {
        assert_eq!(payloads(&lab, &format!("order:{number}")).await, expected);
    }
    assert_eq!(count(&lab).await, 4 + 40);
    assert_eq!(lab.outbox_depth().await.unwrap().refused, 0);
    drop(caller);
    for engine in engines {
        engine.shutdown().await;
    }
}}

on_both! {
async fn an_engine_that_is_killed_leaves_every_request_to_be_carried_out_once(lab: Lab, caller: Caller) {
    // rules 1.1, 17.3
    const REQUESTS: usize = 900;
    caller.insert_starts(REQUESTS).await;
    for kill in 1..=3 {
        let killable = lab.killable(|engine| engine.poll(hours(1)).machine(script())).await;
        let left = REQUESTS - kill * REQUESTS / 5;
        let table = caller.table("outbox");
        eventually("some requests to be taken", async || {
            caller.number(&format!("select count(*) from {table}")).await <= left as i64
        })
        .await;
        killable.die().await;
    }
    caller.insert_starts(REQUESTS / 10).await;
    let engine = engine(&lab).await;
    until_taken(&lab).await;
    assert_eq!(count(&lab).await, REQUESTS + REQUESTS / 10);
    engine.shutdown().await;
}}

on_both! {
async fn a_graph_is_started_by_its_name(lab: Lab, caller: Caller) {
    // rule 17.3
    let engine = engine(&lab).await;
    caller.insert(r#"{"start": {"graph": "trip", "key": "trip:1", "input": {"to": "Ōsaka"}}}"#).await;
    eventually("the graph to be refused", async || {
        lab.outbox_depth().await.unwrap().refused == 1
    })
    .await;
    let refused = lab.refused_requests(None, 9).await.unwrap().items;
    assert_eq!(refused[0].problem.reason, "unknown_graph");
    let graph = Graph::from_json(r#"{"name": "trip", "steps": [{"name": "book", "task": "book"}]}"#, &[]);
    lab.keep_graph(&graph.unwrap()).await.unwrap();
    assert_eq!(lab.retry_refused(&[refused[0].id]).await.unwrap(), 1);
    eventually("the graph to be started", async || lab.get("trip:1").await.unwrap().is_some()).await;
    assert_eq!(lab.outbox_depth().await.unwrap().refused, 0);
    engine.shutdown().await;
}}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_commits_after_those_behind_it_is_not_skipped() {
    // rule 17.3: an id is given out when a row is inserted, and others commit first.
    let lab = Lab::postgres().await;
    let engine = engine(&lab).await;
    let (mut slow, mut quick) = (Caller::new(&lab).await, Caller::new(&lab).await);
    slow.begin().await;
    slow.insert(&start("slow", json!(1))).await;
    for n in 0..3 {
        let key = format!("quick:{n}");
        quick.insert(&start(&key, json!(n))).await;
        until(&lab, &key, Status::Done).await;
    }
    assert_eq!(lab.get("slow").await.unwrap(), None);
    slow.sql("commit").await;
    until(&lab, "slow", Status::Done).await;
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_insert_requests_needs_no_other_permission() {
    // rule 17.3
    let lab = Lab::postgres().await;
    let engine = engine(&lab).await;
    let owner = connect(lab.url()).await;
    let role = format!("app_{}", std::process::id());
    // Roles are of the whole server, and other tests run on it.
    let grants = format!(
        "drop role if exists {role}; create role {role}; grant usage on schema abide to {role}; \
         grant insert (request) on abide.outbox to {role}"
    );
    owner.batch_execute(&grants).await.unwrap();
    let mut app = Caller::new(&lab).await;
    app.sql(&format!("set session authorization {role}")).await;
    app.insert(&start("order:1", json!("wait"))).await;
    app.insert(&signal("order:1", 1)).await;
    for forbidden in [
        "select request from abide.outbox",
        "delete from abide.outbox",
        "update abide.outbox set request = ''",
        "insert into abide.outbox (request, role) values ('', 'other')",
        "select * from abide.outbox_refused",
        "select * from abide.instances",
    ] {
        let error = app.try_sql(forbidden).await.unwrap_err();
        assert!(error.contains("permission denied"), "{forbidden}: {error}");
    }
    until_taken(&lab).await;
    let record = lab
        .commands("order:1", None, 1)
        .await
        .unwrap()
        .items
        .remove(0);
    assert_eq!(record.source, Some(format!("outbox:{role}")));
    app.sql("reset session authorization").await;
    let drop = format!("drop owned by {role}; drop role {role}");
    owner.batch_execute(&drop).await.unwrap();
    engine.shutdown().await;
}

/// Without a notification rows are found by looking for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_nobody_notifies_of_is_taken_within_about_a_second() {
    // rule 17.3
    let lab = Lab::postgres().await;
    let mut caller = Caller::new(&lab).await;
    let engine = engine(&lab).await;
    let mut fastest = Duration::MAX;
    for n in 0..5 {
        // Not at a moment that depends on when the last one was taken.
        tokio::time::sleep(millis(130 * n)).await;
        let key = format!("order:{n}");
        let began = Instant::now();
        caller.insert(&start(&key, json!("run"))).await;
        until(&lab, &key, Status::Done).await;
        fastest = fastest.min(began.elapsed());
    }
    assert!(fastest < millis(1_500), "the fastest took {fastest:?}");
    engine.shutdown().await;
}
