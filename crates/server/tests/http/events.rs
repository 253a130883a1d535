//! Publishing events, one or many, and listing them.

use serde_json::json;

use crate::http::on_both;

on_both! {
    async fn an_event_is_published_once(server) {
        // rule 14.1
        let (status, first) = server.post("/v1/events", &json!({"type": "paid", "payload": {"n": 1}, "event_id": "e-1"})).await;
        assert_eq!((status, &first), (200, &json!({"event_id": "e-1", "matched": 0, "duplicate": false, "unmatched": false})));
        let (status, again) = server.post("/v1/events", &json!({"type": "paid", "payload": {"n": 2}, "event_id": "e-1"})).await;
        assert_eq!((status, &again["duplicate"]), (200, &json!(true)), "{again}");
        let (_, made) = server.post("/v1/events", &json!({"type": "sent"})).await;
        assert!(!made["event_id"].as_str().unwrap().is_empty(), "{made}");
        let (_, all) = server.get("/v1/events").await;
        let types: Vec<&str> = all["items"].as_array().unwrap().iter().map(|one| one["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["sent", "paid"], "newest first");
        let (_, paid) = server.get("/v1/events?type=paid").await;
        assert_eq!((&paid["items"][0]["payload"], &paid["items"][0]["event_id"]), (&json!({"n": 1}), &json!("e-1")));
        assert!(paid["items"][0]["published_at"].is_string(), "{paid}");
    }

    async fn a_batch_answers_each_in_order(server) {
        let batch = json!({"events": [
            {"type": "a", "payload": null, "event_id": "1"},
            {"type": "a", "event_id": "1"},
            {"type": ""},
            {"kind": "a"},
            7,
            {"type": "b", "payload": [1, "two"]},
        ]});
        let (status, body) = server.post("/v1/events/batch", &batch).await;
        assert_eq!(status, 200, "{body}");
        let results = body["results"].as_array().unwrap();
        assert_eq!(results[0], json!({"event_id": "1", "matched": 0, "duplicate": false, "unmatched": false}));
        assert_eq!(results[1]["duplicate"], true);
        for refused in &results[2..5] {
            assert!(refused["error"].is_string() && refused.get("event_id").is_none(), "{body}");
        }
        assert_eq!(results[5]["duplicate"], false);
        assert_eq!(server.get("/v1/events").await.1["items"].as_array().unwrap().len(), 2);
    }

    async fn a_body_that_is_not_an_event_is_refused(server) {
        for odd in [json!({}), json!({"type": ""}), json!({"type": "a", "event_id": ""}), json!({"type": "a", "data": 1}), json!({"type": 7})] {
            let (status, body) = server.post("/v1/events", &odd).await;
            assert_eq!(status, 422, "{odd}: {body}");
        }
        assert_eq!(server.post("/v1/events/batch", &json!({})).await.0, 422);
    }
}
