//! Spans that a collector of traces receives, after real work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Version};
use axum::routing::post;
use http_body_util::StreamBody;
use hyper::body::Frame;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use prost::Message;
use serde_json::{Value, json};

use crate::common::{Server, postgres, server};

/// Spans as a collector was sent them.
type Spans = Arc<Mutex<Vec<Value>>>;

/// A collector on a free port, and what it was sent.
async fn collector() -> (String, Spans) {
    let spans = Spans::default();
    let received = spans.clone();
    let take = move |axum::Json(sent): axum::Json<Value>| async move {
        let resources = sent["resourceSpans"].as_array().unwrap().clone();
        let scopes = resources
            .iter()
            .flat_map(|one| one["scopeSpans"].as_array().unwrap());
        let sent = scopes.flat_map(|one| one["spans"].as_array().unwrap().clone());
        received.lock().unwrap().extend(sent);
        axum::Json(json!({}))
    };
    let address = listen(axum::Router::new().route("/v1/traces", post(take))).await;
    (address, spans)
}

/// Serves on a free port.
async fn listen(router: axum::Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Requests that a collector received in protobuf, over HTTP or gRPC: the headers and the message of each.
type Exports = Arc<Mutex<Vec<(HeaderMap, ExportTraceServiceRequest)>>>;

/// A collector of protobuf, that answers at these paths: over HTTP/1.1 it is given the message, over gRPC (HTTP/2) a frame.
async fn protobuf_collector() -> (String, Exports) {
    const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let exports = Exports::default();
    let (over_http, over_grpc) = (exports.clone(), exports.clone());
    let by_http = move |headers: HeaderMap, body: Bytes| async move {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let sent = ExportTraceServiceRequest::decode(body).unwrap();
        over_http.lock().unwrap().push((headers, sent));
    };
    let by_grpc = move |version: Version, headers: HeaderMap, body: Bytes| async move {
        assert_eq!(version, Version::HTTP_2);
        assert_eq!(headers["content-type"], "application/grpc");
        assert_eq!((body[0], &headers["te"]), (0, &"trailers".parse().unwrap()));
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
        assert_eq!(body.len(), 5 + length as usize);
        let sent = ExportTraceServiceRequest::decode(body.slice(5..)).unwrap();
        over_grpc.lock().unwrap().push((headers, sent));
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [
            Frame::data(Bytes::from_static(&[0; 5])),
            Frame::trailers(trailers),
        ];
        let frames = futures_util::stream::iter(frames.map(Ok::<_, std::io::Error>));
        let answer = Body::new(StreamBody::new(frames));
        ([("content-type", "application/grpc")], answer)
    };
    let router = axum::Router::new()
        .route("/v1/traces", post(by_http.clone()))
        .route("/custom", post(by_http))
        .route(METHOD, post(by_grpc));
    (listen(router).await, exports)
}

/// The resource and the names of the spans of all that was exported.
fn exported(exports: &Exports) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut resource, mut names) = (BTreeMap::new(), Vec::new());
    for (_, sent) in exports.lock().unwrap().iter() {
        for one in &sent.resource_spans {
            for attribute in &one.resource.as_ref().unwrap().attributes {
                let value = attribute.value.clone().unwrap().value;
                if let Some(any_value::Value::StringValue(text)) = value {
                    resource.insert(attribute.key.clone(), text);
                }
            }
            let spans = one.scope_spans.iter().flat_map(|scope| &scope.spans);
            names.extend(spans.map(|span| span.name.clone()));
        }
    }
    names.sort_unstable();
    (resource, names)
}

/// Does one step on a server, and stops it.
async fn work(mut server: Server) -> String {
    let start = json!({"machine": "m", "version": 1, "key": "a", "step": "begin", "state": 0});
    assert_eq!(server.post("/v1/instances", &start).await.0, 201);
    let claimed = claim(&server, "w").await;
    commit(&server, "w", &claimed, json!({"done": {"result": 1}})).await;
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "{}", server.log());
    server.log()
}

const WORKED: [&str; 2] = ["m", "m begin"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standard_variables_say_where_traces_go_over_http() {
    let (collector, exports) = protobuf_collector().await;
    let setup = server()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret%20one,x-two=2")
        .env("OTEL_SERVICE_NAME", "orders")
        .env(
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test,service.namespace=shop",
        );
    work(setup.start()).await;
    let (resource, names) = exported(&exports);
    assert_eq!(names, WORKED);
    for (key, value) in [
        ("service.name", "orders"),
        ("service.namespace", "shop"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("deployment.environment.name", "test"),
    ] {
        assert_eq!(resource.get(key).map(String::as_str), Some(value), "{key}");
    }
    let (headers, _) = exports.lock().unwrap()[0].clone();
    assert_eq!(
        (&headers["x-key"], &headers["x-two"]),
        (&"secret one".parse().unwrap(), &"2".parse().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standard_variables_say_where_traces_go_over_grpc() {
    let (collector, exports) = protobuf_collector().await;
    let setup = server()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector)
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .env(
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
            "authorization=Bearer t",
        );
    let log = work(setup.start()).await;
    let (resource, names) = exported(&exports);
    assert_eq!(names, WORKED, "{log}");
    assert_eq!(resource["service.name"], "abide");
    let (headers, _) = exports.lock().unwrap()[0].clone();
    assert_eq!(headers["authorization"], "Bearer t");
    assert!(!log.contains("cannot be sent"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_abide_go_before_the_standard_variables() {
    let (collector, exports) = protobuf_collector().await;
    let setup = server()
        .set("otel_endpoint", &collector)
        .set("otel_protocol", "grpc")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    work(setup.start()).await;
    assert_eq!(exported(&exports).1, WORKED);
    assert!(exports.lock().unwrap()[0].0.contains_key("te"), "over gRPC");

    // The endpoint of traces is taken as it is.
    let (collector, exports) = protobuf_collector().await;
    let setup = server()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        .env(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            &format!("{collector}/custom"),
        );
    work(setup.start()).await;
    assert_eq!(exported(&exports).1, WORKED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_are_turned_off_and_sampled_as_the_standard_variables_say() {
    let (collector, exports) = protobuf_collector().await;
    for (name, value) in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ] {
        let setup = server().env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector);
        work(setup.env(name, value).start()).await;
        assert!(exported(&exports).1.is_empty(), "{name}");
    }
    // A variable that makes no sense does not keep a server from starting; a setting of its own does.
    let setup = server().env("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense");
    let log = work(setup.start()).await;
    assert!(log.contains("no traces are sent"), "{log}");
    let home = crate::common::home();
    let refused = crate::common::abide(home.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--set"])
        .arg("otel_endpoint=nonsense")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

async fn claim(server: &Server, worker: &str) -> Value {
    let body = json!({"worker": worker, "queue": "default", "machines": [{"name": "m", "version": 1}], "wait_ms": 10_000, "lease_ms": 1_000});
    let (status, mut claimed) = server.post("/v1/workers/claim", &body).await;
    assert_eq!(status, 200, "{claimed}");
    claimed["claims"][0].take()
}

async fn commit(server: &Server, worker: &str, claim: &Value, outcome: Value) {
    let outcomes = json!([{"claim": claim["claim"], "outcome": outcome}]);
    let (_, reply) = server
        .post(
            "/v1/workers/commit",
            &json!({"worker": worker, "outcomes": outcomes}),
        )
        .await;
    assert_eq!(reply["results"][0]["status"], "committed", "{reply}");
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
    let mut server = setup
        .set("otel_endpoint", &endpoint)
        .set("otel_protocol", "http/json")
        .start();
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
async fn steps_of_the_servers_own_engine_have_spans_too() {
    let (endpoint, spans) = collector().await;
    let mut server = server()
        .set("otel_endpoint", &endpoint)
        .set("otel_protocol", "http/json")
        .start();
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
async fn a_collector_that_is_away_does_not_disturb_the_server() {
    let mut server = server().set("otel_endpoint", "http://127.0.0.1:9").start();
    let start = json!({"machine": "m", "version": 1, "state": 0});
    assert_eq!(server.post("/v1/instances", &start).await.0, 201);
    let claimed = claim(&server, "w").await;
    commit(&server, "w", &claimed, json!({"done": {"result": 1}})).await;
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "{}", server.log());
}
