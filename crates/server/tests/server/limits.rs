//! Bodies have a limit, slow clients a deadline, and a full server says so and goes on.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{PATIENCE, Server, server};
use crate::server::raw::{Raw, RawResponse};

/// A server with a small limit for bodies.
fn small() -> Server {
    let setup = server()
        .set("limits.payload_bytes", 1000)
        .set("limits.state_bytes", 1000);
    setup.set("body_bytes", 4096).start()
}

fn problem(response: &RawResponse) -> serde_json::Value {
    let body = response.text.split("\r\n\r\n").nth(1).unwrap_or_default();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("no problem in {response:?}"))
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_however_it_is_sent() {
    let server = small();
    let large = json!({"type": "t", "payload": "x".repeat(3 << 20)});
    let (status, body) = server.post("/v1/events", &large).await;
    let limit = json!([body["limit"], body["most"], body["met"]]);
    let met = large.to_string().len();
    assert_eq!(
        (status, limit),
        (413, json!(["body_bytes", 4096, met])),
        "{body}"
    );
    let detail = body["detail"].as_str().unwrap();
    assert!(
        detail.contains(&format!("a body of {met} bytes")) && detail.contains("4096"),
        "{detail}"
    );

    // In chunks, so that the size is not known before.
    let mut raw = Raw::to(&server).await;
    raw.send("POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n").await;
    for _ in 0..64 {
        raw.send(format!("400\r\n{}\r\n", "x".repeat(1024))).await;
    }
    raw.send("0\r\n\r\n").await;
    let response = raw.rest().await;
    assert_eq!(response.status, Some(413), "{response:?}");
    assert_eq!(problem(&response)["most"], 4096);
    assert_eq!(problem(&response)["met"], serde_json::Value::Null);

    // A client that sends `Expect: 100-continue` is answered without having sent the body.
    let mut raw = Raw::to(&server).await;
    raw.send("POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n").await;
    let response = raw.rest().await;
    assert_eq!(response.status, Some(413), "{response:?}");

    // A body that is not read does not cost the answer either.
    let response = server
        .http
        .post(server.at("/nowhere"))
        .body("x".repeat(2 << 20))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 404);
}

#[tokio::test]
async fn a_payload_over_its_own_limit_is_named_as_such() {
    let server = small();
    let (status, body) = server
        .post(
            "/v1/events",
            &json!({"type": "t", "payload": "x".repeat(2000)}),
        )
        .await;
    assert_eq!(
        (status, body["limit"].as_str()),
        (413, Some("payload_bytes")),
        "{body}"
    );
}

#[tokio::test]
async fn a_head_that_does_not_come_is_answered_408() {
    let server = server().set("header_timeout_ms", 300).start();
    for head in [
        "G",
        "GET /healthz HTTP/1.1\r\n",
        "PRI",
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nx: ",
    ] {
        let began = Instant::now();
        let mut raw = Raw::to(&server).await;
        raw.send(head).await;
        let response = raw.rest().await;
        assert_eq!(response.status, Some(408), "{head:?}: {response:?}");
        assert!(
            began.elapsed() >= Duration::from_millis(250),
            "{:?}",
            began.elapsed()
        );
    }
    // One that sends a little now and then is not given longer.
    let began = Instant::now();
    let mut raw = Raw::to(&server).await;
    raw.send("GET /healthz HTTP/1.1\r\n").await;
    for n in 0..6 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        raw.send(format!("x-{n}: y\r\n")).await;
    }
    assert_eq!(raw.rest().await.status, Some(408));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(server.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_408() {
    let server = server().set("request_timeout_ms", 400).start();
    let began = Instant::now();
    let mut raw = Raw::to(&server).await;
    raw.send("POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{").await;
    let response = raw.rest().await;
    assert_eq!(response.status, Some(408), "{response:?}");
    assert_eq!(problem(&response)["limit"], "request_timeout_ms");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_connection_may_be_idle_and_a_body_slower_than_a_head() {
    let server = server().set("header_timeout_ms", 200).start();
    let mut raw = Raw::to(&server).await;
    // Clients open connections before they need them.
    assert!(
        raw.is_silent(Duration::from_millis(500)).await,
        "a connection that was not used yet was closed"
    );
    for _ in 0..2 {
        raw.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        assert_eq!(raw.answer().await.status, Some(200));
        assert!(
            raw.is_silent(Duration::from_millis(500)).await,
            "an idle connection was closed"
        );
    }
    raw.send("POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{").await;
    assert!(
        raw.is_silent(Duration::from_millis(500)).await,
        "a body was taken for a head"
    );
    raw.send("\"type\":\"t\"}").await;
    assert_eq!(raw.answer().await.status, Some(200));
    // The next head has its deadline again.
    raw.send("GET /healthz HTTP/1.1\r\n").await;
    assert_eq!(raw.rest().await.status, Some(408));
}

/// A request whose body is not all there.
async fn half_a_request(server: &Server) -> Raw {
    let mut raw = Raw::to(server).await;
    raw.send("POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 12\r\nexpect: 100-continue\r\n\r\n").await;
    let response = raw.answer().await;
    assert_eq!(response.status, Some(100), "{response:?}");
    raw.send("{\"type\":").await;
    raw
}

#[tokio::test]
async fn a_body_that_is_on_its_way_has_no_place_yet() {
    let server = server().set("in_flight", 1).start();
    let mut raw = half_a_request(&server).await;
    let (status, reply) = server
        .post("/v1/events", &serde_json::json!({"type": "t"}))
        .await;
    assert_eq!(status, 200, "{reply}");
    assert_eq!(server.get("/v1/queues").await.0, 200);
    raw.send("\"t\"}").await;
    let response = raw.answer().await;
    assert_eq!(response.status, Some(200), "{response:?}");
}

#[tokio::test]
async fn a_full_server_answers_503_with_retry_after_and_goes_on() {
    let server = server().set("in_flight", 1).start();
    let many = vec![serde_json::json!({"machine": "m"}); 60_000];
    let body = serde_json::json!({ "instances": many });
    let batch = || {
        let request = server.http.post(server.at("/v1/instances/batch"));
        tokio::spawn(request.json(&body).send())
    };
    let (mut long, mut batches) = (batch(), 1);
    let full = loop {
        let request = server.http.post(server.at("/v1/events"));
        let answer = request
            .json(&serde_json::json!({"type": "t"}))
            .send()
            .await
            .unwrap();
        if answer.status() == 503 {
            break answer;
        }
        // One of the events may have had the only slot when the batch came, which was refused then.
        if long.is_finished() {
            assert!(batches < 20, "nothing was refused meanwhile");
            (long, batches) = (batch(), batches + 1);
        }
        // The slot must be free most of the time, or no batch ever gets it.
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(full.headers()["retry-after"], "1");
    let body: serde_json::Value = full.json().await.unwrap();
    assert_eq!(body["limit"], "in_flight");
    // What is of another kind, and who looks after it, are answered all the same.
    assert_eq!(server.get("/v1/queues").await.0, 200);
    assert_eq!(server.get("/healthz").await.0, 200);
    assert_eq!(server.get("/readyz").await.0, 200);
    assert_eq!(long.await.unwrap().unwrap().status(), 200);
    let (status, reply) = server
        .post("/v1/events", &serde_json::json!({"type": "t"}))
        .await;
    assert_eq!(status, 200, "{reply}");
}

#[tokio::test]
async fn long_polls_take_no_place_of_others_and_have_a_bound_of_their_own() {
    let server = server().set("in_flight", 1).set("long_polls", 2).start();
    let first = server
        .http
        .get(server.at("/v1/stream"))
        .send()
        .await
        .unwrap();
    let second = server
        .http
        .get(server.at("/v1/stream"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (first.status().as_u16(), second.status().as_u16()),
        (200, 200)
    );
    assert_eq!(server.get("/v1/queues").await.0, 200);
    let third = server
        .http
        .get(server.at("/v1/stream"))
        .send()
        .await
        .unwrap();
    assert_eq!(third.status(), 503);
    assert_eq!(third.headers()["retry-after"], "1");
    let body: serde_json::Value = third.json().await.unwrap();
    assert_eq!(
        (&body["limit"], &body["most"]),
        (&"long_polls".into(), &2.into())
    );
    drop(first);
    let began = Instant::now();
    while server
        .http
        .get(server.at("/v1/stream"))
        .send()
        .await
        .unwrap()
        .status()
        != 200
    {
        // At once, and not when the keep-alives of a stream are not read.
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "the slot is not given back"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn connections_over_the_limit_are_answered_503() {
    let server = server().set("connections", 2).start();
    let (mut first, mut second) = (Raw::to(&server).await, Raw::to(&server).await);
    for raw in [&mut first, &mut second] {
        raw.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        assert_eq!(raw.answer().await.status, Some(200));
    }
    let mut third = Raw::to(&server).await;
    third
        .send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    let response = third.rest().await;
    assert_eq!(response.status, Some(503), "{response:?}");
    assert!(
        response.text.contains("retry-after: 1") && response.text.contains("`connections`"),
        "{response:?}"
    );
    // Those that are open go on, and a free slot is given away.
    second
        .send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(second.answer().await.status, Some(200));
    drop(first);
    let began = Instant::now();
    loop {
        let mut next = Raw::to(&server).await;
        next.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await;
        if next.rest().await.status == Some(200) {
            break;
        }
        assert!(began.elapsed() < PATIENCE);
    }
}
