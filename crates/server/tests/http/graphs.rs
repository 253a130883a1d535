//! Graphs that are put, started, and advanced by the server.

use serde_json::json;

use crate::http::cart::standing;
use crate::http::on_both;

on_both! {
    async fn a_graph_is_put_and_has_a_hash_of_what_it_says(server) {
        // rule 15.1
        let graph = json!({"steps": [{"name": "a", "task": "fetch"}, {"name": "b", "task": "store", "after": ["a"]}]});
        let (status, first) = server.put("/v1/graphs/two", &graph).await;
        assert_eq!((status, &first["name"]), (200, &json!("two")), "{first}");
        assert_eq!(first["hash"].as_str().unwrap().len(), 64, "{first}");
        assert_eq!(server.put("/v1/graphs/two", &graph).await.1, first, "again is the same");
        let other = json!({"steps": [{"name": "a", "task": "fetch"}]});
        assert_ne!(server.put("/v1/graphs/two", &other).await.1["hash"], first["hash"]);
        let (status, seen) = server.get("/v1/graphs/two").await;
        assert_eq!((status, seen["steps"].as_array().unwrap().len()), (200, 1), "{seen}");
        assert_eq!(server.get("/v1/graphs").await.1["items"][0]["name"], "two");
        assert_eq!(server.get("/v1/graphs/three").await.0, 404);
    }

    async fn all_problems_are_reported_at_once(server) {
        // rule 15.2
        let wrong = json!({"steps": [
            {"name": "a", "tsak": "fetch"},
            {"name": "b", "task": "x", "after": ["nowhere"]},
            {"name": "b", "sleep": {"duration_ms": 0}},
            {"name": "c", "graph": "unknown"},
            {"name": "d", "graph": "bad"},
            {"name": "e", "wait_for_event": {"event": "paid", "match": {"left": "id", "op": "like", "right": 1}, "timeout_ms": 5}},
            {"name": "f", "task": "x", "after": ["g"]},
            {"name": "g", "task": "x", "after": ["f"]},
            {"name": "h", "task": "x", "after": ["a"]},
            17,
        ]});
        let (status, body) = server.put("/v1/graphs/bad", &wrong).await;
        assert_eq!(status, 422, "{body}");
        let problems = body["problems"].as_array().unwrap();
        let reported = |step: &str, part: &str| {
            problems.iter().any(|one| one["step"] == step && one["message"].as_str().unwrap().contains(part))
        };
        assert!(reported("a", "unknown field `tsak`"), "{body}");
        assert!(reported("b", "nowhere") && reported("b", "two steps"), "{body}");
        assert!(reported("c", "no graph \"unknown\""), "{body}");
        assert!(reported("d", "step of itself"), "{body}");
        assert!(reported("e", "like"), "{body}");
        assert!(reported("f", "circle") && reported("g", "circle"), "{body}");
        assert!(!problems.iter().any(|one| one["step"] == "h"), "h comes after a step that is there: {body}");
        assert!(problems.iter().any(|one| one["message"].as_str().unwrap().contains("step 10")), "{body}");
        assert_eq!(server.get("/v1/graphs/bad").await.0, 404, "nothing is kept");
        for odd in [json!({}), json!({"steps": []}), json!({"steps": [], "name": "x"}), json!({"steps": 3})] {
            assert_eq!(server.put("/v1/graphs/bad", &odd).await.0, 422, "{odd}");
        }
    }

    async fn the_server_advances_it_and_others_do_its_tasks(server) {
        // rules 15.3, 15.4
        let inner = json!({"steps": [{"name": "pause", "sleep": {"duration_ms": 10}}, {"name": "double", "task": "double"}]});
        assert_eq!(server.put("/v1/graphs/inner", &inner).await.0, 200);
        let outer = json!({"steps": [
            {"name": "make", "task": "make"},
            {"name": "paid", "wait_for_event": {"event": "payment", "match": {"left": "order", "op": "eq", "right": "step.make.output.id"}, "timeout_ms": 60_000}, "after": ["make"]},
            {"name": "go", "wait_for_signal": {"signal": "go"}, "after": ["make"]},
            {"name": "sub", "graph": "inner", "after": ["paid"]},
        ]});
        let (status, body) = server.put("/v1/graphs/outer", &outer).await;
        assert_eq!(status, 200, "{body}");

        let abide = abide::Abide::open(&server.store).await.unwrap();
        let engine = abide
            .engine()
            .task("make", |input: serde_json::Value| async move { Ok(json!({"id": input["order"], "big": input["big"]})) })
            .task("double", |input: serde_json::Value| async move { Ok(json!(input["amount"].as_i64().unwrap_or(0) * 2)) })
            .start()
            .await
            .unwrap();
        let (status, run) = server.post("/v1/instances", &json!({"graph": "outer", "key": "g:1", "input": {"order": "o-1"}})).await;
        assert_eq!(status, 201, "{run}");
        standing(server, "g:1", "awaiting_signal").await;
        server.until("both waits are open", async || { server.get("/v1/waits?instance=g:1").await.1["items"].as_array().unwrap().len() == 2 }).await;
        let (_, seen) = server.get("/v1/instances/g:1").await;
        let event = &seen["wait"]["events"][0];
        assert_eq!((&event["type"], &event["conditions"]), (&json!("payment"), &json!([{"left": "order", "op": "eq", "right": "o-1"}])), "{seen}");
        assert_eq!(seen["wait"]["names"], json!(["go"]), "{seen}");
        let (_, waits) = server.get("/v1/waits?kind=event&name=payment").await;
        assert_eq!(waits["items"][0]["conditions"], event["conditions"], "{waits}");

        let (_, missed) = server.post("/v1/events", &json!({"type": "payment", "payload": {"order": "o-2"}})).await;
        assert_eq!(missed["matched"], 0);
        let (_, hit) = server.post("/v1/events", &json!({"type": "payment", "payload": {"order": "o-1", "amount": 21}})).await;
        assert_eq!(hit["matched"], 1, "{hit}");
        server.post("/v1/instances/g:1/signals/go", &json!({"payload": "now"})).await;
        let (status, result) = server.get("/v1/instances/g:1/result?wait_ms=30000").await;
        assert_eq!((status, &result["status"]), (200, &json!("done")), "{result}");
        assert_eq!(result["result"], json!({"go": "now", "sub": {"double": 42, "pause": null}}));
        let (_, children) = server.get("/v1/instances/g:1/children").await;
        let machines: Vec<&str> = children["items"].as_array().unwrap().iter().map(|one| one["machine"].as_str().unwrap()).collect();
        assert_eq!(machines, ["graph/inner", "task/make"], "{children}");
        let (_, signals) = server.get("/v1/instances/g:1/signals").await;
        let kinds: Vec<&str> = signals["items"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["signal", "event"], "{signals}");
        engine.shutdown().await;
    }
}
