//! Holders of claims, their leases, and what happens when a claim is lost.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{postgres, server};
use crate::workers::kit::{instance, on_both, result, start, worker};

on_both! {
    async fn a_lease_that_runs_out_gives_the_instance_to_another_and_the_first_is_stale(server: Server) {
        // rules 1.3 and 5.3
        let (first, second) = (worker(&server).lease_ms(1_000), worker(&server));
        let id = start(&server, json!({"machine": "m", "state": 1})).await;
        let lost = first.one().await;
        let claim = second.one().await;
        assert_eq!((&claim["instance_id"], &claim["attempt"], &claim["cause"]), (&json!(id), &json!(1), &json!("reclaim")));
        assert_eq!(claim["step_sequence"], lost["step_sequence"]);
        assert_eq!(first.heartbeat(&[&lost]).await, vec![lost["claim"].clone()]);
        assert_eq!(first.commit(&lost, json!({"done": {"result": "first"}})).await, "stale");
        second.done(&claim, json!({"done": {"result": "second"}})).await;
        assert_eq!(result(&server, id).await["result"], "second");
    }

    async fn a_worker_that_comes_back_under_its_name_has_died(server: Server) {
        // rules 5.3 and 5.7: at once, and not when a lease has run out.
        let worker = worker(&server).lease_ms(600_000);
        let policy = json!({"max_deaths": 2});
        let id = start(&server, json!({"machine": "m", "policy": policy})).await;
        let lost = worker.one().await;
        assert_eq!(lost["deaths"], 0);
        assert_eq!((worker.come_back().await, worker.come_back().await), (1, 0));
        let found = instance(&server, id).await;
        assert_eq!((&found["attempt"], &found["deaths"]), (&json!(1), &json!(1)));
        assert_eq!(found["policy"], policy);
        assert_eq!(worker.commit(&lost, json!({"done": {"result": 1}})).await, "stale");
        let again = worker.one().await;
        assert_eq!((&again["deaths"], &again["cause"]), (&json!(1), &json!("reclaim")));
        assert_eq!(worker.come_back().await, 1);
        let found = instance(&server, id).await;
        assert_eq!((&found["status"], &found["deaths"]), (&json!("failed"), &json!(2)));
        let error = found["last_error"].as_str().unwrap();
        assert!(error.starts_with("the worker died 2 times in step start"), "{error}");

        let id = start(&server, json!({"machine": "m"})).await;
        worker.one().await;
        assert_eq!(worker.sign_off().await, 1);
        let found = instance(&server, id).await;
        assert_eq!((&found["attempt"], &found["deaths"]), (&json!(0), &json!(0)), "in good order");
        assert_eq!(server.put("/v1/machines/m/1", &json!({"max_deaths": 9})).await.1["max_deaths"], 9);
        assert_eq!(server.put("/v1/machines/m/1", &json!({"max_deaths": 1_000_001})).await.0, 422);
    }

    async fn heartbeats_keep_the_claims_they_name_and_no_others(server: Server) {
        // rule 6.4
        let (first, second) = (worker(&server).lease_ms(1_000), worker(&server));
        start(&server, json!({"machine": "m", "key": "kept:1"})).await;
        start(&server, json!({"machine": "m", "key": "unnamed:1"})).await;
        let claims = first.claim(2, 5_000).await;
        assert_eq!(claims.len(), 2);
        let began = Instant::now();
        let other = tokio::spawn(async move { second.one().await });
        while began.elapsed() < Duration::from_millis(2_500) {
            assert_eq!(first.heartbeat(&[&claims[0]]).await, Vec::<Value>::new());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(other.await.unwrap()["key"], claims[1]["key"]);
        assert_eq!(first.commit(&claims[1], json!({"done": {"result": 1}})).await, "stale");
        first.done(&claims[0], json!({"done": {"result": 1}})).await;
    }

    async fn a_step_that_passes_its_time_limit_fails_though_heartbeats_come(server: Server) {
        // rule 5.4
        let limits = json!({"step_timeout_ms": 1_000, "retry": {"max_attempts": 2, "delay_ms": 1}});
        assert_eq!(server.put("/v1/machines/m/1", &limits).await.0, 200);
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let slow = worker.one().await;
        let beating = async {
            while worker.heartbeat(&[&slow]).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let (claim, ()) = tokio::join!(worker.one(), beating);
        assert_eq!((&claim["instance_id"], &claim["attempt"], &claim["cause"]), (&json!(id), &json!(1), &json!("retry")));
        assert_eq!(worker.commit(&slow, json!({"done": {"result": 1}})).await, "stale");
        worker.done(&claim, json!({"done": {"result": 2}})).await;
    }

    async fn signing_off_gives_everything_back_at_once_and_raises_no_attempt(server: Server) {
        // rules 5.3 and 5.4
        let worker = worker(&server);
        for _ in 0..3 {
            start(&server, json!({"machine": "m"})).await;
        }
        let claims = worker.claim(3, 5_000).await;
        assert_eq!(claims.len(), 3);
        assert_eq!(worker.sign_off().await, 3);
        assert_eq!(worker.sign_off().await, 0);
        assert_eq!(worker.commit(&claims[0], json!({"done": {"result": 1}})).await, "stale");
        let again = worker.claim(3, 5_000).await;
        assert_eq!(again.len(), 3);
        assert!(again.iter().all(|claim| claim["attempt"] == 0), "{again:?}");
        worker.done(&again[0], json!({"done": {"result": 1}})).await;
    }

    async fn a_worker_is_listed_with_what_it_serves_while_it_polls(server: Server) {
        let worker = worker(&server);
        worker.none().await;
        let (_, body) = server.get("/v1/workers").await;
        let listed = body["items"].as_array().or(body["workers"].as_array()).unwrap();
        assert!(listed.iter().any(|one| one["name"] == worker.name.as_str()), "{body}");
        assert_eq!(worker.sign_off().await, 0);
        let (_, body) = server.get("/v1/workers").await;
        assert!(!body.to_string().contains(&format!("{:?}", worker.name)), "{body}");
    }
}

async fn claims_outlive_a_kill_of_the_server(
    setup: impl Fn() -> crate::common::Setup,
    over: Option<String>,
) {
    let before = match &over {
        Some(url) => setup().over(crate::common::Over::Url(url.clone())),
        None => setup(),
    }
    .start();
    let hand = worker(&before);
    let id = start(&before, json!({"machine": "m", "state": 1})).await;
    let claim = hand.one().await;
    let home = before.kill();
    let after = match over {
        Some(url) => setup().over(crate::common::Over::Url(url)),
        None => setup().home(home),
    }
    .start();
    let hand = hand.at(&after);
    assert_eq!(instance(&after, id).await["status"], "executing");
    assert_eq!(hand.heartbeat(&[&claim]).await, Vec::<Value>::new());
    hand.done(&claim, json!({"next": {"step": "after", "state": 2}}))
        .await;
    let claim = hand.one().await;
    assert_eq!(
        (&claim["step"], &claim["attempt"]),
        (&json!("after"), &json!(0))
    );
    hand.done(&claim, json!({"done": {"result": 3}})).await;
    assert_eq!(result(&after, id).await["result"], 3);
}

#[tokio::test]
async fn on_sqlite_claims_outlive_a_kill_of_the_server() {
    claims_outlive_a_kill_of_the_server(server, None).await;
}

#[tokio::test]
async fn on_postgres_claims_outlive_a_kill_of_the_server() {
    let crate::common::Over::Url(url) = postgres() else {
        unreachable!()
    };
    claims_outlive_a_kill_of_the_server(server, Some(url)).await;
}
