//! Declaring machines by hand.

use serde_json::json;

use crate::http::on_both;

on_both! {
    async fn a_declaration_counts_for_later_starts(server) {
        // rules 2.6, 8.1, 8.2
        let contract = json!({
            "signals": [{"name": "go"}, {"name": "set", "parameters": [
                {"name": "to", "type": "int|string"},
                {"name": "rest", "type": {"type": "string", "maxLength": 3}, "variadic": true},
            ]}],
            "updates": [{"name": "add", "parameters": [{"name": "n", "type": "int", "default": 1}]}],
            "queue": "special", "retry": {"max_attempts": 3, "delay_ms": 100, "factor": 2.0, "max_delay_ms": 1000},
            "step_timeout_ms": 5000, "history": true, "first_step": "begin",
        });
        let (status, body) = server.put("/v1/machines/robot/2", &contract).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!((&body["name"], &body["version"], &body["queue"]), (&json!("robot"), &json!(2), &json!("special")), "{body}");
        server.post("/v1/instances", &json!({"machine": "robot", "key": "r"})).await;
        let (_, seen) = server.get("/v1/instances/r").await;
        assert_eq!((&seen["version"], &seen["queue"], &seen["step"]), (&json!(2), &json!("special"), &json!("begin")), "{seen}");
        let (_, history) = server.get("/v1/instances/r/history").await;
        let started = &history["items"][0]["data"];
        assert_eq!((&started["declared_signals"], &started["declared_updates"]), (&json!(["go", "set"]), &json!(["add"])), "{started}");
        assert_eq!(server.post("/v1/instances/r/signals/set", &json!({"arguments": ["x", "a", "b"]})).await.0, 202);
        assert_eq!(server.post("/v1/instances/r/signals/set", &json!({"arguments": [1.5]})).await.0, 422);
        assert_eq!(server.post("/v1/instances/r/signals/go", &json!({"payload": {"any": "thing"}})).await.0, 202);

        // Again is allowed, for later starts; a run that has begun keeps what it began with.
        assert_eq!(server.put("/v1/machines/robot/2", &json!({})).await.0, 200);
        server.post("/v1/instances", &json!({"machine": "robot", "key": "s"})).await;
        assert_eq!(server.get("/v1/instances/s").await.1["queue"], "default");
        assert_eq!(server.post("/v1/instances/s/signals/whatever", &json!({})).await.0, 202);
        assert_eq!(server.post("/v1/instances/r/signals/whatever", &json!({})).await.0, 404);
        let (_, all) = server.get("/v1/machines").await;
        assert!(all["items"].as_array().unwrap().iter().any(|one| one["name"] == "robot" && one["version"] == 2), "{all}");
    }

    async fn a_bad_declaration_is_refused_with_all_its_problems(server) {
        let wrong = json!({"signals": [
            {"name": "a", "parameters": [{"name": "x", "type": "integer"}, {"name": "x"}]},
            {"name": "a"},
        ]});
        let (status, body) = server.put("/v1/machines/robot/1", &wrong).await;
        assert_eq!((status, &body["reason"]), (422, &json!("bad_contract")), "{body}");
        for expected in ["integer", "\"x\""] {
            assert!(body["detail"].as_str().unwrap().contains(expected), "{expected}: {body}");
        }
        for (path, body) in [
            ("/v1/machines/robot/0", json!({})),
            ("/v1/machines/robot/2147483648", json!({})),
            ("/v1/machines/robot/one", json!({})),
            ("/v1/machines/graph%2Fx/1", json!({})),
            ("/v1/machines/a%0ab/1", json!({})),
            ("/v1/machines/robot/1", json!({"signal": []})),
            ("/v1/machines/robot/1", json!({"queue": ""})),
            ("/v1/machines/robot/1", json!({"retry": {"max_attempts": 3}})),
            ("/v1/machines/robot/1", json!({"retry": {"max_attempts": 0, "delay_ms": 1}})),
            ("/v1/machines/robot/1", json!({"step_timeout_ms": 0})),
        ] {
            let (status, answer) = server.put(path, &body).await;
            assert!(status == 422 || status == 400, "{path} {body}: {status} {answer}");
        }
    }
}
