//! Lists: filters, pages, cursors.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::common::Server;
use crate::http::on_both;

/// All items of a list, page by page.
async fn all(server: &Server, path: &str, limit: usize) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor = String::new();
    loop {
        let joint = if path.contains('?') { '&' } else { '?' };
        let (status, page) = server
            .get(&format!("{path}{joint}limit={limit}{cursor}"))
            .await;
        assert_eq!(status, 200, "{page}");
        let found = page["items"].as_array().unwrap();
        assert!(found.len() <= limit, "{page}");
        items.extend(found.iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

fn ids(items: &[Value]) -> BTreeSet<i64> {
    items
        .iter()
        .map(|item| item["id"].as_i64().unwrap())
        .collect()
}

on_both! {
    async fn a_list_of_250_is_read_to_its_end(server) {
        let starts: Vec<Value> = (0..250)
            .map(|n| json!({"machine": if n % 2 == 0 { "even" } else { "odd" }, "key": format!("k:{n:03}"), "queue": format!("q{}", n % 5)}))
            .collect();
        let (status, _) = server.post("/v1/instances/batch", &json!({"instances": starts})).await;
        assert_eq!(status, 200);
        for limit in [1_000, 100, 7] {
            let items = all(server, "/v1/instances", limit).await;
            assert_eq!((items.len(), ids(&items).len()), (250, 250));
            assert!(items.windows(2).all(|pair| pair[0]["id"].as_i64() > pair[1]["id"].as_i64()), "newest first");
        }
        assert_eq!(server.get("/v1/instances").await.1["items"].as_array().unwrap().len(), 100, "unless the request sets another limit");
        assert_eq!(all(server, "/v1/instances?machine=even", 100).await.len(), 125);
        assert_eq!(all(server, "/v1/instances?queue=q3&machine=odd", 100).await.len(), 25);
        assert_eq!(all(server, "/v1/instances?key_prefix=k:1", 100).await.len(), 100);
        assert_eq!(all(server, "/v1/instances?status=runnable", 100).await.len(), 250);
        assert_eq!(all(server, "/v1/instances?status=done", 100).await.len(), 0);
        assert_eq!(all(server, "/v1/instances?liveness=waiting_for_worker", 60).await.len(), 250);
        assert_eq!(all(server, "/v1/instances?liveness=waiting_for_signal", 60).await.len(), 0);
        assert_eq!(all(server, "/v1/instances?liveness=waiting_for_worker&key_prefix=k:00", 3).await.len(), 10);

        for n in 0..25 {
            server.post("/v1/instances/k:000/signals/go", &json!({"payload": n})).await;
        }
        let signals = all(server, "/v1/instances/k:000/signals", 10).await;
        assert_eq!((signals.len(), ids(&signals).len()), (25, 25));
        assert_eq!(all(server, "/v1/signals?name=go", 4).await.len(), 25);
        let history = all(server, "/v1/instances/k:000/history", 4).await;
        let seqs: Vec<i64> = history.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
        assert_eq!(seqs, (1..=26).collect::<Vec<_>>(), "oldest first");
        assert_eq!(history[0]["kind"], "started");
    }

    async fn machines_and_graphs_are_read_page_by_page(server) {
        // rule 16.4: their lists had no pages.
        let graph = json!({"steps": [{"name": "nap", "sleep": {"duration_ms": 1}}]});
        for n in 0..7 {
            assert_eq!(server.put(&format!("/v1/machines/m{n}/1"), &json!({})).await.0, 200);
            assert_eq!(server.put(&format!("/v1/graphs/g{n}"), &graph).await.0, 200);
        }
        assert_eq!(server.put("/v1/machines/m3/2", &json!({})).await.0, 200);
        let named = |items: &[Value]| -> Vec<String> {
            items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        let graphs: Vec<String> = (0..7).map(|n| format!("g{n}")).collect();
        for limit in [1, 3, 100] {
            let mut machines = named(&all(server, "/v1/machines", limit).await);
            // Graphs are machines too, which the server declares when it begins to run them.
            machines.retain(|name| !name.starts_with("graph/"));
            assert_eq!(machines, ["m0", "m1", "m2", "m3", "m3", "m4", "m5", "m6"]);
            assert_eq!(named(&all(server, "/v1/graphs", limit).await), graphs);
        }
    }

    async fn an_invalid_page_is_refused(server) {
        for list in ["/v1/instances", "/v1/signals", "/v1/events", "/v1/waits", "/v1/machines", "/v1/graphs"] {
            for (query, expected) in [
                ("limit=0", "1 at least"),
                ("limit=1001", "1000"),
                ("limit=x", "limit"),
                ("limit=", "limit"),
                ("limit=-1", "limit"),
                ("limit=1&limit=2", "limit"),
                ("cursor=", "cursor"),
                ("cursor=nonsense", "cursor"),
                ("colour=red", "colour"),
            ] {
                let (status, body) = server.get(&format!("{list}?{query}")).await;
                assert_eq!(status, 400, "{list}?{query}: {body}");
                assert!(body["detail"].as_str().unwrap().contains(expected), "{list}?{query}: {body}");
                if query == "limit=1001" {
                    assert_eq!((&body["limit"], &body["most"]), (&json!("limit"), &json!(1_000)), "a name, and a number: {body}");
                }
            }
        }
        for query in ["status=asleep", "wait_kind=x", "liveness=well", "machine=", "parent=%0a"] {
            let (status, body) = server.get(&format!("/v1/instances?{query}")).await;
            assert!((400..=422).contains(&status), "{query}: {status} {body}");
        }
        let (status, _) = server.get("/v1/instances?parent=absent").await;
        assert_eq!(status, 404);
        // A cursor of another list.
        for n in 0..3 {
            server.post("/v1/events", &json!({"type": "t", "payload": n})).await;
        }
        let (_, page) = server.get("/v1/events?limit=2").await;
        let cursor = page["next_cursor"].as_str().unwrap();
        assert_eq!(server.get(&format!("/v1/instances?cursor={cursor}")).await.0, 400);
    }
}
