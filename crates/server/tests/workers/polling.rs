//! Long polls: woken at once, fair, and none lost.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::Server;
use crate::workers::kit::{LONG_MS, on_both, start, worker};

/// Long enough for a busy machine, and far below the slow poll that is the floor.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Waits until that many workers are known, so that their polls are there.
async fn known(server: &Server, prefix: &str, count: usize) {
    let named = format!("\"{prefix}");
    let known = async || {
        let (_, body) = server.get("/v1/workers").await;
        body.to_string().matches(&named).count() >= count
    };
    server.until("the workers are known", known).await;
}

on_both! {
    async fn a_start_wakes_a_poll_at_once(server: Server) {
        let hand = worker(&server);
        for _ in 0..3 {
            let poll = tokio::spawn({
                let hand = hand.at(&server);
                async move { (hand.one().await, Instant::now()) }
            });
            known(&server, &hand.name, 1).await;
            let began = Instant::now();
            start(&server, json!({"machine": "m"})).await;
            let (claim, came) = poll.await.unwrap();
            assert!(came.duration_since(began) < AT_ONCE, "{:?}", came.duration_since(began));
            hand.done(&claim, json!({"done": {"result": 1}})).await;
        }
    }

    async fn a_poll_without_work_is_answered_with_nothing_when_its_time_is_up(server: Server) {
        let hand = worker(&server);
        let began = Instant::now();
        assert_eq!(hand.claim(1, 700).await, Vec::<Value>::new());
        assert!(began.elapsed() >= Duration::from_millis(700) && began.elapsed() < AT_ONCE + AT_ONCE);
    }

    async fn a_client_that_goes_away_during_its_poll_takes_nothing_with_it(server: Server) {
        let (gone, hand) = (worker(&server), worker(&server));
        for _ in 0..5 {
            let poll = tokio::spawn({
                let gone = gone.at(&server);
                async move { gone.claim(1, LONG_MS).await }
            });
            known(&server, &gone.name, 1).await;
            poll.abort();
            server.has_long_polls(0).await;
            let began = Instant::now();
            start(&server, json!({"machine": "m"})).await;
            let claim = hand.one().await;
            assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
            assert_eq!(claim["attempt"], 0);
            hand.done(&claim, json!({"done": {"result": 1}})).await;
        }
    }

    async fn clients_that_go_away_just_when_work_comes_lose_none_of_it(server: Server) {
        // Whatever was claimed for somebody who has left is given back, or runs out.
        let hand = worker(&server);
        let mut polls = Vec::new();
        for n in 0..20 {
            let mut gone = worker(&server).lease_ms(1_000);
            gone.name = format!("leaver-{n}");
            polls.push(tokio::spawn(async move { gone.claim(1, LONG_MS).await }));
        }
        known(&server, "leaver-", 20).await;
        let instances: Vec<Value> = (0..20).map(|_| json!({"machine": "m"})).collect();
        let body = json!({"instances": instances});
        let starting = server.post("/v1/instances/batch", &body);
        let leaving = async {
            for poll in &polls {
                poll.abort();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(starting, leaving);
        let mut seen = 0;
        while seen < 20 {
            let claims = hand.claim(20, LONG_MS).await;
            assert!(!claims.is_empty(), "{seen} of 20 came");
            seen += claims.len();
            let outcomes = claims.iter().map(|claim| (claim, json!({"done": {"result": 1}})));
            hand.commit_all(outcomes.collect()).await;
        }
    }

    async fn each_of_many_polls_gets_what_it_asked_for_and_no_instance_comes_twice(server: Server) {
        // rule 6.1
        let mut polls = Vec::new();
        for n in 0..50 {
            let mut hand = worker(&server);
            hand.name = format!("crowd-{n}");
            polls.push(tokio::spawn(async move { hand.one().await["instance_id"].as_i64().unwrap() }));
        }
        known(&server, "crowd-", 50).await;
        let instances: Vec<Value> = (0..50).map(|_| json!({"machine": "m"})).collect();
        assert_eq!(server.post("/v1/instances/batch", &json!({"instances": instances})).await.0, 200);
        let mut ids = Vec::new();
        for poll in polls {
            ids.push(poll.await.unwrap());
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 50);
    }

    async fn polls_of_other_queues_and_machines_are_left_alone(server: Server) {
        let mut other = worker(&server);
        other.queue = "elsewhere".into();
        let machine = worker(&server).machine("another");
        let version = { let mut one = worker(&server); one.machines[0].1 = 2; one };
        start(&server, json!({"machine": "m", "version": 1})).await;
        other.none().await;
        machine.none().await;
        version.none().await;
        let mut both = worker(&server).machine("another");
        both.machines.push(("m".into(), 1));
        assert_eq!(both.one().await["machine"], "m");
    }

    async fn a_server_that_stops_answers_its_polls_with_nothing(server: Server) {
        let hand = worker(&server);
        let poll = tokio::spawn({
            let hand = hand.at(&server);
            async move { hand.claim(1, LONG_MS).await }
        });
        known(&server, &hand.name, 1).await;
        let began = Instant::now();
        server.signal("TERM");
        assert_eq!(poll.await.unwrap(), Vec::<Value>::new());
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_poll_beyond_the_limit_is_answered_when_to_try_again() {
    let server = crate::common::server().set("long_polls", 1).start();
    let other = worker(&server);
    let holder = tokio::spawn({
        let other = other.at(&server);
        async move { other.claim(1, LONG_MS).await }
    });
    known(&server, &other.name, 1).await;
    let hand = worker(&server);
    let poll = || {
        let request = server.http.post(server.at("/v1/workers/claim"));
        request.json(&hand.request(1, LONG_MS)).send()
    };
    let full = poll().await.unwrap();
    assert_eq!(full.status(), 503);
    assert_eq!(full.headers()["retry-after"], "1");
    assert_eq!(full.headers()["content-type"], "application/problem+json");
    let problem: Value = full.json().await.unwrap();
    assert_eq!(
        (&problem["limit"], &problem["most"]),
        (&json!("long_polls"), &json!(1)),
        "{problem}"
    );
    // Nothing was claimed for it: the next one has it, as soon as there is a free slot.
    holder.abort();
    start(&server, json!({"machine": "m"})).await;
    let began = Instant::now();
    let claims = loop {
        let answer = poll().await.unwrap();
        if answer.status() == 200 {
            break answer.json::<Value>().await.unwrap();
        }
        assert!(
            began.elapsed() < crate::common::PATIENCE,
            "the slot is not given back"
        );
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(claims["claims"].as_array().unwrap().len(), 1, "{claims}");
}
