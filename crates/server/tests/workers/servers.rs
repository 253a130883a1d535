//! Two servers on one PostgreSQL.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Over, Server, postgres, server};
use crate::workers::kit::{result, start, worker};

fn two() -> (Server, Server) {
    let Over::Url(url) = postgres() else {
        unreachable!()
    };
    let one = server().over(Over::Url(url.clone())).start();
    (one, server().over(Over::Url(url)).start())
}

#[tokio::test]
async fn what_is_claimed_at_one_is_committed_at_the_other() {
    let (one, other) = two();
    let here = worker(&one);
    let there = here.at(&other);
    let id = start(&one, json!({"machine": "m"})).await;
    let claim = here.one().await;
    assert!(there.heartbeat(&[&claim]).await.is_empty());
    there
        .done(&claim, json!({"next": {"step": "b", "state": 1}}))
        .await;
    let claim = there.one().await;
    here.done(&claim, json!({"done": {"result": "both"}})).await;
    assert_eq!(result(&other, id).await["result"], "both");
}

#[tokio::test]
async fn a_start_at_one_wakes_a_poll_at_the_other_at_once() {
    let (one, other) = two();
    let hand = worker(&other);
    hand.none().await;
    for _ in 0..3 {
        let poll = tokio::spawn({
            let hand = hand.at(&other);
            async move { (hand.one().await, Instant::now()) }
        });
        // The poll joins a group that is known to be empty: only a notification of the other server wakes it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let began = Instant::now();
        start(&one, json!({"machine": "m"})).await;
        let (claim, came) = poll.await.unwrap();
        assert!(
            came.duration_since(began) < Duration::from_secs(2),
            "{:?}",
            came.duration_since(began)
        );
        hand.done(&claim, json!({"done": {"result": 1}})).await;
    }
}

#[tokio::test]
async fn what_a_worker_gives_back_at_one_server_it_does_not_lose_at_the_other() {
    let (one, other) = two();
    let here = worker(&one);
    let there = here.at(&other);
    // Both servers know the worker now.
    here.none().await;
    there.none().await;
    assert_eq!(here.sign_off().await, 0);
    start(&one, json!({"machine": "m"})).await;
    let claim = there.one().await;
    assert_eq!(claim["attempt"], 0);
    assert!(there.heartbeat(&[&claim]).await.is_empty());
    there.done(&claim, json!({"done": {"result": 1}})).await;
}

#[tokio::test]
async fn a_graph_that_is_put_at_one_is_advanced_when_that_one_is_killed() {
    let (one, other) = two();
    let graph =
        json!({"steps": [{"name": "a", "task": "a"}, {"name": "b", "task": "b", "after": ["a"]}]});
    assert_eq!(one.put("/v1/graphs/g", &graph).await.0, 200);
    let id = start(&one, json!({"graph": "g", "input": 1})).await;
    let hand = worker(&other).machine("task/a");
    let claim = hand.one().await;
    one.kill();
    hand.done(&claim, json!({"done": {"result": "a"}})).await;
    let hand = worker(&other).machine("task/b");
    let claim = hand.one().await;
    assert_eq!(claim["state"], "a");
    hand.done(&claim, json!({"done": {"result": "b"}})).await;
    assert_eq!(result(&other, id).await["result"], json!({"b": "b"}));
}

#[tokio::test]
async fn a_workflow_is_not_handed_to_a_worker_over_http_and_stays_where_it_is() {
    use abide::model::{Json, Kind, Name, Start};
    let Over::Url(url) = postgres() else {
        unreachable!()
    };
    let server = server().over(Over::Url(url.clone())).start();
    let abide = abide::Abide::open(&url).await.unwrap();
    let start = Start {
        kind: Some(Kind::Workflow),
        ..Start::of(Name::new("flow").unwrap(), Json::null())
    };
    let started = abide.start_all([Ok(start)]).await.unwrap().remove(0);
    let id = started.unwrap().id();
    let hand = worker(&server).machine("flow");
    for wait_ms in [0, 5_000, 0] {
        let (status, problem) = hand
            .post("/v1/workers/claim", &hand.request(1, wait_ms))
            .await;
        assert_eq!(
            (status, &problem["reason"]),
            (422, &json!("workflow")),
            "{problem}"
        );
    }
    let found = crate::workers::kit::until(&server, id.0, "runnable").await;
    assert_eq!(found["attempt"], 0);
    abide.close().await;
}
