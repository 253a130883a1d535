//! What a collector of traces is told, after real work.

use std::sync::{Arc, Mutex};

use axum::routing::post;
use serde_json::{Value, json};

use crate::common::{Server, postgres, server};

/// Spans as a collector was sent them.
type Spans = Arc<Mutex<Vec<Value>>>;

/// A collector on a free port, and what it was sent.
async fn collector() -> (String, Spans) {
    let spans = Spans::default();
    let told = spans.clone();
    let take = move |axum::Json(sent): axum::Json<Value>| async move {
        let resources = sent["resourceSpans"].as_array().unwrap().clone();
        let scopes = resources
            .iter()
            .flat_map(|one| one["scopeSpans"].as_array().unwrap());
        let sent = scopes.flat_map(|one| one["spans"].as_array().unwrap().clone());
        told.lock().unwrap().extend(sent);
        axum::Json(json!({}))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().route("/v1/traces", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, spans)
}

async fn claim(server: &Server, worker: &str) -> Value {
    let ask = json!({"worker": worker, "queue": "default", "machines": [{"name": "m", "version": 1}], "wait_ms": 10_000, "lease_ms": 1_000});
    let (status, mut claimed) = server.post("/v1/workers/claim", &ask).await;
    assert_eq!(status, 200, "{claimed}");
    claimed["claims"][0].take()
}

async fn commit(server: &Server, worker: &str, claim: &Value, outcome: Value) {
    let outcomes = json!([{"claim": claim["claim"], "outcome": outcome}]);
    let (_, told) = server
        .post(
            "/v1/workers/commit",
            &json!({"worker": worker, "outcomes": outcomes}),
        )
        .await;
    assert_eq!(told["results"][0]["status"], "committed", "{told}");
}

/// The one span of that name and outcome.
fn one<'a>(spans: &'a [Value], name: &str, outcome: Option<&str>) -> &'a Value {
    let found: Vec<&Value> = spans
        .iter()
        .filter(|span| span["name"] == name && attribute(span, "abide.outcome") == outcome)
        .collect();
    assert_eq!(found.len(), 1, "{name} {outcome:?} in {spans:#?}");
    found[0]
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let found = span["attributes"].as_array()?.iter();
    found.clone().find(|one| one["key"] == key)?["value"]["stringValue"].as_str()
}

fn links(span: &Value) -> Vec<&Value> {
    let links = span["links"].as_array();
    links.map_or_else(Vec::new, |links| {
        links.iter().map(|link| &link["spanId"]).collect()
    })
}

async fn each_attempt_is_one_closed_span_linked_to_what_woke_it(setup: crate::common::Setup) {
    let (endpoint, spans) = collector().await;
    let mut server = setup.set("otel_endpoint", &endpoint).start();
    let start = json!({"machine": "m", "version": 1, "key": "a", "step": "begin", "state": 0});
    assert_eq!(server.post("/v1/instances", &start).await.0, 201);

    // The first worker vanishes: its lease runs out, and another makes the next attempt.
    claim(&server, "lost").await;
    let second = claim(&server, "w").await;
    assert_eq!(
        (&second["attempt"], &second["cause"]),
        (&json!(1), &json!("reclaim"))
    );
    let wait = json!({"wait": {"signals": ["go"], "next": "end", "state": 1}});
    commit(&server, "w", &second, wait).await;

    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let signal = server.http.post(server.at("/v1/instances/a/signals/go"));
    let signal = signal
        .header("traceparent", CALLER)
        .json(&json!({"payload": 1}));
    assert_eq!(signal.send().await.unwrap().status(), 202);
    let third = claim(&server, "w").await;
    commit(&server, "w", &third, json!({"stop": {"reason": "enough"}})).await;

    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "{}", server.log());
    let spans = spans.lock().unwrap().clone();
    let run = one(&spans, "m", None);
    let lost = one(&spans, "m begin", Some("lost"));
    let parked = one(&spans, "m begin", Some("wait"));
    let sent = one(&spans, "signal go", None);
    let stopped = one(&spans, "m end", Some("stop"));
    assert_eq!(spans.len(), 5, "{spans:#?}");

    for span in [lost, parked, sent, stopped] {
        assert_eq!(span["traceId"], run["traceId"]);
        assert_eq!(span["parentSpanId"], run["spanId"]);
        assert!(span["endTimeUnixNano"].as_str() >= span["startTimeUnixNano"].as_str());
    }
    assert_eq!(
        links(parked),
        [&lost["spanId"]],
        "it follows the attempt before it"
    );
    assert_eq!(links(stopped), [&sent["spanId"]], "the signal woke it");
    assert_eq!(
        links(sent),
        [&json!("b7ad6b7169203331")],
        "the sender's own span"
    );
    assert_eq!(attribute(stopped, "abide.cause"), Some("signal"));
    assert_eq!(stopped["status"]["message"], "enough");
    assert_eq!(attribute(parked, "abide.worker"), Some("w"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_is_one_closed_span_linked_to_what_woke_it_on_sqlite() {
    each_attempt_is_one_closed_span_linked_to_what_woke_it(server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_is_one_closed_span_linked_to_what_woke_it_on_postgres() {
    each_attempt_is_one_closed_span_linked_to_what_woke_it(server().over(postgres())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_the_servers_own_engine_are_told_of_too() {
    let (endpoint, spans) = collector().await;
    let mut server = server().set("otel_endpoint", &endpoint).start();
    let graph = json!({"steps": [{"name": "nap", "sleep": {"duration_ms": 1}}]});
    assert_eq!(server.put("/v1/graphs/g", &graph).await.0, 200);
    let (status, run) = server.post("/v1/instances", &json!({"graph": "g"})).await;
    assert_eq!(status, 201, "{run}");
    let result = format!("/v1/instances/{}/result?wait_ms=20000", run["id"]);
    assert_eq!(server.get(&result).await.0, 200);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "{}", server.log());
    let spans = spans.lock().unwrap().clone();
    let whole = one(&spans, "graph/g", None);
    let turns = spans
        .iter()
        .filter(|span| attribute(span, "abide.outcome") == Some("workflow"));
    let turns: Vec<&Value> = turns.collect();
    assert!(!turns.is_empty(), "{spans:#?}");
    for turn in turns {
        assert_eq!(turn["parentSpanId"], whole["spanId"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_disturbs_nobody() {
    let mut server = server().set("otel_endpoint", "http://127.0.0.1:9").start();
    let start = json!({"machine": "m", "version": 1, "state": 0});
    assert_eq!(server.post("/v1/instances", &start).await.0, 201);
    let claimed = claim(&server, "w").await;
    commit(&server, "w", &claimed, json!({"done": {"result": 1}})).await;
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "{}", server.log());
}
