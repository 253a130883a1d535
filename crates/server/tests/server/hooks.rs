//! Webhooks, from the signature to the inbox.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::common::{Server, answer, postgres, server};

const CONFIG: &str = r#"
[[hooks]]
source = "shop"
scheme = "stripe"
secrets = ["old", "env:SHOP_SECRET"]

[[hooks.rules]]
when = {path = "type", equals = "payment.succeeded"}
signal = "paid"
target = {from = "data.object.metadata.order", prefix = "order:"}
payload = "data.object.amount"
hold_for_ms = 60000

[[hooks.rules]]
when = {path = "type", equals = "payment.refunded"}
event = "refunded"
payload = "data"

[[hooks]]
source = "chat"
scheme = "slack"
secret = "s"
event = {from = "event.type", prefix = "chat."}

[[hooks]]
source = "local"
scheme = "none"
signal = {header = "x-event"}
target = {from = "key"}
dedup = {header = "x-delivery"}
"#;

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn hex(secret: &str, text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    mac.finalize()
        .into_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Sends what a shop sends.
async fn deliver(server: &Server, secret: &str, at: u64, body: &Value) -> (u16, Value) {
    let text = body.to_string();
    let signature = format!("t={at},v1={}", hex(secret, &format!("{at}.{text}")));
    answer(
        server
            .http
            .post(server.at("/v1/hooks/shop"))
            .header("stripe-signature", signature)
            .body(text),
    )
    .await
}

fn paid(id: &str, order: &str) -> Value {
    let object = json!({"amount": 1999, "metadata": {"order": order}});
    json!({"id": id, "type": "payment.succeeded", "data": {"object": object}})
}

async fn webhooks_become_signals_and_events(server: Server) {
    server.declare("order", "paid").await;
    let start =
        json!({"machine": "order", "version": 1, "key": "order:42", "step": "begin", "state": {}});
    let (status, body) = server.post("/v1/instances", &start).await;
    assert_eq!(status, 201, "{body}");

    let (status, body) = deliver(&server, "new", now(), &paid("evt_1", "42")).await;
    assert_eq!(
        (status, body["outcome"].as_str(), body["key"].as_str()),
        (202, Some("signal_received"), Some("order:42")),
        "{body}"
    );
    // Delivered again, also with the other secret, it is the same.
    let (status, again) = deliver(&server, "old", now() - 60, &paid("evt_1", "42")).await;
    assert_eq!(
        (status, again["duplicate"].as_bool(), &again["command_id"]),
        (200, Some(true), &body["command_id"]),
        "{again}"
    );

    // What is not proven leaves nothing behind.
    for (secret, at) in [("wrong", now()), ("new", now() - 400), ("new", now() + 400)] {
        let (status, body) = deliver(&server, secret, at, &paid("evt_2", "42")).await;
        assert_eq!(
            (status, body["type"].as_str()),
            (401, Some("/problems/bad_signature")),
            "{body}"
        );
    }
    let text = paid("evt_3", "42").to_string();
    let bare = server
        .http
        .post(server.at("/v1/hooks/shop"))
        .body(text.clone());
    assert_eq!(answer(bare).await.0, 401);
    let at = now();
    let signature = format!("t={at},v1={}", hex("new", &format!("{at}.{text}")));
    let changed = server
        .http
        .post(server.at("/v1/hooks/shop"))
        .header("stripe-signature", signature)
        .body(text.replace("1999", "2999"));
    assert_eq!(answer(changed).await.0, 401);
    let (_, signals) = server.get("/v1/instances/order:42/signals").await;
    let signals = signals["items"].as_array().unwrap();
    assert_eq!(signals.len(), 1, "{signals:?}");
    assert_eq!(
        (&signals[0]["source"], &signals[0]["dedup_key"]),
        (&json!("hook:shop"), &json!("evt_1"))
    );
    assert_eq!(signals[0]["arguments"], json!([1999]));

    // The target does not exist yet: the signal is held. Nothing where the rule looks, nothing that a rule is meant for.
    let (status, body) = deliver(&server, "new", now(), &paid("evt_4", "77")).await;
    assert_eq!(
        (status, body["outcome"].as_str()),
        (202, Some("signal_held")),
        "{body}"
    );
    let (status, body) = deliver(
        &server,
        "new",
        now(),
        &json!({"id": "evt_5", "type": "payment.succeeded", "data": {}}),
    )
    .await;
    assert_eq!(status, 400, "{body}");
    let (status, body) = deliver(
        &server,
        "new",
        now(),
        &json!({"id": "evt_6", "type": "customer.created"}),
    )
    .await;
    assert_eq!((status, body), (200, json!({"ignored": true})));

    let refunded = json!({"id": "evt_7", "type": "payment.refunded", "data": {"order": "42"}});
    let (status, body) = deliver(&server, "new", now(), &refunded).await;
    assert_eq!(
        (status, &body["event_id"], &body["duplicate"]),
        (200, &json!("evt_7"), &json!(false)),
        "{body}"
    );
    let (status, body) = deliver(&server, "new", now(), &refunded).await;
    assert_eq!((status, &body["duplicate"]), (200, &json!(true)), "{body}");
    let (_, events) = server.get("/v1/events?type=refunded").await;
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    assert_eq!(events["items"][0]["payload"], json!({"order": "42"}));
}

#[tokio::test]
async fn webhooks_become_signals_and_events_on_sqlite() {
    webhooks_become_signals_and_events(server().config(CONFIG).env("SHOP_SECRET", "new").start())
        .await;
}

#[tokio::test]
async fn webhooks_become_signals_and_events_on_postgres() {
    webhooks_become_signals_and_events(
        server()
            .config(CONFIG)
            .env("SHOP_SECRET", "new")
            .over(postgres())
            .start(),
    )
    .await;
}

#[tokio::test]
async fn a_sender_may_take_all_from_headers() {
    let server = server().config(CONFIG).env("SHOP_SECRET", "new").start();
    server.declare("m", "go").await;
    assert_eq!(
        server
            .post(
                "/v1/instances",
                &json!({"machine": "m", "version": 1, "key": "k", "step": "s", "state": 1})
            )
            .await
            .0,
        201
    );
    let send = |event: &'static str, delivery: &'static str| {
        let request = server
            .http
            .post(server.at("/v1/hooks/local"))
            .header("x-event", event)
            .header("x-delivery", delivery);
        answer(request.body(r#"{"key":"k"}"#))
    };
    assert_eq!(send("go", "1").await.0, 202);
    assert_eq!(send("go", "1").await.0, 200);
    // As the signal would be answered.
    let (status, body) = send("stop", "2").await;
    assert_eq!(
        (status, body["reason"].as_str()),
        (404, Some("unknown_signal")),
        "{body}"
    );
    let (status, _) = answer(
        server
            .http
            .post(server.at("/v1/hooks/local"))
            .body(r#"{"key":"k"}"#),
    )
    .await;
    assert_eq!(status, 400);
    assert_eq!(
        answer(
            server
                .http
                .post(server.at("/v1/hooks/local"))
                .header("x-event", "go")
                .body("{")
        )
        .await
        .0,
        400
    );
    assert_eq!(
        answer(
            server
                .http
                .post(server.at("/v1/hooks/local"))
                .header("x-event", "go")
                .body(vec![0xff, 0xfe])
        )
        .await
        .0,
        400
    );
    assert_eq!(
        answer(server.http.post(server.at("/v1/hooks/absent")).body("{}"))
            .await
            .0,
        404
    );
    assert_eq!(server.get("/v1/hooks/local").await.0, 405);
}

#[tokio::test]
async fn the_challenge_of_slack_is_answered_when_it_is_signed() {
    let server = server().config(CONFIG).env("SHOP_SECRET", "new").start();
    let send = |secret: &'static str, body: Value| {
        let (at, text) = (now(), body.to_string());
        let signature = format!("v0={}", hex(secret, &format!("v0:{at}:{text}")));
        let request = server
            .http
            .post(server.at("/v1/hooks/chat"))
            .header("x-slack-request-timestamp", at);
        answer(request.header("x-slack-signature", signature).body(text))
    };
    let challenge = json!({"type": "url_verification", "challenge": "abc"});
    assert_eq!(
        send("s", challenge.clone()).await,
        (200, json!({"challenge": "abc"}))
    );
    assert_eq!(send("t", challenge).await.0, 401);
    let (status, body) = send(
        "s",
        json!({"event_id": "Ev1", "event": {"type": "message"}}),
    )
    .await;
    assert_eq!((status, &body["event_id"]), (200, &json!("Ev1")), "{body}");
}

#[tokio::test]
async fn no_more_of_a_webhook_is_read_than_a_signal_may_carry() {
    let server = server()
        .config(CONFIG)
        .env("SHOP_SECRET", "new")
        .set("limits.payload_bytes", 2_000)
        .start();
    let large = json!({"type": "payment.succeeded", "padding": "x".repeat(2_000)});
    let (status, reply) = deliver(&server, "new", now(), &large).await;
    assert_eq!(status, 413, "{reply}");
    assert_eq!(reply["limit"], "payload_bytes");
    let unsigned = server.http.post(server.at("/v1/hooks/shop"));
    let (status, _) = answer(unsigned.body("x".repeat(3_000))).await;
    assert_eq!(status, 413, "before the sender is verified");
    let small = json!({"type": "something.else"});
    assert_eq!(deliver(&server, "new", now(), &small).await.0, 200);
}
