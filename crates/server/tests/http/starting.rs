//! Starting instances, one at a time.

use serde_json::{Value, json};

use crate::http::on_both;

on_both! {
    async fn all_that_a_start_says_is_seen(server) {
        let request = json!({
            "machine": "shop", "version": 3, "key": "order:1", "step": "pay", "state": {"n": 1.50, "big": 12345678901234567890u64},
            "queue": "fast", "priority": -5, "partition_key": "customer:7", "unique_key": "u/1",
            "scope": ["runnable", "scheduled", "done"], "unique_scope": [], "delay_ms": 60_000,
        });
        let (status, started) = server.post("/v1/instances", &request).await;
        assert_eq!(status, 201, "{started}");
        let (status, seen) = server.get("/v1/instances/order:1").await;
        assert_eq!(status, 200, "{seen}");
        for field in ["machine", "version", "key", "step", "state", "queue", "priority", "partition_key", "unique_key"] {
            assert_eq!(seen[field], request[field], "{field}: {seen}");
        }
        assert_eq!((&seen["id"], &seen["run"], &seen["status"]), (&started["id"], &json!(1), &json!("scheduled")));
        assert_eq!(seen["scope"], json!(["scheduled", "runnable", "done"]));
        assert_eq!((&seen["unique_scope"], &seen["liveness"]), (&json!([]), &json!("scheduled")));
        assert!(seen["due_at"].as_str().unwrap() > seen["created_at"].as_str().unwrap(), "{seen}");
        assert_eq!(server.get(&format!("/v1/instances/{}", seen["id"])).await.1, seen, "by its id too");

        let (status, later) = server.post("/v1/instances", &json!({"machine": "shop", "due_at": "2099-01-01T00:00:00Z"})).await;
        assert_eq!(status, 201);
        let (_, seen) = server.get(&format!("/v1/instances/{}", later["id"])).await;
        assert_eq!((&seen["due_at"], &seen["step"], &seen["version"]), (&json!("2099-01-01T00:00:00Z"), &json!("start"), &json!(1)));
        assert_eq!((&seen["key"], &seen["state"]), (&Value::Null, &Value::Null));
    }

    async fn a_key_that_is_taken_names_its_holder(server) {
        // rule 2.2
        let (_, first) = server.post("/v1/instances", &json!({"machine": "shop", "key": "order:1"})).await;
        let (status, again) = server.post("/v1/instances", &json!({"machine": "shop", "key": "order:1"})).await;
        assert_eq!((status, &again["id"], &again["outcome"]), (409, &first["id"], &json!("duplicate")), "{again}");
        assert_eq!(again["type"], "/problems/duplicate");
        let (_, first) = server.post("/v1/instances", &json!({"machine": "shop", "unique_key": "u"})).await;
        let (status, again) = server.post("/v1/instances", &json!({"machine": "shop", "unique_key": "u"})).await;
        assert_eq!((status, &again["id"]), (409, &first["id"]), "{again}");
    }

    async fn what_contradicts_itself_is_refused_and_named(server) {
        let cases = [
            (json!({}), "neither a machine nor a graph"),
            (json!({"machine": "a", "graph": "b"}), "give one of them"),
            (json!({"machine": "a", "input": 1}), "`input` is a graph's"),
            (json!({"graph": "b", "state": 1, "version": 2, "step": "x"}), "`state` is a machine's"),
            (json!({"graph": "nowhere"}), "no graph"),
            (json!({"machine": "a", "due_at": "2099-01-01T00:00:00Z", "delay_ms": 1}), "`due_at` or `delay_ms`"),
            (json!({"machine": "a", "due_at": "tomorrow"}), "RFC 3339"),
            (json!({"machine": "a", "delay_ms": -1}), "-1"),
            (json!({"machine": "a", "delay_ms": 99_999_999_999_999u64}), "a hundred years"),
            (json!({"machine": "a", "key": "42"}), "digits only"),
            (json!({"machine": "a", "key": ""}), "empty"),
            (json!({"machine": "a", "key": "a\nb"}), "control character"),
            (json!({"machine": "a", "version": 0}), "version"),
            (json!({"machine": "a", "priority": 40_000}), "40000"),
            (json!({"machine": "a", "scope": ["sleeping"]}), "sleeping"),
            (json!({"machine": "a", "key": "k", "scope": ["executing"]}), "runnable"),
            (json!({"machine": "a", "reserve": true}), "`key`"),
            (json!({"machine": "a", "key": "k", "reserve": true, "state": 1}), "alone"),
            (json!({"machine": "graph/a"}), "`graph`"),
            (json!({"machine": "a", "colour": "red"}), "unknown field `colour`"),
        ];
        for (request, expected) in cases {
            let (status, body) = server.post("/v1/instances", &request).await;
            assert_eq!(status, 422, "{request}: {body}");
            assert!(body["detail"].as_str().unwrap().contains(expected), "{request}: {body}");
        }
        assert_eq!(server.get("/v1/instances").await.1["items"], json!([]), "nothing was started");
    }
}
