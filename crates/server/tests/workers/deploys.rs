//! Builds of workers over HTTP: what one cannot run is left to others.

use serde_json::json;

use crate::workers::kit::{instance, on_both, result, start, until, worker};

on_both! {
    async fn what_one_build_cannot_run_goes_to_another_at_once(server: Server) {
        // rules 12.4 and 4.1
        let (old, new) = (worker(&server).build("old"), worker(&server).build("new"));
        let id = start(&server, json!({"machine": "m", "key": "order:1"})).await;
        let claim = old.one().await;
        old.done(&claim, json!({"wait": {"signals": ["paid"], "next": "ship", "state": 1}})).await;
        let (status, sent) = server.post("/v1/instances/order:1/signals/paid", &json!({"payload": 7})).await;
        assert_eq!(status, 202, "{sent}");
        let claim = old.one().await;
        // The other one waits already when it is blocked.
        let waits = async { new.one().await };
        let blocks = async { old.done(&claim, json!({"block": {"reason": "m has no step ship"}})).await };
        let (again, ()) = tokio::join!(waits, blocks);
        assert_eq!(again["instance_id"], id);
        assert_eq!((&again["step"], &again["attempt"]), (&json!("ship"), &json!(0)));
        assert_eq!(again["step_sequence"], claim["step_sequence"]);
        assert_eq!(again["awaited"], claim["awaited"]);
        assert_eq!(again["awaited"][0]["payload"], 7);
        assert_eq!(again["cause"], "replay");
        old.none().await;
        new.done(&again, json!({"done": {"result": 1}})).await;
        assert_eq!(result(&server, id).await["result"], 1);
        let (_, history) = server.get(&format!("/v1/instances/{id}/history")).await;
        let events = history["items"].as_array().unwrap();
        let blocked = events.iter().find(|event| event["kind"] == "blocked").unwrap();
        assert_eq!((&blocked["data"]["build"], &blocked["data"]["reason"]), (&json!("old"), &json!("m has no step ship")));
    }

    async fn what_no_build_can_run_says_so_and_waits_for_one_that_starts(server: Server) {
        // rules 12.4 and 13.1
        let worker = worker(&server).build("1");
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"block": {"reason": "the state has no field currency"}})).await;
        let found = until(&server, id, "scheduled").await;
        assert_eq!((&found["liveness"], &found["liveness_code"]), (&json!("blocked"), &json!("blocked")));
        let reason = found["liveness_reason"].as_str().unwrap();
        assert!(reason.contains("no field currency (build 1)") && reason.ends_with("deploy a build that fits"), "{reason}");
        let (_, listed) = server.get("/v1/instances?liveness=blocked").await;
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
        worker.none().await;
        // It is started again, of the same build: more than that may have changed.
        worker.sign_off().await;
        let again = worker.one().await;
        assert_eq!((&again["instance_id"], &again["attempt"]), (&json!(id), &json!(0)));
        worker.done(&again, json!({"block": {"reason": "still"}})).await;
        until(&server, id, "scheduled").await;
        let (status, repaired) = server.post(&format!("/v1/instances/{id}/repair"), &json!({})).await;
        assert_eq!((status, &repaired["outcome"]), (200, &json!("repair_dispatched")), "{repaired}");
        let again = worker.one().await;
        worker.done(&again, json!({"done": {"result": 2}})).await;
        assert_eq!(result(&server, id).await["result"], 2);
    }

    async fn a_block_is_an_outcome_like_any_other(server: Server) {
        // rules 4.2 and 12.4
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let refused = worker.refused(&claim, json!({"block": {}})).await;
        assert!(refused.contains("`block.reason` is missing"), "{refused}");
        let refused = worker.refused(&claim, json!({"answer": {"updates": [], "then": {"block": {"reason": "no"}}}})).await;
        assert!(refused.contains("a block cannot follow an answer"), "{refused}");
        let long = "é\u{0}".repeat(100_000);
        worker.done(&claim, json!({"block": {"reason": long}})).await;
        let found = until(&server, id, "scheduled").await;
        let error = found["last_error"].as_str().unwrap();
        assert!(error.len() < 20_000 && error.contains("bytes in all"), "{} bytes", error.len());
        assert_eq!(instance(&server, id).await["attempt"], 0);
        let request = json!({"worker": "w", "build": "", "queue": "default", "machines": [{"name": "m", "version": 1}]});
        let (status, problem) = worker.post("/v1/workers/claim", &request).await;
        assert_eq!(status, 422, "{problem}");
    }
}
