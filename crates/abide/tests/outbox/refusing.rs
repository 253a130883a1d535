//! Requests that cannot be carried out are recorded for an operator, and delay nothing.

use std::sync::Arc;

use abide_kernel::{Op, SweepRequest};

use super::*;

on_both! {
async fn a_request_that_is_refused_holds_up_no_other_and_is_recorded(lab: Lab, caller: Caller) {
    // rules 1.4, 17.3
    let engine = engine(&lab).await;
    let large = format!(r#"{{"start": {{"machine": "script", "key": "large", "state": "{}"}}}}"#, "x".repeat(2 << 20));
    let deep = format!(r#"{{"start": {{"machine": "script", "key": "deep", "state": {}1{}}}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let bad = [
        ("", "bad_request", ""),
        ("{", "bad_request", ""),
        ("null", "bad_request", ""),
        ("[]", "bad_request", ""),
        (r#""start""#, "bad_request", ""),
        ("\u{feff}{}", "bad_request", ""),
        ("'; drop table orders; --", "bad_request", ""),
        (r#"{"stop": {}}"#, "bad_request", "stop"),
        (r#"{"start": {"machine": "script", "stat": 1}}"#, "bad_request", "stat"),
        (r#"{"start": {"machine": ""}}"#, "bad_request", "name"),
        (r#"{"start": {"machine": "a\u0000b"}}"#, "bad_request", "control"),
        (r#"{"start": {}}"#, "bad_start", "neither a machine nor a graph"),
        (r#"{"start": {"machine": "script", "version": 0}}"#, "bad_version", ""),
        (r#"{"start": {"machine": "script", "key": "order:0"}}"#, "duplicate", "nothing was started: key \"order:0\" is taken by instance "),
        (r#"{"signal": {"target": "missing", "name": "paid"}}"#, "no_target", "there is no instance with key \"missing\": start it first, or use `hold_for_ms`"),
        (r#"{"signal": {"target": "order:0", "name": "p", "payload": 1, "arguments": [1]}}"#, "bad_request", "not both"),
        (r#"{"cancel": {"target": 999999}}"#, "no_target", "there is no instance 999999"),
        (r#"{"cancel": {"target": "order:99"}}"#, "no_target", "there is no instance with key \"order:99\""),
        (r#"{"publish": {"payload": 1}}"#, "bad_request", "type"),
        (&large, "limit_exceeded", "state_bytes"),
        (&deep, "limit_exceeded", "json_depth"),
    ];
    caller.insert(&start("order:0", json!("wait"))).await;
    for (n, (request, _, _)) in bad.iter().enumerate() {
        caller.insert(request).await;
        caller.insert(&start(&format!("good:{n}"), json!(n))).await;
    }
    for n in 0..bad.len() {
        until(&lab, &format!("good:{n}"), Status::Done).await;
    }
    until_taken(&lab).await;
    let mut refused = lab.refused_requests(None, 100).await.unwrap().items;
    refused.reverse();
    assert_eq!(refused.len(), bad.len());
    for ((request, reason, part), refused) in bad.iter().zip(&refused) {
        assert_eq!(&refused.request, request, "as it was inserted");
        let problem = &refused.problem;
        assert_eq!(problem.reason, *reason, "{request}: {problem:?}");
        assert!(problem.problem.contains(part), "{request}: {problem:?}");
        assert!(refused.created_at <= refused.refused_at + secs(60));
    }
    assert_eq!(lab.outbox_depth().await.unwrap().refused, bad.len() as u64);

    // A page at a time, newest first; and each can be taken again or discarded.
    let mut pages = lab.refused_requests(None, 7).await.unwrap();
    let mut ids = Vec::new();
    loop {
        ids.extend(pages.items.iter().map(|one| one.id));
        let Some(next) = pages.next else { break };
        pages = lab.refused_requests(Some(next), 7).await.unwrap();
    }
    ids.reverse();
    assert_eq!(ids, refused.iter().map(|one| one.id).collect::<Vec<_>>());
    assert_eq!(lab.discard_refused(&ids[1..]).await.unwrap(), ids.len() - 1);
    assert_eq!(lab.discard_refused(&ids[1..]).await.unwrap(), 0);
    assert_eq!(lab.retry_refused(&ids).await.unwrap(), 1);
    eventually("it to be refused again", async || {
        let items = lab.refused_requests(None, 9).await.unwrap().items;
        items.len() == 1 && items[0].id > ids[0]
    })
    .await;
    engine.shutdown().await;
}}

on_both! {
async fn any_text_that_json_can_say_arrives_as_it_was_written(lab: Lab, caller: Caller) {
    // rule 17.3
    let engine = engine(&lab).await;
    let state = r#"{"nul": "\u0000", "emoji": "🦀\ud83e\udd80", "rtl": "שלום", "e": 1e400, "big": 123456789012345678901234567890, "q": "'\"\\"}"#;
    caller.insert(&format!(r#"{{"start": {{"machine": "other", "key": "ключ:日本語 🦀", "state": {state}}}}}"#)).await;
    until_taken(&lab).await;
    let found = lab.get("ключ:日本語 🦀").await.unwrap().unwrap();
    assert_eq!(found.state.as_str(), state);
    engine.shutdown().await;
}}

on_both! {
async fn a_request_that_the_database_will_not_store_holds_up_no_other(lab: Lab, caller: Caller) {
    // rules 1.4, 17.3: all of them are there before any is taken, so that they share a transaction.
    caller.poison_events("poison").await;
    for n in 0..20 {
        caller.insert(&start(&format!("good:{n}"), json!(n))).await;
        if n % 5 == 0 {
            caller.insert(r#"{"publish": {"type": "poison"}}"#).await;
        }
    }
    let engine = engine(&lab).await;
    for n in 0..20 {
        until(&lab, &format!("good:{n}"), Status::Done).await;
    }
    until_taken(&lab).await;
    let refused = lab.refused_requests(None, 9).await.unwrap().items;
    assert_eq!(refused.len(), 4);
    for one in refused {
        assert_eq!(one.problem.reason, "not_stored");
        assert!(one.problem.problem.contains("poisoned"), "{:?}", one.problem);
    }
    engine.shutdown().await;
}}

on_both! {
async fn a_request_that_is_too_large_is_refused_when_it_is_inserted(lab: Lab, caller: Caller) {
    // rules 16.3, 17.3
    let state = "x".repeat(16 << 20);
    let request = format!(r#"{{"start": {{"machine": "script", "state": "{state}"}}}}"#);
    assert!(caller.try_insert(&request).await.is_err());
    assert_eq!(lab.outbox_depth().await.unwrap().waiting, 0);
}}

on_both! {
async fn refused_requests_are_deleted_when_their_retention_is_over(lab: Lab, caller: Caller) {
    // rules 16.2, 17.3
    let engine = engine(&lab).await;
    for _ in 0..3 {
        caller.insert("{}").await;
    }
    eventually("them to be refused", async || lab.outbox_depth().await.unwrap().refused == 3).await;
    let store = lab.store().await;
    let sweep = |before| Arc::from([Op::Sweep(SweepRequest { before, after: None, limit: 2 })]);
    let now = store.clock().now();
    store.run(sweep(now - hours(1))).await.unwrap();
    assert_eq!(lab.outbox_depth().await.unwrap().refused, 3);
    store.run(sweep(now + hours(1))).await.unwrap();
    assert_eq!(lab.outbox_depth().await.unwrap().refused, 1, "a bounded number at a time");
    store.run(sweep(now + hours(1))).await.unwrap();
    assert_eq!(lab.outbox_depth().await.unwrap().refused, 0);
    engine.shutdown().await;
}}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_not_text_is_refused_by_sqlite_or_recorded() {
    // rule 17.3: SQLite checks neither that a text is UTF-8 nor that it ends where it does.
    let lab = Lab::sqlite().await;
    let engine = engine(&lab).await;
    let mut caller = Caller::new(&lab).await;
    for bad in ["x'7b7d'", "null"] {
        let sql = format!("insert into abide_outbox (request) values ({bad})");
        assert!(caller.try_sql(&sql).await.is_err(), "{bad}");
    }
    caller
        .sql(
            "insert into abide_outbox (request) values (cast(x'ff7b7d' as text)), (cast(x'7b00' as text)), (1)",
        )
        .await;
    caller.insert(&start("good", json!(1))).await;
    until(&lab, "good", Status::Done).await;
    assert_eq!(lab.refused_requests(None, 9).await.unwrap().items.len(), 3);
    engine.shutdown().await;
}
