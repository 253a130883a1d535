//! Cancel, restart, repair.

use serde_json::json;

use crate::http::on_both;

on_both! {
    async fn an_instance_is_cancelled_once(server) {
        // rules 11.1, 11.2
        let (_, started) = server.post("/v1/instances", &json!({"machine": "shop", "key": "o:1"})).await;
        let (status, body) = server.post("/v1/instances/o:1/cancel", &json!({"reason": "not wanted", "children": "leave"})).await;
        assert_eq!((status, &body["outcome"], &body["id"]), (200, &json!("cancelled"), &started["id"]), "{body}");
        let (_, seen) = server.get("/v1/instances/o:1").await;
        assert_eq!((&seen["status"], &seen["liveness"]), (&json!("cancelled"), &json!("closed")), "{seen}");
        let (_, history) = server.get("/v1/instances/o:1/history").await;
        let last = history["items"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["kind"], &last["data"]["reason"]), (&json!("cancelled"), &json!("not wanted")), "{history}");

        let (status, body) = server.post("/v1/instances/o:1/cancel", &json!({})).await;
        assert_eq!((status, &body["outcome"], &body["reason"]), (409, &json!("rejected_not_active"), &json!("run_not_active")), "{body}");
        assert_eq!(server.post("/v1/instances/absent/cancel", &json!({})).await.0, 404);
        assert_eq!(server.post("/v1/instances/o:1/cancel", &json!({"children": "eat"})).await.0, 422);
        assert_eq!(server.post("/v1/instances/o:1/cancel", &json!({"why": "x"})).await.0, 422);
    }

    async fn what_failed_or_was_cancelled_is_restarted(server) {
        // rule 11.2
        let (_, first) = server.post("/v1/instances", &json!({"machine": "shop", "key": "o:1", "state": 7})).await;
        let (status, body) = server.post("/v1/instances/o:1/restart", &json!({})).await;
        assert_eq!((status, &body["outcome"]), (409, &json!("rejected_not_restartable")), "{body}");
        server.post("/v1/instances/o:1/cancel", &json!({"reason": "x"})).await;
        let (status, body) = server.post("/v1/instances/o:1/restart", &json!({"step": "again"})).await;
        assert_eq!((status, &body["key"], &body["run"]), (201, &json!("o:1"), &json!(2)), "{body}");
        assert_ne!(body["id"], first["id"]);
        let (_, seen) = server.get("/v1/instances/o:1").await;
        assert_eq!((&seen["step"], &seen["state"], &seen["attempt"]), (&json!("again"), &json!(7), &json!(0)), "{seen}");
        let old = format!("/v1/instances/{}", first["id"]);
        let (status, body) = server.post(&format!("{old}/restart"), &json!({})).await;
        assert_eq!((status, &body["outcome"]), (409, &json!("rejected_not_current")), "{body}");
        assert!(body["current_id"].is_i64(), "{body}");
    }

    async fn what_is_well_needs_no_repair(server) {
        // rule 11.3
        server.post("/v1/instances", &json!({"machine": "shop", "key": "o:1"})).await;
        let (status, body) = server.post("/v1/instances/o:1/repair", &json!({})).await;
        assert_eq!((status, body), (200, json!({"outcome": "repair_not_needed"})));
        let bare = server.http.post(server.at("/v1/instances/o:1/repair"));
        assert_eq!(crate::common::answer(bare).await.0, 200, "without a body, too");
        server.post("/v1/instances", &json!({"machine": "shop", "key": "r", "reserve": true})).await;
        let (status, body) = server.post("/v1/instances/r/repair", &json!({})).await;
        assert_eq!((status, &body["outcome"]), (409, &json!("rejected_not_started")), "{body}");
        assert_eq!(server.post("/v1/instances/absent/repair", &json!({})).await.0, 404);
    }
}
