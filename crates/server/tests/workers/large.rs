//! Claims of large instances: what one answer brings, and what is left for the next (rule 16.4).

use serde_json::{Value, json};

use crate::common::Server;
use crate::workers::kit::{on_both, start, worker};

/// Sends a signal whose payload has so many bytes.
async fn signal(server: &Server, id: i64, name: &str, bytes: usize) {
    let path = format!("/v1/instances/{id}/signals/{name}");
    let (status, reply) = server
        .post(&path, &json!({"payload": "x".repeat(bytes)}))
        .await;
    assert_eq!(status, 202, "{reply}");
}

fn names<'a>(claim: &'a Value, list: &str) -> Vec<&'a str> {
    let messages = claim[list].as_array().unwrap();
    messages
        .iter()
        .map(|message| message["name"].as_str().unwrap())
        .collect()
}

fn ids(claims: &[Value]) -> Vec<i64> {
    let mut ids: Vec<i64> = claims
        .iter()
        .map(|claim| claim["instance_id"].as_i64().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

on_both! {
    set("limits.claim_bytes", 600_000);

    async fn of_a_large_inbox_what_was_waited_for_comes_whole_and_the_rest_is_counted(server: Server) {
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        for _ in 0..5 {
            signal(&server, id, "other", 60_000).await;
        }
        signal(&server, id, "paid", 50_000).await;
        signal(&server, id, "paid", 50_000).await;
        worker.done(&claim, json!({"wait": {"signals": ["paid"], "next": "b", "state": 1}})).await;
        let claim = worker.one().await;
        assert_eq!(names(&claim, "awaited"), ["paid", "paid"]);
        for message in claim["awaited"].as_array().unwrap() {
            assert_eq!(message["payload"].as_str().unwrap().len(), 50_000);
        }
        assert_eq!((names(&claim, "inbox"), &claim["inbox_omitted"]), (vec!["paid", "paid"], &json!(5)));
        // The rest can be requested.
        let (status, page) = server.get(&format!("/v1/instances/{id}/signals?limit=10")).await;
        assert_eq!((status, page["items"].as_array().map(Vec::len)), (200, Some(7)), "{page}");
    }

    async fn a_small_inbox_comes_whole(server: Server) {
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        signal(&server, id, "other", 60_000).await;
        signal(&server, id, "paid", 60_000).await;
        worker.done(&claim, json!({"wait": {"signals": ["paid"], "next": "b", "state": 1}})).await;
        let claim = worker.one().await;
        assert_eq!((names(&claim, "awaited"), names(&claim, "inbox")), (vec!["paid"], vec!["other", "paid"]));
        assert_eq!(claim["inbox_omitted"], 0);
    }

    async fn of_large_instances_a_claim_brings_some_and_the_rest_is_there_at_once(server: Server) {
        let worker = worker(&server);
        let mut all = Vec::new();
        for _ in 0..7 {
            all.push(start(&server, json!({"machine": "m", "state": "x".repeat(200_000)})).await);
        }
        let mut claimed = Vec::new();
        for expected in [2, 2, 2, 1] {
            let claims = worker.claim(10, 4_000).await;
            assert_eq!(claims.len(), expected, "{claimed:?}");
            claimed.extend(ids(&claims));
        }
        claimed.sort_unstable();
        assert_eq!(claimed, all);
        worker.none().await;
    }

    async fn an_instance_that_is_larger_than_that_is_claimed_alone(server: Server) {
        let worker = worker(&server);
        let small = start(&server, json!({"machine": "m"})).await;
        let large = start(&server, json!({"machine": "m", "state": "x".repeat(700_000)})).await;
        assert_eq!(ids(&worker.claim(10, 4_000).await), [small]);
        assert_eq!(ids(&worker.claim(10, 4_000).await), [large]);
    }

    async fn inboxes_that_are_sent_along_whole_count_too(server: Server) {
        // No step waits for these, and still each claim has them.
        let (first, second) = (worker(&server), worker(&server));
        let mut all = Vec::new();
        for _ in 0..4 {
            let id = start(&server, json!({"machine": "m"})).await;
            signal(&server, id, "other", 250_000).await;
            all.push(id);
        }
        let mut claimed = ids(&first.claim(10, 4_000).await);
        assert_eq!(claimed.len(), 2);
        claimed.extend(ids(&second.claim(10, 4_000).await));
        claimed.sort_unstable();
        assert_eq!(claimed, all);
    }

    async fn results_of_children_count_too(server: Server) {
        let (parents, children) = (worker(&server), worker(&server).machine("child"));
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(start(&server, json!({"machine": "m"})).await);
            let claim = parents.one().await;
            let spawn = json!({"spawn": {"children": [{"machine": "child"}], "next": "b", "state": 1}});
            parents.done(&claim, spawn).await;
        }
        let result = json!({"done": {"result": "x".repeat(400_000)}});
        let claims = children.claim(10, 4_000).await;
        assert_eq!(claims.len(), 3);
        let outcomes = claims.iter().map(|claim| (claim, result.clone())).collect();
        children.commit_all(outcomes).await;
        let mut claimed = Vec::new();
        for _ in 0..3 {
            let claims = parents.claim(10, 4_000).await;
            assert_eq!(claims.len(), 1);
            assert_eq!(claims[0]["children"][0]["result"].as_str().unwrap().len(), 400_000);
            claimed.extend(ids(&claims));
        }
        assert_eq!(claimed, all);
    }
}
