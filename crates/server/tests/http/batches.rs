//! Starting many at once.

use serde_json::json;

use crate::http::on_both;

on_both! {
    async fn each_entry_is_answered_for_itself(server) {
        // rule 2.3
        server.post("/v1/instances", &json!({"machine": "shop", "key": "taken"})).await;
        let batch = json!({"instances": [
            {"machine": "shop", "key": "a"},
            {"machine": "shop", "key": "a"},
            {"machine": "shop", "key": "taken"},
            {"machine": ""},
            {"machine": "shop", "colour": "red"},
            "nonsense",
            {"machine": "shop", "key": "r", "reserve": true},
            {"machine": "shop", "key": "r", "state": 7},
            {"graph": "nowhere"},
            {"machine": "shop", "version": 0},
        ]});
        let (status, body) = server.post("/v1/instances/batch", &batch).await;
        assert_eq!(status, 200, "{body}");
        let results = body["results"].as_array().unwrap();
        assert_eq!(results.len(), 10);
        assert!(results[0]["id"].is_i64(), "{body}");
        assert_eq!(results[1], json!({"duplicate_of": results[0]["id"]}));
        assert!(results[2]["duplicate_of"].is_i64(), "{body}");
        assert!(results[3]["error"].as_str().unwrap().contains("empty"), "{body}");
        assert!(results[4]["error"].as_str().unwrap().contains("colour"), "{body}");
        assert!(results[5]["error"].is_string(), "{body}");
        assert_eq!(results[6]["id"], results[7]["id"], "a reserved key is opened with its id: {body}");
        assert!(results[8]["error"].as_str().unwrap().contains("nowhere"), "{body}");
        assert_eq!(results[9]["reason"], "bad_version", "{body}");
        assert_eq!(server.get("/v1/instances/r").await.1["state"], 7);
        let (status, body) = server.post("/v1/instances/batch", &json!({"instances": []})).await;
        assert_eq!((status, &body["results"]), (200, &json!([])));
    }

    async fn a_key_may_be_called_batch(server) {
        let (_, started) = server.post("/v1/instances", &json!({"machine": "shop", "key": "batch"})).await;
        let (status, seen) = server.get("/v1/instances/batch").await;
        assert_eq!((status, &seen["id"]), (200, &started["id"]), "{seen}");
        assert_eq!(server.get("/v1/instances/batch/history").await.0, 200);
    }
}

#[tokio::test]
async fn a_batch_has_a_limit() {
    // rule 16.3
    let server = crate::common::server()
        .set("limits.batch_entries", 3)
        .start();
    let batch = json!({"instances": vec![json!({"machine": "shop"}); 4]});
    let (status, body) = server.post("/v1/instances/batch", &batch).await;
    assert_eq!(
        (status, &body["limit"]),
        (413, &json!("batch_entries")),
        "{body}"
    );
}
