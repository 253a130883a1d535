//! The cause that woke an instance, and the operation and graph step that took a message, on every route that shows them.

use serde_json::{Value, json};

use crate::http::cart::{engine, standing};
use crate::http::on_both;

on_both! {
    async fn what_woke_it_is_shown_until_the_step_is_committed(server) {
        // rules 7.1 and 13.1
        let (_abide, engine) = engine(server).await;
        server.post("/v1/instances", &json!({"machine": "cart", "key": "c:1", "state": ["cup"]})).await;
        standing(server, "c:1", "awaiting_signal").await;
        let (_, seen) = server.get("/v1/instances/c:1").await;
        assert_eq!(seen["wait"]["resume_source"], Value::Null, "{seen}");
        engine.shutdown().await;

        let (status, refused) = server.post("/v1/instances/c:1/signals/nothing", &json!({})).await;
        assert_eq!((status, &refused["command_sequence"]), (404, &json!(1)), "{refused}");
        let (status, sent) = server.post("/v1/instances/c:1/signals/order", &json!({"payload": 1})).await;
        assert_eq!((status, &sent["command_sequence"], &sent["message_sequence"]), (202, &json!(2), &json!(1)), "{sent}");
        let woken_by = json!({"command_id": sent["command_id"], "kind": "signal"});
        let (_, seen) = server.get("/v1/instances/c:1").await;
        assert_eq!((&seen["status"], &seen["wait"]["resume_source"]), (&json!("runnable"), &woken_by), "{seen}");
        assert!(seen["wait"]["kind"] == "signal" && seen["wait"]["id"].is_string(), "{seen}");
        let (_, listed) = server.get("/v1/instances?status=runnable").await;
        assert_eq!(listed["items"][0]["wait"]["resume_source"], woken_by, "{listed}");
        let (_, records) = server.get("/v1/instances/c:1/signals").await;
        let numbers: Vec<&Value> = records["items"].as_array().unwrap().iter().map(|one| &one["command_sequence"]).collect();
        assert_eq!(numbers, [&json!(2), &json!(1)], "{records}");

        let (_abide, engine) = crate::http::cart::engine(server).await;
        standing(server, "c:1", "done").await;
        assert_eq!(server.get("/v1/instances/c:1").await.1["wait"], Value::Null);
        engine.shutdown().await;
    }

    async fn the_operation_and_the_step_of_a_graph_that_took_a_signal_are_shown(server) {
        // rules 7.6, 13.1 and 15.4
        let graph = json!({"steps": [
            {"name": "size", "wait_for_signal": {"signal": "go"}},
            {"name": "color", "wait_for_signal": {"signal": "go"}},
        ]});
        assert_eq!(server.put("/v1/graphs/choice", &graph).await.0, 200);
        server.post("/v1/instances", &json!({"graph": "choice", "key": "g:1", "input": null})).await;
        standing(server, "g:1", "awaiting_signal").await;
        let (_, seen) = server.get("/v1/instances/g:1").await;
        let waits = seen["wait"]["waits"].as_array().unwrap();
        let listed: Vec<(&Value, &Value)> = waits.iter().map(|one| (&one["operation"], &one["name"])).collect();
        assert_eq!(listed, [(&json!(1), &json!("go")), (&json!(2), &json!("go"))], "{seen}");
        let (_, open) = server.get("/v1/waits?instance=g:1").await;
        let open: Vec<&Value> = open["items"].as_array().unwrap().iter().map(|one| &one["operation"]).collect();
        assert_eq!(open, [&json!(1), &json!(2)]);

        for n in [1, 2] {
            server.post("/v1/instances/g:1/signals/go", &json!({"payload": n})).await;
        }
        let (_, result) = server.get("/v1/instances/g:1/result?wait_ms=30000").await;
        assert_eq!(result["result"], json!({"size": 1, "color": 2}), "{result}");
        let expected = [(1, 1, "size"), (2, 2, "color")].map(|(number, operation, step)| json!([number, operation, step]));
        let (_, records) = server.get("/v1/instances/g:1/signals").await;
        let mut listed: Vec<Value> = records["items"].as_array().unwrap().iter()
            .map(|one| json!([one["command_sequence"], one["operation"], one["graph_step"]])).collect();
        listed.reverse();
        assert_eq!(listed, expected, "{records}");
        let (_, history) = server.get("/v1/instances/g:1/history?limit=100").await;
        let events = history["items"].as_array().unwrap();
        let applied = events.iter().filter(|one| one["kind"] == "signal_applied").map(|one| &one["data"]);
        let listed: Vec<Value> = applied.map(|one| json!([one["command_sequence"], one["operation"], one["graph_step"]])).collect();
        assert_eq!(listed, expected, "{history}");
        let opened = events.iter().filter(|one| one["kind"] == "operation_opened").map(|one| &one["data"]["graph_step"]);
        assert_eq!(opened.collect::<Vec<_>>(), ["size", "color"], "{history}");
        server.until("nothing waits", async || { server.get("/v1/waits?instance=g:1").await.1["items"] == json!([]) }).await;
    }
}
