//! The outbox of the server's database: taken by the server, and looked at and put right over HTTP.

use abide::outbox::OutboxRequest;
use serde_json::{Value, json};

use crate::common::{Server, insert_request};
use crate::http::on_both;

/// Asks until it is as it should be.
async fn until(server: &Server, path: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let (_, body) = server.get(path).await;
        if is(&body) {
            return body;
        }
        assert!(std::time::Instant::now() < deadline, "{path}: {body}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

on_both! {
    async fn a_server_takes_requests_and_lists_those_that_it_refused(server) {
        // rule 17.3
        let (status, empty) = server.get("/v1/outbox").await;
        assert_eq!((status, empty), (200, json!({"waiting": 0, "oldest_at": null, "refused": 0})));
        insert_request(&server.store, r#"{"start": {"machine": "shop", "key": "o:1", "state": 7}}"#);
        insert_request(&server.store, r#"{"signal": {"target": "o:2", "name": "paid"}}"#);
        insert_request(&server.store, "{");
        until(server, "/v1/instances/o:1", |body| body["state"] == 7).await;
        until(server, "/v1/outbox", |body| body["refused"] == 2 && body["waiting"] == 0).await;
        let (_, first) = server.get("/v1/outbox/refused?limit=1").await;
        assert_eq!((&first["items"][0]["request"], &first["items"][0]["reason"]), (&json!("{"), &json!("bad_request")), "{first}");
        let next = first["next_cursor"].as_str().unwrap();
        let (_, second) = server.get(&format!("/v1/outbox/refused?limit=1&cursor={next}")).await;
        let refused = &second["items"][0];
        assert_eq!((&refused["reason"], &second["next_cursor"]), (&json!("no_target"), &Value::Null), "{second}");
        assert!(refused["problem"].as_str().unwrap().contains("hold_for_ms"), "{refused}");
        assert!(refused["created_at"].is_string() && refused["refused_at"].is_string(), "{refused}");

        // Put right, and taken again.
        server.post("/v1/instances", &json!({"machine": "shop", "key": "o:2"})).await;
        let at = |id: &Value, what: &str| format!("/v1/outbox/refused/{id}/{what}");
        let (status, body) = server.post(&at(&refused["id"], "retry"), &json!({})).await;
        assert_eq!((status, body), (200, json!({"outcome": "requeued"})));
        until(server, "/v1/instances/o:2/signals", |body| body["items"][0]["name"] == "paid").await;
        let (status, body) = server.post(&at(&refused["id"], "retry"), &json!({})).await;
        assert_eq!((status, &body["title"].is_string()), (404, &true), "{body}");
        let (status, body) = server.post(&at(&first["items"][0]["id"], "discard"), &json!({})).await;
        assert_eq!((status, body), (200, json!({"outcome": "discarded"})));
        until(server, "/v1/outbox", |body| body["refused"] == 0).await;
        assert_eq!(server.post("/v1/outbox/refused/nine/retry", &json!({})).await.0, 400);
        assert_eq!(server.post(&at(&json!(1), "retry"), &json!({"why": 1})).await.0, 422);
    }
}

#[tokio::test]
async fn the_outbox_knows_every_field_that_the_http_interface_takes() {
    // rule 17.3: what is said over HTTP can be said there.
    let server = crate::common::server().start();
    let (_, described) = server.get("/openapi.json").await;
    for (schema, request) in [
        ("StartRequest", "start"),
        ("SignalRequest", "signal"),
        ("SignalWithStart", "signal_with_start"),
        ("PublishRequest", "publish"),
        ("CancelRequest", "cancel"),
    ] {
        let fields = &described["components"]["schemas"][schema]["properties"];
        let fields = fields.as_object().unwrap_or_else(|| panic!("no {schema}"));
        assert!(!fields.is_empty());
        for field in fields.keys() {
            // A value that fits nothing: what is refused of it is the value, not the field.
            let text = json!({request: {field: [[]]}}).to_string();
            let refused = serde_json::from_str::<OutboxRequest>(&text);
            let refused = refused.map_or_else(|error| error.to_string(), |_| String::new());
            assert!(
                !refused.contains("unknown field"),
                "{request}.{field}: {refused}"
            );
        }
    }
}
