//! Every line of the decision table (rule 7.3), as its sender meets it over HTTP: code, outcome, reason and record.

use serde_json::{Value, json};

use crate::common::Server;
use crate::http::on_both;

/// A machine that takes `paid(amount: int, note: string?)` and nothing else; an instance of it waits for a worker.
async fn declare(server: &Server) {
    let contract = json!({"signals": [{"name": "paid", "parameters": [
        {"name": "amount", "type": "int"},
        {"name": "note", "type": "string", "nullable": true},
    ]}]});
    let (status, body) = server.put("/v1/machines/shop/1", &contract).await;
    assert_eq!(status, 200, "{body}");
}

async fn start(server: &Server, key: &str) -> i64 {
    let (status, body) = server
        .post("/v1/instances", &json!({"machine": "shop", "key": key}))
        .await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(
        (body["key"].as_str(), body["run"].as_i64()),
        (Some(key), Some(1))
    );
    body["id"].as_i64().unwrap()
}

async fn records(server: &Server, target: &str) -> Vec<Value> {
    let (status, body) = server.get(&format!("/v1/instances/{target}/signals")).await;
    assert_eq!(status, 200, "{body}");
    body["items"].as_array().unwrap().clone()
}

fn is_problem(body: &Value, status: u16, outcome: &str, reason: &str) {
    assert_eq!(body["status"], status, "{body}");
    assert_eq!(body["outcome"], outcome, "{body}");
    assert_eq!(body["reason"], reason, "{body}");
    assert!(
        body["type"].as_str().unwrap().starts_with("/problems/"),
        "{body}"
    );
    assert!(
        !body["title"].as_str().unwrap().is_empty() && !body["detail"].as_str().unwrap().is_empty(),
        "{body}"
    );
}

on_both! {
    async fn line_1_nothing_is_there(server) {
        // rule 7.3
        for target in ["absent", "987654"] {
            let (status, body) = server.post(&format!("/v1/instances/{target}/signals/paid"), &json!({"payload": 1})).await;
            assert_eq!((status, body["outcome"].as_str()), (404, Some("no_target")), "{body}");
            assert!(body.get("command_id").is_none(), "{body}");
        }
        assert_eq!(server.get("/v1/signals").await.1["items"], json!([]), "it leaves no record");
    }

    async fn line_1_what_is_held_is_taken_by_who_starts(server) {
        // rules 7.3, 7.8
        let (status, body) = server.post("/v1/instances/later/signals/go", &json!({"payload": 1, "hold_for_ms": 60_000})).await;
        assert_eq!((status, body["outcome"].as_str()), (202, Some("signal_held")), "{body}");
        assert_eq!((&body["instance_id"], &body["key"]), (&Value::Null, &json!("later")));
        let held = &records(server, "later").await[0];
        assert_eq!((held["status"].as_str(), held["outcome"].as_str()), (Some("held"), Some("signal_held")), "{held}");
        assert!(held["held_until"].is_string(), "{held}");
        let (_, listed) = server.get("/v1/signals?status=held&name=go&key=later").await;
        assert_eq!(listed["items"][0]["id"], body["command_id"]);

        server.post("/v1/instances", &json!({"machine": "free", "key": "later"})).await;
        let taken = &records(server, "later").await[0];
        assert_eq!((taken["status"].as_str(), &taken["message_sequence"]), (Some("received"), &json!(1)), "{taken}");
        // An id is never held for.
        let (status, _) = server.post("/v1/instances/424242/signals/go", &json!({"hold_for_ms": 60_000})).await;
        assert_eq!(status, 404);
    }

    async fn lines_2_and_3_a_dedup_key_is_used_once(server) {
        // rule 7.3
        declare(server).await;
        let id = start(server, "order:2").await;
        let path = "/v1/instances/order:2/signals/paid";
        let (status, first) = server.post(path, &json!({"arguments": [5], "dedup_key": "evt-1"})).await;
        assert_eq!((status, first["outcome"].as_str()), (202, Some("signal_received")), "{first}");
        assert_eq!((&first["instance_id"], &first["message_sequence"], &first["duplicate"]), (&json!(id), &json!(1), &json!(false)));

        // The same, written otherwise.
        let (status, again) = server.post(path, &json!({"payload": {"amount": 5, "note": null}, "dedup_key": "evt-1"})).await;
        assert_eq!((status, &again["duplicate"], &again["command_id"]), (200, &json!(true), &first["command_id"]), "{again}");
        assert_eq!(again["outcome"], "signal_received");

        let (status, other) = server.post(path, &json!({"arguments": [6], "dedup_key": "evt-1"})).await;
        assert_eq!(status, 409);
        is_problem(&other, 409, "rejected_conflicting_duplicate", "dedup_conflict");
        let all = records(server, "order:2").await;
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!((&all[0]["status"], &all[0]["reason"]), (&json!("rejected"), &json!("dedup_conflict")));
        assert_eq!(all[0]["id"], other["command_id"]);

        // Also when the instance has ended since.
        let (status, _) = server.post("/v1/instances/order:2/cancel", &json!({"reason": "test"})).await;
        assert_eq!(status, 200);
        let (status, late) = server.post(path, &json!({"arguments": [5], "dedup_key": "evt-1"})).await;
        assert_eq!((status, &late["duplicate"]), (200, &json!(true)), "{late}");
    }

    async fn line_4_what_is_reserved_takes_nothing(server) {
        // rules 2.7, 7.3
        declare(server).await;
        let (status, reserved) = server.post("/v1/instances", &json!({"machine": "shop", "key": "order:4", "reserve": true})).await;
        assert_eq!(status, 201, "{reserved}");
        assert_eq!(server.get("/v1/instances/order:4").await.1["status"], "reserved");
        let (status, body) = server.post("/v1/instances/order:4/signals/paid", &json!({"arguments": [1]})).await;
        assert_eq!(status, 409);
        is_problem(&body, 409, "rejected_not_started", "instance_not_started");
        assert_eq!(records(server, "order:4").await[0]["status"], "rejected");
        assert_eq!(start(server, "order:4").await, reserved["id"].as_i64().unwrap(), "it has the same id");
    }

    async fn lines_5_and_6_an_old_run_and_an_ended_one(server) {
        // rules 2.5, 7.3
        declare(server).await;
        let old = start(server, "order:5").await;
        server.post("/v1/instances/order:5/cancel", &json!({"reason": "test"})).await;
        let path = "/v1/instances/order:5/signals/paid";
        let (status, body) = server.post(path, &json!({"arguments": [1]})).await;
        assert_eq!(status, 409);
        is_problem(&body, 409, "rejected_not_active", "run_not_active");
        let (status, new) = server.post("/v1/instances/order:5/restart", &json!({})).await;
        assert_eq!((status, &new["run"], &new["key"]), (201, &json!(2), &json!("order:5")), "{new}");
        let (status, body) = server.post(&format!("/v1/instances/{old}/signals/paid"), &json!({"arguments": [1]})).await;
        assert_eq!(status, 409);
        is_problem(&body, 409, "rejected_not_current", "run_not_current");
        assert_eq!(body["current_id"], new["id"]);
        assert_eq!(server.post(path, &json!({"arguments": [1]})).await.0, 202, "the key is the newest");
    }

    async fn lines_7_and_8_the_contract(server) {
        // rules 7.3, 8.3
        declare(server).await;
        start(server, "order:7").await;
        let (status, body) = server.post("/v1/instances/order:7/signals/payed", &json!({})).await;
        assert_eq!(status, 404);
        is_problem(&body, 404, "rejected_unknown_signal", "unknown_signal");
        assert!(body["detail"].as_str().unwrap().ends_with("; it declares paid"), "{body}");

        let wrong = json!({"arguments": {"note": 7, "tip": 1}});
        let (status, body) = server.post("/v1/instances/order:7/signals/paid", &wrong).await;
        assert_eq!(status, 422);
        is_problem(&body, 422, "rejected_invalid_arguments", "invalid_signal_arguments");
        let errors = body["validation_errors"].as_object().unwrap();
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["amount", "note", "tip"], "all at once: {body}");
        let codes: Vec<&Value> = errors.values().map(|problems| &problems[0]["code"]).collect();
        assert_eq!(codes, ["missing", "wrong_type", "unknown"], "{body}");
        assert_eq!(errors["note"][0]["message"], "must be string, not an int");
        let record = &records(server, "order:7").await[0];
        assert_eq!((&record["validation_errors"], &record["status"]), (&body["validation_errors"], &json!("rejected")));
        assert!(record.get("message_sequence").is_none(), "a refused one takes no place: {record}");
        assert_eq!(record["source"], "http");
        let (_, body) = server.post("/v1/instances/order:7/signals/paid", &json!({"arguments": [1, "a", 3]})).await;
        assert_eq!(body["validation_errors"]["arguments"][0]["code"], "too_many", "{body}");
        let (_, body) = server.post("/v1/instances/order:7/signals/paid", &json!({"arguments": [null]})).await;
        assert_eq!(body["validation_errors"]["amount"][0]["code"], "null_not_allowed", "{body}");
    }

    async fn line_10_it_is_received(server) {
        // rule 7.3
        declare(server).await;
        let id = start(server, "order:10").await;
        for (n, with) in [json!({"payload": 5}), json!({"arguments": [5]}), json!({"arguments": {"amount": 5}}), json!({"payload": {"amount": 5}})]
            .iter()
            .enumerate()
        {
            let (status, body) = server.post(&format!("/v1/instances/{id}/signals/paid"), with).await;
            assert_eq!((status, body["outcome"].as_str()), (202, Some("signal_received")), "{body}");
            assert_eq!((&body["message_sequence"], &body["key"]), (&json!(n + 1), &json!("order:10")));
        }
        for record in records(server, "order:10").await {
            assert_eq!(record["arguments"], json!({"amount": 5, "note": null}), "{record}");
        }
        let (status, body) = server.post(&format!("/v1/instances/{id}/signals/paid"), &json!({"payload": 5, "arguments": [5]})).await;
        assert_eq!(status, 422, "{body}");
        assert!(body["detail"].as_str().unwrap().contains("not both"), "{body}");
    }
}

#[tokio::test]
async fn line_9_on_sqlite() {
    line_9_an_inbox_and_a_payload_have_limits(crate::common::server()).await;
}

#[tokio::test]
async fn line_9_on_postgres() {
    let setup = crate::common::server().over(crate::common::postgres());
    line_9_an_inbox_and_a_payload_have_limits(setup).await;
}

async fn line_9_an_inbox_and_a_payload_have_limits(setup: crate::common::Setup) {
    // rules 7.3, 16.3
    let server = setup
        .set("limits.inbox_pending", 2)
        .set("limits.payload_bytes", 100)
        .start();
    server
        .post("/v1/instances", &json!({"machine": "free", "key": "full"}))
        .await;
    let path = "/v1/instances/full/signals/go";
    let (status, body) = server
        .post(path, &json!({"payload": "x".repeat(200)}))
        .await;
    let limit = json!([body["limit"], body["most"], body["met"]]);
    assert_eq!(
        (status, limit),
        (413, json!(["payload_bytes", 100, 204])),
        "{body}"
    );
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("100") && detail.contains("204"), "{detail}");
    is_problem(&body, 413, "rejected_limit_exceeded", "payload_too_large");
    assert_eq!(records(&server, "full").await[0]["arguments"], Value::Null);
    for _ in 0..2 {
        assert_eq!(server.post(path, &json!({})).await.0, 202);
    }
    let (status, body) = server.post(path, &json!({})).await;
    let limit = json!([body["limit"], body["most"], body["met"]]);
    assert_eq!(
        (status, limit),
        (409, json!(["inbox_pending", 2, 3])),
        "{body}"
    );
    is_problem(&body, 409, "rejected_limit_exceeded", "inbox_full");
}

on_both! {
    async fn with_a_start_it_is_delivered_or_starts(server) {
        // rule 7.9
        declare(server).await;
        let request = |amount: Value| json!({"start": {"machine": "shop", "key": "order:ws"}, "name": "paid", "arguments": [amount]});
        let (status, refused) = server.post("/v1/signal-with-start", &request(json!("much"))).await;
        assert_eq!(status, 422, "{refused}");
        is_problem(&refused, 422, "rejected_invalid_arguments", "invalid_signal_arguments");
        assert_eq!(server.get("/v1/instances/order:ws").await.0, 404, "then nothing starts");
        let (status, started) = server.post("/v1/signal-with-start", &request(json!(1))).await;
        assert_eq!((status, &started["message_sequence"]), (201, &json!(1)), "{started}");
        let (status, sent) = server.post("/v1/signal-with-start", &request(json!(2))).await;
        assert_eq!((status, &sent["instance_id"]), (202, &started["instance_id"]), "{sent}");
        for odd in [
            json!({"start": {"machine": "shop"}, "name": "paid"}),
            json!({"start": {"machine": "shop", "key": "a", "reserve": true}, "name": "paid"}),
            json!({"start": {"machine": "shop", "key": "a"}, "name": "paid", "hold_for_ms": 5}),
        ] {
            assert_eq!(server.post("/v1/signal-with-start", &odd).await.0, 422, "{odd}");
        }
    }
}
