//! Graphs that the server advances, with tasks run by workers over HTTP.

use serde_json::{Value, json};

use crate::kit::{instance, on_both, result, start, until, worker};

on_both! {
    async fn tasks_are_claimed_by_workers_and_the_server_does_the_rest(server: Server) {
        // rules 15.3 and 15.4
        let graph = json!({"steps": [
            {"name": "create", "task": "create"},
            {"name": "payment", "after": ["create"], "wait_for_event": {
                "event": "payment.received", "match": {"left": "order", "op": "eq", "right": "step.create.output.id"}, "timeout_ms": 60_000,
            }},
            {"name": "late", "task": "late", "after": ["payment"], "skip_if": {"step": "payment", "field": "amount", "op": "gt", "value": 0}},
            {"name": "ship", "task": "ship", "after": ["payment"]},
        ]});
        let (status, put) = server.put("/v1/graphs/order", &graph).await;
        assert_eq!(status, 200, "{put}");
        let id = start(&server, json!({"graph": "order", "key": "o:1", "input": {"item": "kettle"}})).await;

        let create = worker(&server).machine("task/create");
        let claim = create.one().await;
        assert_eq!((&claim["step"], &claim["version"], &claim["state"]), (&json!("run"), &json!(1), &json!({"item": "kettle"})));
        create.done(&claim, json!({"done": {"result": {"id": "ord_1"}}})).await;
        until(&server, id, "awaiting_signal").await;
        let (_, published) = server.post("/v1/events", &json!({"type": "payment.received", "payload": {"order": "ord_1", "amount": 9}})).await;
        assert_eq!(published["matched"], 1, "{published}");

        let ship = worker(&server).machine("task/ship");
        let claim = ship.one().await;
        assert_eq!(claim["state"], json!({"order": "ord_1", "amount": 9}));
        ship.done(&claim, json!({"done": {"result": "shipped"}})).await;
        let ended = result(&server, id).await;
        assert_eq!(ended["result"], json!({"late": null, "ship": "shipped"}));
        assert_eq!(instance(&server, id).await["state"]["steps"]["late"]["status"], "skipped");
    }

    async fn a_task_that_fails_is_tried_again_as_its_step_says(server: Server) {
        let graph = json!({"steps": [{"name": "a", "task": "flaky", "retry": {"max_attempts": 2, "delay_ms": 10}}]});
        assert_eq!(server.put("/v1/graphs/g", &graph).await.0, 200);
        let hand = worker(&server).machine("task/flaky");
        let id = start(&server, json!({"graph": "g", "input": 5})).await;
        let claim = hand.one().await;
        hand.done(&claim, json!({"fail": {"error": "once"}})).await;
        let claim = hand.one().await;
        assert_eq!(claim["state"], 5);
        hand.done(&claim, json!({"done": {"result": "twice"}})).await;
        assert_eq!(result(&server, id).await["result"], json!({"a": "twice"}));

        let id = start(&server, json!({"graph": "g", "input": 6})).await;
        for _ in 0..2 {
            let claim = hand.one().await;
            hand.done(&claim, json!({"stop": {"reason": "broken"}})).await;
        }
        let ended = result(&server, id).await;
        assert_eq!(ended["status"], "failed");
        assert!(ended["last_error"].as_str().unwrap().contains("broken"), "{ended}");
    }

    async fn a_graph_in_another_queue_is_advanced_too(server: Server) {
        let graph = json!({"steps": [{"name": "a", "task": "a", "queue": "gpu"}, {"name": "z", "sleep": {"duration_ms": 10}, "after": ["a"]}]});
        assert_eq!(server.put("/v1/graphs/g", &graph).await.0, 200);
        let id = start(&server, json!({"graph": "g", "queue": "nightly"})).await;
        let mut hand = worker(&server).machine("task/a");
        hand.queue = "gpu".into();
        let claim = hand.one().await;
        hand.done(&claim, json!({"done": {"result": 1}})).await;
        assert_eq!(result(&server, id).await["result"], json!({"z": Value::Null}));
    }

    async fn a_graph_waits_for_a_signal_that_comes_over_http(server: Server) {
        let graph = json!({"steps": [{"name": "ok", "wait_for_signal": {"signal": "approved", "timeout_ms": 60_000}}]});
        assert_eq!(server.put("/v1/graphs/g", &graph).await.0, 200);
        let id = start(&server, json!({"graph": "g", "key": "g:1"})).await;
        until(&server, id, "awaiting_signal").await;
        assert_eq!(server.post("/v1/instances/g:1/signals/approved", &json!({"payload": {"by": "ann"}})).await.0, 202);
        assert_eq!(result(&server, id).await["result"], json!({"ok": {"by": "ann"}}));
    }

    async fn a_server_without_graphs_fires_timers_all_the_same(server: Server) {
        let hand = worker(&server);
        start(&server, json!({"machine": "m", "delay_ms": 200})).await;
        hand.none().await;
        assert_eq!(hand.one().await["cause"], "start");
    }
}
