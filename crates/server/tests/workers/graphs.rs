//! Graphs that the server advances, with tasks run by workers over HTTP.

use serde_json::{Value, json};

use crate::common::Server;
use crate::workers::kit::{instance, on_both, result, start, until, worker};

/// The task of a run that has one, as soon as it is there.
async fn child(server: &Server, run: i64) -> Value {
    loop {
        let (_, page) = server.get(&format!("/v1/instances?parent={run}")).await;
        if let Some(child) = page["items"].get(0) {
            return child.clone();
        }
        tokio::task::yield_now().await;
    }
}

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
        // rules 5.2 and 15.3: as the same child, with the same token.
        let graph = json!({"steps": [{"name": "a", "task": "flaky", "retry": {"max_attempts": 2, "delay_ms": 10}}]});
        assert_eq!(server.put("/v1/graphs/g", &graph).await.0, 200);
        let hand = worker(&server).machine("task/flaky");
        let id = start(&server, json!({"graph": "g", "input": 5})).await;
        let token = |claim: &Value| (claim["instance_id"].clone(), claim["step_sequence"].clone());
        let claim = hand.one().await;
        assert_eq!(claim["attempt"], 0);
        let first = token(&claim);
        hand.done(&claim, json!({"fail": {"error": "once"}})).await;
        let claim = hand.one().await;
        assert_eq!((&claim["state"], &claim["attempt"], &claim["cause"]), (&json!(5), &json!(1), &json!("retry")));
        assert_eq!(token(&claim), first);
        hand.done(&claim, json!({"done": {"result": "twice"}})).await;
        assert_eq!(result(&server, id).await["result"], json!({"a": "twice"}));

        let id = start(&server, json!({"graph": "g", "input": 6})).await;
        for _ in 0..2 {
            let claim = hand.one().await;
            hand.done(&claim, json!({"fail": {"error": "broken"}})).await;
        }
        let ended = result(&server, id).await;
        assert_eq!(ended["status"], "failed");
        assert!(ended["last_error"].as_str().unwrap().contains("broken"), "{ended}");

        let id = start(&server, json!({"graph": "g", "input": 7})).await;
        let claim = hand.one().await;
        hand.done(&claim, json!({"stop": {"reason": "for good"}})).await;
        let ended = result(&server, id).await;
        assert!(ended["last_error"].as_str().unwrap().contains("for good"), "a stop is not tried again: {ended}");
    }

    async fn the_time_of_a_task_counts_from_its_claim(server: Server) {
        // rules 5.4 and 15.3: no worker was there for longer than the timeout, and nothing failed.
        let retry = json!({"max_attempts": 2, "delay_ms": 0});
        let graph = json!({"steps": [{"name": "a", "task": "slow", "timeout_ms": 150, "retry": retry}]});
        assert_eq!(server.put("/v1/graphs/g", &graph).await.0, 200);
        let id = start(&server, json!({"graph": "g", "input": 5})).await;
        let task = child(&server, id).await;
        assert_eq!(task["policy"], json!({"retry": retry, "step_timeout_ms": 150}));
        let other = worker(&server).machine("other").claim(1, 400).await;
        assert!(other.is_empty(), "the time passes, and no worker has code for the task");
        assert_eq!(instance(&server, id).await["state"]["steps"]["a"]["status"], "running");
        let hand = worker(&server).machine("task/slow");
        let late = hand.one().await;
        assert_eq!((&late["instance_id"], &late["attempt"]), (&task["id"], &json!(0)));
        // Nothing is heard of it until its time is up; then it comes again.
        let claim = hand.one().await;
        assert_eq!((&claim["instance_id"], &claim["attempt"]), (&task["id"], &json!(1)));
        assert_eq!(claim["step_sequence"], late["step_sequence"]);
        assert_eq!(hand.commit(&late, json!({"done": {"result": "late"}})).await, "stale");
        hand.done(&claim, json!({"done": {"result": "in time"}})).await;
        assert_eq!(result(&server, id).await["result"], json!({"a": "in time"}));
    }

    async fn a_schedule_timeout_bounds_a_task_that_no_worker_takes(server: Server) {
        // rule 15.3
        let graph = json!({"steps": [{"name": "a", "task": "none", "queue": "gpu", "schedule_timeout_ms": 200}]});
        assert_eq!(server.put("/v1/graphs/g", &graph).await.0, 200);
        let id = start(&server, json!({"graph": "g"})).await;
        let ended = result(&server, id).await;
        let expected = "task \"none\" did not end within 200 ms: it was waiting in queue \"gpu\" for a worker, attempt 1";
        assert!(ended["last_error"].as_str().unwrap().contains(expected), "{ended}");
        assert_eq!(child(&server, id).await["status"], "cancelled");
    }

    async fn an_instance_is_started_with_a_policy_of_its_own(server: Server) {
        // rules 5.2 and 5.4
        let policy = json!({"retry": {"max_attempts": 2, "delay_ms": 0}, "step_timeout_ms": 60_000});
        let hand = worker(&server);
        let id = start(&server, json!({"machine": "m", "policy": policy})).await;
        assert_eq!(instance(&server, id).await["policy"], policy);
        for attempt in 0..2 {
            let claim = hand.one().await;
            assert_eq!((&claim["attempt"], &claim["step_sequence"]), (&json!(attempt), &json!(1)));
            hand.done(&claim, json!({"fail": {"error": "no"}})).await;
        }
        assert_eq!(instance(&server, id).await["status"], "failed");
        let plain = start(&server, json!({"machine": "m"})).await;
        assert_eq!(instance(&server, plain).await["policy"], Value::Null);

        let bad = [
            (json!({"machine": "m", "policy": {"step_timeout_ms": 0}}), "step_timeout_ms is 1 at least"),
            (json!({"machine": "m", "policy": {"retry": {"max_attempts": 0, "delay_ms": 1}}}), "1 at least"),
            (json!({"machine": "m", "policy": {"timeout_ms": 5}}), "timeout_ms"),
            (json!({"graph": "g", "policy": {}}), "a graph has no `policy`"),
            (json!({"machine": "m", "key": "k", "reserve": true, "policy": {}}), "`machine` and `key` alone"),
        ];
        for (body, expected) in bad {
            let (status, problem) = server.post("/v1/instances", &body).await;
            assert_eq!(status, 422, "{body}: {problem}");
            assert!(problem.to_string().contains(expected), "{body}: {problem}");
        }
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
