//! One call is one effect, whatever stands between the client and the server (rule 1.5).
//!
//! A proxy that answered 503 after the server had done the work once gave five instances from one `abide start`, and the
//! server's own `request_timeout_ms` gave three: every 503 was read as "nothing was written".

use std::time::Duration;

use abide::Abide;
use abide::message::Arguments;
use abide::model::Json;
use serde_json::{Value, json};

use crate::common::proxy::{Fault, Proxy};
use crate::common::{self, Over, PATIENCE, Server, answer, holding, postgres, server};

const FAULTS: [Fault; 5] = [
    Fault::Says(503, "<h1>Service Unavailable</h1>"),
    Fault::Says(502, "<h1>Bad Gateway</h1>"),
    Fault::Says(504, ""),
    Fault::Says(200, "<h1>Please log in</h1>"),
    Fault::Cut,
];

async fn instances(server: &Server) -> Vec<Value> {
    let (status, page) = server.get("/v1/instances").await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().unwrap().clone()
}

async fn sent(server: &Server, id: &str) -> usize {
    let (_, page) = server.get(&format!("/v1/instances/{id}/signals")).await;
    page["items"].as_array().map_or(0, Vec::len)
}

/// A request with a key.
fn keyed(server: &Server, key: &str, path: &str, body: &Value) -> reqwest::RequestBuilder {
    let request = server.http.post(server.at(path)).json(body);
    request.header("idempotency-key", key)
}

/// The status, whether it was given before, and the body.
async fn replayed(request: reqwest::RequestBuilder) -> (u16, bool, Value) {
    let response = request.timeout(PATIENCE).send().await.unwrap();
    let replayed = response.headers().contains_key("idempotent-replayed");
    let status = response.status().as_u16();
    (status, replayed, response.json().await.unwrap())
}

#[tokio::test]
async fn one_start_of_the_command_line_is_one_instance_whatever_a_proxy_says() {
    // rule 1.5
    for fault in FAULTS {
        let server = server().start();
        let proxy = Proxy::before(&server.address(), "{\"start\":", fault, 2).await;
        let home = server.home();
        let url = proxy.url.clone();
        let started = tokio::task::spawn_blocking(move || {
            let mut command = common::abide(&home);
            command
                .args(["start", "m", "--store", &url])
                .output()
                .unwrap()
        });
        let started = started.await.unwrap();
        assert!(started.status.success(), "{fault:?}: {started:?}");
        assert_eq!(proxy.seen(), 3, "{fault:?}");
        let found = instances(&server).await;
        assert_eq!(found.len(), 1, "{fault:?}: {found:?}");
        let id = String::from_utf8(started.stdout).unwrap();
        assert_eq!(id.trim(), found[0]["id"].to_string(), "{fault:?}");
    }
}

#[tokio::test]
async fn each_call_of_a_rust_client_has_one_effect() {
    // rule 1.5
    let server = server().start();
    let (_, target) = server
        .post("/v1/instances", &json!({"machine": "m", "key": "k"}))
        .await;
    let id = target["id"].to_string();
    for (n, fault) in (1..).zip(FAULTS) {
        let open = async |words| {
            let proxy = Proxy::before(&server.address(), words, fault, 1).await;
            let abide = Abide::open(&proxy.url).await.unwrap();
            (proxy, abide)
        };
        let (_proxy, abide) = open("{\"start\":").await;
        abide.start("m", Json::null()).await.unwrap();
        assert_eq!(instances(&server).await.len(), 2 * n, "{fault:?}");

        let (_proxy, abide) = open("{\"deliver\":").await;
        let receipt = abide.signal("k", "go", Arguments::default()).await;
        assert!(!receipt.unwrap().duplicate, "{fault:?}");
        assert_eq!(sent(&server, &id).await, n, "{fault:?}");

        let (_proxy, abide) = open("{\"publish\":").await;
        let published = abide.publish("paid", &json!(n)).await.unwrap();
        assert!(!published.duplicate, "{fault:?}");
        let (_, events) = server.get("/v1/events").await;
        assert_eq!(events["items"].as_array().unwrap().len(), n, "{fault:?}");

        let (_, other) = server.post("/v1/instances", &json!({"machine": "m"})).await;
        let (proxy, abide) = open("{\"cancel\":").await;
        let target: i64 = other["id"].as_i64().unwrap();
        let cancelled = abide.cancel(abide::InstanceId(target), "no").await;
        assert!(
            cancelled.unwrap().ended,
            "{fault:?}: the first answer, not that it has ended"
        );
        assert_eq!(proxy.seen(), 2, "{fault:?}");
    }
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_asked_for_again() {
    // rule 1.5
    let server = server().start();
    let fault = Fault::Silence(Duration::from_secs(5));
    let proxy = Proxy::before(&server.address(), "{\"start\":", fault, 1).await;
    let options = abide::remote::Options {
        timeout: Duration::from_millis(500),
        ..abide::remote::Options::default()
    };
    let store = abide::remote::Remote::connect(&proxy.url, options)
        .await
        .unwrap();
    let abide = Abide::options().on(store);
    abide.start("m", Json::null()).await.unwrap();
    assert_eq!(instances(&server).await.len(), 1);
}

#[tokio::test]
async fn a_request_that_arrives_again_gets_the_first_answer() {
    // rule 1.5
    for over in [Over::Sqlite, postgres()] {
        let server = server().over(over).start();
        let (_, target) = server
            .post("/v1/instances", &json!({"machine": "m", "key": "k"}))
            .await;
        let (_, failed) = server.post("/v1/instances", &json!({"machine": "m"})).await;
        let (_, _) = server
            .post(
                &format!("/v1/instances/{}/cancel", failed["id"]),
                &json!({}),
            )
            .await;
        let (_, ending) = server.post("/v1/instances", &json!({"machine": "m"})).await;
        let paths = [
            (
                "/v1/instances".to_owned(),
                json!({"machine": "m", "delay_ms": 1000}),
            ),
            (
                "/v1/instances".to_owned(),
                json!({"machine": "m", "key": "r", "reserve": true}),
            ),
            (
                "/v1/instances/batch".to_owned(),
                json!({"instances": [{"machine": "m"}, {"machine": "m", "key": "b", "reserve": true},
                {"machine": "m", "key": "b"}, {"machine": 7}]}),
            ),
            (
                "/v1/instances/k/signals/go".to_owned(),
                json!({"payload": 1}),
            ),
            (
                "/v1/instances/later/signals/go".to_owned(),
                json!({"hold_for_ms": 60_000}),
            ),
            (
                "/v1/signal-with-start".to_owned(),
                json!({"start": {"machine": "m", "key": "s"}, "name": "go"}),
            ),
            (
                "/v1/events".to_owned(),
                json!({"type": "paid", "payload": {"n": 1}}),
            ),
            (
                "/v1/events/batch".to_owned(),
                json!({"events": [{"type": "paid"}, {"type": 7}]}),
            ),
            (format!("/v1/instances/{}/restart", failed["id"]), json!({})),
            (
                format!("/v1/instances/{}/cancel", ending["id"]),
                json!({"reason": "no"}),
            ),
            ("/v1/instances/k/repair".to_owned(), json!({})),
            // What is refused is refused in the same words, also when it would not be by now.
            (
                "/v1/instances".to_owned(),
                json!({"machine": "m", "key": "k"}),
            ),
        ];
        for (n, (path, body)) in paths.iter().enumerate() {
            let key = format!("key-{n}");
            let first = replayed(keyed(&server, &key, path, body)).await;
            assert!(!first.1 && first.0 < 500, "{path}: {first:?}");
            let before = instances(&server).await;
            let again = replayed(keyed(&server, &key, path, body)).await;
            assert!(again.1, "{path}: {again:?}");
            assert_eq!(again.0, first.0, "{path}");
            assert_eq!(
                without_request_id(&again.2),
                without_request_id(&first.2),
                "{path}"
            );
            assert_eq!(instances(&server).await.len(), before.len(), "{path}");
        }
        let id = target["id"].to_string();
        assert_eq!(sent(&server, &id).await, 1);
        let (_, events) = server.get("/v1/events").await;
        assert_eq!(events["items"].as_array().unwrap().len(), 2);
    }
}

/// An answer without the field that differs between requests.
fn without_request_id(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("request_id");
    }
    body
}

#[tokio::test]
async fn the_key_may_be_a_field_of_the_body_and_another_request_under_it_is_refused() {
    // rule 1.5
    let server = server().start();
    let start = |key: &str, step: &str| json!({"machine": "m", "step": step, "request_id": key});
    let (status, first) = server.post("/v1/instances", &start("r", "a")).await;
    assert_eq!(status, 201, "{first}");
    // However it is written, and wherever the key is.
    let again = keyed(
        &server,
        "r",
        "/v1/instances",
        &json!({"step": "a", "machine": "m"}),
    );
    let (status, was_replayed, again) = replayed(again).await;
    assert_eq!(
        (status, was_replayed, &again["id"]),
        (201, true, &first["id"]),
        "{again}"
    );
    let (status, refused) = server.post("/v1/instances", &start("r", "b")).await;
    assert_eq!(
        (status, &refused["type"]),
        (409, &json!("/problems/idempotency_key_reused")),
        "{refused}"
    );
    let elsewhere = keyed(
        &server,
        "r",
        "/v1/instances/batch",
        &json!({"instances": []}),
    );
    let (status, events) = answer(elsewhere).await;
    assert!(status == 200 || status == 409, "{events}");
    let both = keyed(&server, "other", "/v1/instances", &start("r", "a"));
    assert_eq!(answer(both).await.0, 422);
    for key in ["two words", "a\"b", "\"", "", &"x".repeat(256)] {
        let bad = keyed(&server, key, "/v1/instances", &json!({"machine": "m"}));
        assert_eq!(answer(bad).await.0, 400, "{key:?}");
    }
    assert_eq!(instances(&server).await.len(), 1);
}

#[tokio::test]
async fn the_keys_of_two_tokens_never_meet() {
    // rule 1.5
    let server = server().start();
    let tokens = [server.token("operate"), server.token("operate")];
    let mut ids = Vec::new();
    for token in &tokens {
        let request = keyed(&server, "r", "/v1/instances", &json!({"machine": "m"}));
        let (status, was_replayed, body) = replayed(request.bearer_auth(token)).await;
        assert_eq!((status, was_replayed), (201, false), "{body}");
        ids.push(body["id"].clone());
    }
    assert_ne!(ids[0], ids[1]);
    // A caller that claims to be another is not believed.
    let rpc = |caller: &str, key: &str| {
        let id = json!({"caller": caller, "key": key, "fingerprint": "0".repeat(64)});
        json!({"run": [{"once": [{"id": id, "ops": []}]}]})
    };
    for (token, key) in [(&tokens[0], "mine"), (&tokens[1], "mine")] {
        let request = server
            .http
            .post(server.at("/rpc/v1"))
            .json(&rpc("token:operate-1", key));
        let (status, body) = answer(request.bearer_auth(token)).await;
        assert_eq!(status, 200, "{body}");
        let carried = &body["answers"][0]["once"][0]["Ok"];
        assert_eq!(carried["replayed"], false, "{body}");
    }
}

#[tokio::test]
async fn of_sixteen_at_once_one_is_carried_out_at_one_server_and_at_two() {
    // rule 1.5
    let Over::Url(url) = postgres() else {
        unreachable!()
    };
    let one = server().over(Over::Url(url.clone())).start();
    let other = server().over(Over::Url(url)).start();
    let alone = server().start();
    for servers in [[&alone, &alone], [&one, &one], [&one, &other]] {
        let before = instances(servers[0]).await.len();
        let requests = (0..16).map(|n| {
            let request = keyed(
                servers[n % 2],
                "sixteen",
                "/v1/instances",
                &json!({"machine": "m"}),
            );
            tokio::spawn(replayed(request))
        });
        let requests: Vec<_> = requests.collect();
        let (mut first, mut ids) = (0, Vec::new());
        for request in requests {
            let (status, was_replayed, body) = request.await.unwrap();
            assert_eq!(status, 201, "{body}");
            first += usize::from(!was_replayed);
            ids.push(body["id"].clone());
        }
        ids.dedup();
        let after = instances(servers[0]).await.len();
        assert_eq!(ids.len(), 1, "{ids:?}");
        // The last pair finds what the pair before it has started.
        assert!(
            after - before == first && first <= 1,
            "{first} of {}",
            after - before
        );
    }
}

#[tokio::test]
async fn a_write_that_outlives_its_request_is_unknown_and_never_asked_for_again() {
    // rule 1.5: a foreign session holds the row for longer than the request may take.
    let Over::Url(url) = postgres() else {
        unreachable!()
    };
    let server = server()
        .over(Over::Url(url.clone()))
        .set("request_timeout_ms", 500)
        .start();
    let (_, one) = server
        .post("/v1/instances", &json!({"machine": "m", "key": "k"}))
        .await;
    let foreign = holding(&url, "select id from abide.instances for update").await;
    let signal = server
        .http
        .post(server.at("/v1/instances/k/signals/go"))
        .json(&json!({}))
        .send();
    let cancel = keyed(&server, "c", "/v1/instances/k/cancel", &json!({})).send();
    let (signal, cancel) = tokio::join!(signal, cancel);
    for response in [signal.unwrap(), cancel.unwrap()] {
        assert_eq!(response.status(), 504);
        assert!(!response.headers().contains_key("retry-after"));
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["type"], "/problems/unknown", "{problem}");
        assert_eq!(problem["limit"], "request_timeout_ms");
    }
    foreign.batch_execute("commit").await.unwrap();
    // Both were done, once each; a caller with a key learns the outcome.
    let until = std::time::Instant::now() + PATIENCE;
    let cancelled = loop {
        let (status, _, body) =
            replayed(keyed(&server, "c", "/v1/instances/k/cancel", &json!({}))).await;
        if status == 200 {
            break body;
        }
        assert!(
            std::time::Instant::now() < until && [409, 504].contains(&status),
            "{body}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(
        (&cancelled["outcome"], &cancelled["id"]),
        (&json!("cancelled"), &one["id"])
    );
    assert_eq!(sent(&server, &one["id"].to_string()).await, 1);
}
