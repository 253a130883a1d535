//! Updates: accepted, completed, failed, late, refused.

use serde_json::json;

use crate::http::cart::{engine, standing};
use crate::http::on_both;

on_both! {
    async fn an_update_is_answered(server) {
        // rules 9.1, 9.2, 9.3
        let (_abide, engine) = engine(server).await;
        let (_, started) = server.post("/v1/instances", &json!({"machine": "cart", "key": "c:1", "state": []})).await;
        standing(server, "c:1", "awaiting_signal").await;
        let path = "/v1/instances/c:1/updates/add";
        let (status, body) = server.post(path, &json!({"arguments": ["cup"], "request_id": "r-1", "wait_for": "completed"})).await;
        assert_eq!((status, &body["update_status"], &body["result"]), (200, &json!("completed"), &json!(1)), "{body}");
        assert_eq!((&body["instance_id"], &body["message_sequence"]), (&started["id"], &json!(1)), "{body}");
        assert_eq!(server.get("/v1/instances/c:1").await.1["state"], json!(["cup"]));

        let (status, again) = server.post(path, &json!({"arguments": ["cup"], "request_id": "r-1"})).await;
        assert_eq!((status, &again["update_id"], &again["result"]), (200, &body["update_id"], &json!(1)), "{again}");
        assert_eq!(again["duplicate"], true);
        let (status, other) = server.post(path, &json!({"arguments": ["pot"], "request_id": "r-1"})).await;
        assert_eq!((status, &other["outcome"]), (409, &json!("rejected_conflicting_duplicate")), "{other}");

        let (status, failed) = server.post(path, &json!({"arguments": [""]})).await;
        assert_eq!((status, &failed["update_status"], &failed["error"]), (422, &json!("failed"), &json!("an item has a name")), "{failed}");
        assert_eq!(failed["status"], 422);
        let (status, invalid) = server.post(path, &json!({"arguments": [7]})).await;
        assert_eq!((status, &invalid["outcome"], &invalid["reason"]), (422, &json!("rejected_invalid_arguments"), &json!("invalid_update_arguments")), "{invalid}");
        assert!(invalid["validation_errors"].is_object() && invalid["update_status"] == "rejected", "{invalid}");
        let (status, unknown) = server.post("/v1/instances/c:1/updates/drop", &json!({"arguments": []})).await;
        assert_eq!((status, &unknown["outcome"], &unknown["reason"]), (404, &json!("rejected_unknown_update"), &json!("unknown_update")), "{unknown}");
        assert!(unknown["detail"].as_str().unwrap().ends_with("; it declares add"), "{unknown}");

        let (status, record) = server.get(&format!("/v1/updates/{}", failed["update_id"])).await;
        assert_eq!((status, &record["update_status"], &record["error"]), (200, &json!("failed"), &json!("an item has a name")), "{record}");
        assert_eq!((&record["name"], &record["source"]), (&json!("add"), &json!("http")));
        let (_, all) = server.get("/v1/instances/c:1/updates").await;
        let statuses: Vec<&str> = all["items"].as_array().unwrap().iter().map(|one| one["update_status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["rejected", "rejected", "failed", "rejected", "completed"], "newest first, refused ones too");
        assert_eq!(server.get("/v1/instances/c:1/signals").await.1["items"], json!([]), "they are no signals");
        engine.shutdown().await;
    }

    async fn a_late_answer_is_fetched_by_its_id(server) {
        // rule 9.1
        let (abide, engine) = engine(server).await;
        engine.shutdown().await;
        server.post("/v1/instances", &json!({"machine": "cart", "key": "c:1", "state": []})).await;
        let path = "/v1/instances/c:1/updates/add";
        let (status, accepted) = server.post(path, &json!({"arguments": ["cup"], "wait_for": "accepted"})).await;
        assert_eq!((status, &accepted["update_status"], &accepted["outcome"]), (202, &json!("accepted"), &json!("update_accepted")), "{accepted}");
        let (status, late) = server.post(path, &json!({"arguments": ["pot"], "wait_ms": 50})).await;
        assert_eq!((status, &late["update_status"]), (202, &json!("accepted")), "{late}");
        let record = format!("/v1/updates/{}", late["update_id"]);
        let (status, pending) = server.get(&format!("{record}?wait_ms=50")).await;
        assert_eq!((status, &pending["update_status"]), (200, &json!("accepted")), "{pending}");

        let engine = abide.engine().machine(crate::http::cart::Cart).start().await.unwrap();
        let (status, answered) = server.get(&format!("{record}?wait_ms=20000")).await;
        assert_eq!((status, &answered["update_status"], &answered["result"]), (200, &json!("completed"), &json!(2)), "{answered}");
        engine.shutdown().await;
    }

    async fn an_unknown_update_is_not_found(server) {
        server.post("/v1/instances", &json!({"machine": "free", "key": "f"})).await;
        let (_, signal) = server.post("/v1/instances/f/signals/go", &json!({})).await;
        assert_eq!(server.get(&format!("/v1/updates/{}", signal["command_id"])).await.0, 404);
        assert_eq!(server.get("/v1/updates/987654321").await.0, 404);
        assert_eq!(server.get("/v1/updates/x").await.0, 400);
        let (status, body) = server.post("/v1/instances/absent/updates/add", &json!({})).await;
        assert_eq!((status, &body["outcome"]), (404, &json!("no_target")), "{body}");
        for odd in [json!({"payload": 1}), json!({"wait_for": "ever"}), json!({"arguments": 3})] {
            assert_eq!(server.post("/v1/instances/f/updates/add", &odd).await.0, 422, "{odd}");
        }
        let (status, body) = server.post("/v1/instances/f/updates/add", &json!({"wait_ms": 60_001})).await;
        assert_eq!((status, &body["limit"], &body["most"]), (400, &json!("wait_ms"), &json!(60_000)), "{body}");
    }
}
