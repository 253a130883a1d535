//! Reading one instance: its wait, its health, and its result.

use abide::message::eq;
use abide::model::Limits;
use abide::time::hours;
use abide::{Abide, Event, Flow, Workflow};
use serde_json::{Value, json};

use crate::http::cart::{engine, standing};
use crate::http::on_both;

on_both! {
    async fn all_events_that_it_waits_for_are_shown_however_many(server) {
        // rule 13.1: a server showed as many as its own limit `names_per_wait` allows, 100, although an engine with
        // another limit had opened 250.
        const MANY: Flow<u32, usize> = Flow::new("many");
        let limits = Limits { names_per_wait: 1_000, ..Limits::default() };
        let abide = Abide::options().limits(limits).open(&server.store).await.unwrap();
        let code = |wf: Workflow, count: u32| async move {
            let tick = |n| Event::new("tick").matching("n", eq(n));
            let waits = (0..count).map(|n| wf.event::<Value>(tick(n)).timeout(hours(1)));
            Ok(wf.all(waits.collect::<Vec<_>>()).await.len())
        };
        let engine = abide.engine().workflow(MANY, code).start().await.unwrap();
        abide.start(MANY, 250).key("m:1").await.unwrap();
        standing(server, "m:1", "awaiting_signal").await;
        let (_, one) = server.get("/v1/instances/m:1").await;
        let (_, list) = server.get("/v1/instances?machine=many").await;
        for seen in [&one, &list["items"][0]] {
            let events = seen["wait"]["events"].as_array().unwrap();
            let values: Vec<&Value> = events.iter().map(|event| &event["conditions"][0]["right"]).collect();
            assert_eq!(values, (0..250).map(Value::from).collect::<Vec<_>>().iter().collect::<Vec<_>>());
        }
        engine.shutdown().await;
    }

    async fn what_it_waits_for_and_whether_that_is_healthy(server) {
        // section 13
        let (_, started) = server.post("/v1/instances", &json!({"machine": "cart", "key": "c:1", "step": "fill", "state": []})).await;
        let (_, seen) = server.get("/v1/instances/c:1").await;
        assert_eq!((&seen["liveness"], &seen["liveness_code"]), (&json!("waiting_for_worker"), &json!("no_worker")), "{seen}");
        assert_eq!((&seen["liveness_reason"], &seen["liveness_command_id"]), (&json!("no live worker serves queue default with code for cart version 1"), &Value::Null), "{seen}");
        assert_eq!(seen["wait"], Value::Null);

        let (_abide, engine) = engine(server).await;
        standing(server, "c:1", "awaiting_signal").await;
        let (_, seen) = server.get("/v1/instances/c:1").await;
        assert_eq!((&seen["liveness"], &seen["step"]), (&json!("waiting_for_signal"), &json!("order")), "{seen}");
        assert_eq!((&seen["liveness_code"], &seen["liveness_reason"]), (&Value::Null, &Value::Null), "{seen}");
        let wait = &seen["wait"];
        assert_eq!((&wait["kind"], &wait["names"], &wait["events"]), (&json!("signal"), &json!(["order", "fail"]), &json!([])), "{wait}");
        assert!(wait["id"].is_string() && wait["since"].is_string() && wait["deadline"].is_string(), "{wait}");

        let (_, listed) = server.get("/v1/instances?waiting_for=order&wait_kind=signal&liveness=waiting_for_signal").await;
        assert_eq!(listed["items"][0]["id"], started["id"], "{listed}");
        let (_, waits) = server.get("/v1/waits?kind=signal&name=order").await;
        let open = &waits["items"][0];
        assert_eq!((&open["instance_id"], &open["key"], &open["name"]), (&started["id"], &json!("c:1"), &json!("order")), "{waits}");
        assert_eq!((&open["wait_id"], &open["deadline"]), (&wait["id"], &wait["deadline"]));
        assert!(open.get("conditions").is_none());
        assert_eq!(server.get("/v1/waits?instance=c:1").await.1["items"].as_array().unwrap().len(), 2);
        assert_eq!(server.get("/v1/waits?instance=absent").await.0, 404);
        assert_eq!(server.get("/v1/waits?kind=event").await.1["items"], json!([]));
        assert_eq!(server.get("/v1/waits?kind=timer").await.0, 400);
        engine.shutdown().await;
    }

    async fn a_result_is_waited_for(server) {
        let (_abide, engine) = engine(server).await;
        server.post("/v1/instances", &json!({"machine": "cart", "key": "c:1", "state": ["cup"]})).await;
        let (status, body) = server.get("/v1/instances/c:1/result").await;
        assert_eq!(status, 202, "{body}");
        assert!(body.get("result").is_none(), "{body}");
        let (status, _) = server.get("/v1/instances/c:1/result?wait_ms=30").await;
        assert_eq!(status, 202);
        let waiting = server.get("/v1/instances/c:1/result?wait_ms=20000");
        let signal = async {
            standing(server, "c:1", "awaiting_signal").await;
            server.post("/v1/instances/c:1/signals/order", &json!({"payload": 1})).await
        };
        let ((status, body), (sent, _)) = tokio::join!(waiting, signal);
        assert_eq!((sent, status), (202, 200), "{body}");
        assert_eq!((&body["status"], &body["result"], &body["key"]), (&json!("done"), &json!(["cup"]), &json!("c:1")));
        assert!(body.get("last_error").is_none());

        server.post("/v1/instances", &json!({"machine": "cart", "key": "c:2", "state": ["bomb"]})).await;
        server.post("/v1/instances/c:2/signals/order", &json!({"payload": 1})).await;
        let (status, body) = server.get("/v1/instances/c:2/result?wait_ms=20000").await;
        assert_eq!((status, &body["status"], &body["last_error"]), (200, &json!("failed"), &json!("there is a bomb in it")), "{body}");
        assert_eq!(server.get("/v1/instances/absent/result").await.0, 404);
        let (status, body) = server.get("/v1/instances/c:2/result?wait_ms=60001").await;
        assert_eq!((status, &body["limit"], &body["most"]), (400, &json!("wait_ms"), &json!(60_000)), "{body}");
        engine.shutdown().await;
    }

    async fn a_chain_is_followed_to_its_end(server) {
        // rule 2.4
        let (_abide, engine) = engine(server).await;
        let (_, first) = server.post("/v1/instances", &json!({"machine": "cart", "key": "c:1", "state": ["bomb"]})).await;
        server.post("/v1/instances/c:1/signals/order", &json!({"payload": 1})).await;
        standing(server, "c:1", "failed").await;
        server.post("/v1/instances/c:1/restart", &json!({"step": "fill"})).await;
        let (_, runs) = server.get("/v1/instances/c:1/runs").await;
        let runs = runs["items"].as_array().unwrap();
        assert_eq!(runs.iter().map(|run| run["run"].as_i64().unwrap()).collect::<Vec<_>>(), [2, 1], "newest first");
        assert!(runs.iter().all(|run| run["first_id"] == first["id"]), "{runs:?}");
        assert_eq!(server.get(&format!("/v1/instances/{}", first["id"])).await.1["status"], "failed");
        assert_eq!(server.get("/v1/instances/c:1/children").await.1["items"], json!([]));
        engine.shutdown().await;
    }

    async fn without_a_key_an_id_follows_its_chain(server) {
        // rule 2.5
        let (_abide, engine) = engine(server).await;
        let (_, first) = server.post("/v1/instances", &json!({"machine": "cart", "state": ["bomb"]})).await;
        let (id, at) = (&first["id"], format!("/v1/instances/{}", first["id"]));
        server.post(&format!("{at}/signals/order"), &json!({"payload": 1})).await;
        standing(server, &id.to_string(), "failed").await;
        let (_, failed) = server.get(&format!("{at}/result")).await;
        assert_eq!((&failed["id"], &failed["run"], &failed["status"]), (id, &json!(1), &json!("failed")), "{failed}");
        let (_, second) = server.post(&format!("{at}/restart"), &json!({"step": "fill"})).await;
        standing(server, &second["id"].to_string(), "awaiting_signal").await;
        let (_, now) = server.get(&at).await;
        assert_eq!((&now["id"], &now["run"], &now["status"]), (&second["id"], &json!(2), &json!("awaiting_signal")), "{now}");
        let (status, now) = server.get(&format!("{at}/result")).await;
        assert_eq!((status, &now["id"], &now["run"]), (202, &second["id"], &json!(2)), "{now}");
        assert_eq!(server.get(&format!("{at}/history")).await.1["items"][0]["data"]["run_number"], 1, "that of the run");
        let (status, refused) = server.post(&format!("{at}/signals/order"), &json!({"payload": 1})).await;
        assert_eq!((status, &refused["outcome"], &refused["current_id"]), (409, &json!("rejected_not_current"), &second["id"]));
        engine.shutdown().await;
    }

    async fn how_much_there_is(server) {
        let (_, empty) = server.get("/v1/stats").await;
        assert_eq!(empty["statuses"], json!({}), "{empty}");
        assert!(empty["version"].is_string() && empty["uptime_ms"].is_u64(), "{empty}");
        let (abide, engine) = engine(server).await;
        server.post("/v1/instances", &json!({"machine": "cart", "key": "c:1", "state": []})).await;
        standing(server, "c:1", "awaiting_signal").await;
        server.post("/v1/instances", &json!({"machine": "unserved", "queue": "slow"})).await;
        let (_, stats) = server.get("/v1/stats").await;
        assert_eq!((&stats["statuses"], &stats["waits"]), (&json!({"awaiting_signal": 1, "runnable": 1}), &json!({"signal": 1})), "{stats}");
        assert_eq!(stats["queues"], 2, "{stats}");
        let (_, queues) = server.get("/v1/queues").await;
        let slow = queues["items"].as_array().unwrap().iter().find(|queue| queue["queue"] == "slow").unwrap();
        assert_eq!(slow["statuses"], json!({"runnable": 1}), "{queues}");
        assert!(slow["oldest_ready_at"].is_string() && slow["oldest_ready_age_ms"].is_u64(), "{queues}");
        let (_, workers) = server.get("/v1/workers").await;
        let ours = workers["items"].as_array().unwrap().iter().find(|worker| worker["machines"][0]["name"] == "cart");
        let ours = ours.unwrap_or_else(|| panic!("{workers}"));
        assert!(ours["lease_until"].is_string() && ours["queues"] == json!(["default"]), "{ours}");
        engine.shutdown().await;
        abide.close().await;
    }
}
