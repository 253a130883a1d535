//! Slow clients: they do not block other clients, and are disconnected in the end.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{Over, PATIENCE, Server, answer, database, holding, server};
use crate::server::raw::Raw;

const HOOKS: &str = r#"
[[hooks]]
source = "shop"
scheme = "stripe"
secret = "s"
event = {from = "type"}

[[hooks]]
source = "local"
scheme = "none"
event = {from = "type"}
"#;

/// So many connections that have sent the head of a request, and the beginning of its body.
async fn dribbling(server: &Server, path: &str, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        open.push(stream);
    }
    open
}

async fn is_served(server: &Server) {
    assert_eq!(server.get("/v1/queues").await.0, 200);
    let (status, reply) = server.post("/v1/events", &json!({"type": "t"})).await;
    assert_eq!(status, 200, "{reply}");
    let hook = server
        .http
        .post(server.at("/v1/hooks/local"))
        .body(r#"{"type": "h"}"#);
    let (status, reply) = answer(hook).await;
    assert_eq!(status, 200, "{reply}");
    let claim =
        json!({"worker": "w", "queue": "default", "machines": [{"name": "m", "version": 1}]});
    let (status, reply) = server.post("/v1/workers/claim", &claim).await;
    assert_eq!(status, 200, "{reply}");
}

#[tokio::test]
async fn slow_bodies_of_webhooks_block_no_other_request() {
    // 1,100 bodies that came slowly had taken all slots before their signatures were checked: everyone else was
    // answered 503.
    let server = server().config(HOOKS).start();
    let mut open = dribbling(&server, "/v1/hooks/shop", 1_100).await;
    for _ in 0..3 {
        for stream in &mut open {
            stream.write_all(b" ").await.unwrap();
        }
        is_served(&server).await;
    }
}

#[tokio::test]
async fn slow_bodies_of_requests_block_no_other_request() {
    let server = server().config(HOOKS).set("in_flight", 2).start();
    let paths = [
        "/v1/events",
        "/v1/instances",
        "/rpc/v1",
        "/v1/workers/commit",
    ];
    let mut open = Vec::new();
    for path in paths {
        open.extend(dribbling(&server, path, 10).await);
    }
    is_served(&server).await;
}

#[tokio::test]
async fn bodies_of_strangers_take_no_more_memory_than_they_may() {
    let server = server()
        .config(HOOKS)
        .set("receiving_bytes", 400_000)
        .start();
    let body = "x".repeat(90_000);
    let head = "POST /v1/hooks/shop HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n";
    // A quarter of it is for unknown callers: one has no room beside another, whichever of them came first.
    let (began, mut received) = (Instant::now(), Vec::new());
    loop {
        let mut next = Raw::to(&server).await;
        next.send(format!("{head}{body}")).await;
        if next.is_silent(Duration::from_millis(300)).await {
            assert!(began.elapsed() < PATIENCE, "all of them are received");
            received.push(next);
            continue;
        }
        let response = next.answer().await;
        assert_eq!(response.status, Some(503), "{response:?}");
        if response.text.contains("receiving_bytes") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{response:?}");
    }
    // Callers with a token, or that need none, have the rest.
    let (status, reply) = server
        .post(
            "/v1/events",
            &json!({"type": "t", "payload": "y".repeat(200_000)}),
        )
        .await;
    assert_eq!(status, 200, "{reply}");
}

#[tokio::test]
async fn streams_of_a_read_token_take_no_place_of_workers() {
    let server = server().set("long_polls", 4).start();
    let (read, work) = (server.token("read"), server.token("work"));
    let stream = || async {
        let request = server.http.get(server.at("/v1/stream")).bearer_auth(&read);
        request.send().await.unwrap()
    };
    let streams = [stream().await, stream().await];
    assert!(streams.iter().all(|stream| stream.status() == 200));
    let third = stream().await;
    assert_eq!(third.status(), 503);
    let reply: serde_json::Value = third.json().await.unwrap();
    assert_eq!(reply["limit"], "long_polls", "{reply}");
    let claim = json!({"worker": "w", "queue": "default", "machines": [{"name": "m", "version": 1}], "wait_ms": 50});
    for _ in 0..2 {
        let request = server.http.post(server.at("/v1/workers/claim"));
        let (status, reply) = answer(request.bearer_auth(&work).json(&claim)).await;
        assert_eq!(status, 200, "{reply}");
    }
}

#[tokio::test]
async fn one_token_leaves_half_of_the_places_of_its_role_to_others() {
    // One read token's streams had kept every other read token out.
    let server = server().set("long_polls", 4).start();
    let (one, other) = (server.token("read"), server.token("read"));
    let stream = |token: String| {
        let request = server.http.get(server.at("/v1/stream")).bearer_auth(token);
        async move { request.send().await.unwrap() }
    };
    let mine = [stream(one.clone()).await, stream(one.clone()).await];
    assert!(mine.iter().all(|stream| stream.status() == 200));
    let third = stream(one.clone()).await;
    assert_eq!(
        (third.status().as_u16(), &third.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    let reply: serde_json::Value = third.json().await.unwrap();
    assert_eq!(
        (&reply["limit"], &reply["most"]),
        (&"long_polls".into(), &2.into()),
        "{reply}"
    );
    let theirs = [stream(other.clone()).await, stream(other).await];
    assert!(theirs.iter().all(|stream| stream.status() == 200));
}

#[tokio::test]
async fn tokens_that_send_keep_no_operator_out() {
    // Two tokens of the role send had taken all slots for writes, and no operator could cancel.
    let url = database();
    let server = server()
        .over(Over::Url(url.clone()))
        .set("in_flight", 2)
        .start();
    // Before the first request, so that none is let in without a token.
    let senders = [server.token("send"), server.token("send")];
    let operator = server.token("operate");
    for key in ["locked", "free"] {
        let start = server.http.post(server.at("/v1/instances"));
        let start = start.json(&json!({"machine": "m", "key": key}));
        let (status, reply) = answer(start.bearer_auth(&operator)).await;
        assert_eq!(status, 201, "{reply}");
    }
    // Requests that last: a foreign session holds the row that they are for.
    let lock = "select id from abide.instances where key = 'locked' for update";
    let foreign = holding(&url, lock).await;
    let signal = |token: &str| {
        let path = server.at("/v1/instances/locked/signals/go");
        let request = server.http.post(path).bearer_auth(token);
        request.json(&json!({}))
    };
    let lasting = senders.clone().map(|token| {
        let request = signal(&token);
        tokio::spawn(async move {
            // The check whether the slot is taken may have it for a moment.
            loop {
                let reply = answer(request.try_clone().unwrap()).await;
                if reply.1["limit"] != "in_flight" {
                    return reply;
                }
            }
        })
    });
    for sender in &senders {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "its slot is never taken");
            let pause = Duration::from_millis(300);
            let outcome = tokio::time::timeout(pause, answer(signal(sender))).await;
            if let Ok((status, reply)) = outcome {
                assert_eq!((status, &reply["limit"]), (503, &json!("in_flight")));
                break;
            }
        }
    }
    let cancel = server.http.post(server.at("/v1/instances/free/cancel"));
    let began = Instant::now();
    let (status, reply) = answer(cancel.bearer_auth(&operator).json(&json!({}))).await;
    assert_eq!(status, 200, "{reply}");
    assert!(began.elapsed() < Duration::from_secs(3), "{reply}");
    assert!(
        lasting.iter().all(|one| !one.is_finished()),
        "the slots were free meanwhile"
    );
    foreign.batch_execute("commit").await.unwrap();
    for one in lasting {
        let (status, reply) = one.await.unwrap();
        assert_eq!(status, 202, "{reply}");
    }
}

#[tokio::test]
async fn idle_connections_are_closed_on_http_1_and_2() {
    // Those of HTTP/2 stayed open for ever.
    let server = server().set("idle_timeout_ms", 300).start();
    let mut two = TcpStream::connect(server.address()).await.unwrap();
    // How HTTP/2 begins, and settings that say nothing.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    two.write_all(preface).await.unwrap();
    let mut bytes = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, two.read_to_end(&mut bytes)).await;
    assert!(ended.is_ok(), "it is still open, and sent {bytes:?}");
    // It says goodbye: a frame of the type 7.
    assert!(bytes.len() > 9, "{bytes:?}");

    let mut one = Raw::to(&server).await;
    one.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(one.answer().await.status, Some(200));
    one.rest().await;

    // One that says nothing at all is closed too.
    let response = Raw::to(&server).await.rest().await;
    assert_eq!(response.text, "");
}

#[tokio::test]
async fn a_connection_that_is_used_or_waits_is_not_idle() {
    let server = server().set("idle_timeout_ms", 300).start();
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let claim = json!({"worker": "w", "queue": "default", "machines": [{"name": "m", "version": 1}], "wait_ms": 1_200});
    let waited = client.post(server.at("/v1/workers/claim")).json(&claim);
    let (status, reply) = answer(waited).await;
    assert_eq!(status, 200, "{reply}");
    let stream = client.get(server.at("/v1/stream")).send().await.unwrap();
    let mut stream = stream;
    let silent = tokio::time::timeout(Duration::from_millis(1_200), async {
        while let Some(chunk) = stream.chunk().await.unwrap() {
            drop(chunk);
        }
    });
    assert!(silent.await.is_err(), "a stream was taken for idle");
}
