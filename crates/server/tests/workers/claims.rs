//! Claim tokens: whose they are, and what comes of invalid ones.

use serde_json::{Value, json};

use crate::workers::kit::{on_both, result, start, worker};

on_both! {
    async fn a_commit_that_is_sent_again_is_committed_again_and_changes_nothing(server: Server) {
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let outcome = json!({"next": {"step": "b", "state": 1}});
        // rule 1.7
        let twice = || vec![(&claim, outcome.clone()), (&claim, outcome.clone())];
        for expected in [[false, true], [true, true]] {
            let results = worker.commit_all(twice()).await;
            assert!(results.iter().all(|result| result["status"] == "committed"), "{results:?}");
            let duplicates: Vec<_> = results.iter().map(|result| &result["duplicate"]).collect();
            assert_eq!(duplicates, expected);
        }
        let claim = worker.one().await;
        worker.none().await;
        worker.done(&claim, json!({"done": {"result": 1}})).await;
        worker.done(&claim, json!({"done": {"result": 2}})).await;
        assert_eq!(result(&server, id).await["result"], 1);
    }

    async fn a_commit_whose_answer_was_lost_is_known_after_others_went_on(server: Server) {
        // rule 1.7: it was once answered `stale` when another worker had committed meanwhile.
        let (first, second) = (worker(&server), worker(&server));
        let id = start(&server, json!({"machine": "m"})).await;
        let next = || json!({"next": {"step": "b", "state": 1}});
        let lost = first.one().await;
        first.done(&lost, next()).await;
        let given_back = first.one().await;
        assert_eq!(first.sign_off().await, 1);
        let other = second.one().await;
        second.done(&other, next()).await;
        for end in [false, true] {
            if end {
                second.done(&second.one().await, json!({"done": {"result": 7}})).await;
            }
            for (worker, claim, expected) in [
                (&first, &lost, json!(["committed", true])),
                (&first, &given_back, json!(["stale", false])),
                (&second, &other, json!(["committed", true])),
            ] {
                let results = worker.commit_all(vec![(claim, next())]).await;
                assert_eq!(json!([results[0]["status"], results[0]["duplicate"]]), expected, "{results:?}");
            }
        }
        assert_eq!(result(&server, id).await["result"], 7);
    }

    async fn an_outcome_over_a_limit_is_refused_with_both_numbers(server: Server) {
        // rule 16.3
        let worker = worker(&server);
        start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let huge = "x".repeat(2 << 20);
        let met = huge.len() + 2;
        for (outcome, limit) in [
            (json!({"next": {"step": "b", "state": huge}}), "state_bytes"),
            (json!({"done": {"result": huge}}), "result_bytes"),
        ] {
            let refused = &worker.commit_all(vec![(&claim, outcome)]).await[0];
            let fields = json!([refused["status"], refused["reason"], refused["limit"], refused["most"], refused["met"]]);
            assert_eq!(fields, json!(["refused", "limit_exceeded", limit, 1 << 20, met]));
            let error = refused["error"].as_str().unwrap();
            assert!(error.contains(&format!("{met} is over the limit {limit} of {}", 1 << 20)), "{error}");
        }
        let names: Vec<String> = (0..101).map(|n| format!("s{n}")).collect();
        let refused = &worker.commit_all(vec![(&claim, json!({"wait": {"signals": names, "next": "b", "state": 1}}))]).await[0];
        assert_eq!((&refused["limit"], &refused["met"]), (&json!("names_per_wait"), &json!(101)), "{refused}");
        let refused = &worker.commit_all(vec![(&claim, json!({"nonsense": {}}))]).await[0];
        assert_eq!((&refused["reason"], &refused["limit"]), (&json!("unprocessable"), &Value::Null), "{refused}");
        worker.done(&claim, json!({"done": {"result": 1}})).await;
    }

    async fn of_two_outcomes_for_one_claim_in_one_request_none_is_committed(server: Server) {
        // rule 1.7
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let beside = start(&server, json!({"machine": "m"})).await;
        let claims = worker.claim(2, 0).await;
        let done = |result: u32| json!({"done": {"result": result}});
        for other in [done(2), json!({"nonsense": 1})] {
            let sent = vec![(&claims[0], done(1)), (&claims[0], other), (&claims[0], done(1))];
            for result in worker.commit_all(sent).await {
                assert_eq!((&result["status"], &result["duplicate"]), (&json!("refused"), &json!(false)));
                let error = result["error"].as_str().unwrap();
                assert!(error.contains("two different outcomes for this claim"), "{error}");
            }
        }
        // Nonsense twice is one outcome, and the answer says what is wrong with it.
        let nonsense = || json!({"nonsense": 1});
        for result in worker.commit_all(vec![(&claims[0], nonsense()), (&claims[0], nonsense())]).await {
            assert!(result["error"].as_str().unwrap().contains("nonsense"), "{result}");
        }
        let sent = vec![(&claims[0], done(1)), (&claims[1], done(3)), (&claims[0], done(2))];
        let results = worker.commit_all(sent).await;
        let statuses: Vec<_> = results.iter().map(|result| result["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["refused", "committed", "refused"], "the others are committed");
        assert_eq!(result(&server, beside).await["result"], 3);
        assert_eq!(worker.heartbeat(&[&claims[0]]).await, Vec::<Value>::new(), "it is held as before");
        worker.done(&claims[0], done(4)).await;
        assert_eq!(result(&server, id).await["result"], 4);
    }

    async fn a_claim_is_good_in_the_hands_of_its_worker_only(server: Server) {
        let (worker, thief) = (worker(&server), worker(&server));
        start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        assert_eq!(thief.commit(&claim, json!({"done": {"result": 1}})).await, "stale");
        assert_eq!(thief.heartbeat(&[&claim]).await, vec![claim["claim"].clone()]);
        worker.done(&claim, json!({"done": {"result": 1}})).await;
    }

    async fn a_claim_that_a_worker_made_up_is_refused_whatever_it_says(server: Server) {
        // A worker could once write itself the claim of an instance that it was never given.
        use base64::Engine as _;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let worker = worker(&server);
        start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let text = claim["claim"].as_str().unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(text).unwrap();
        let altered = String::from_utf8_lossy(&bytes[17..]).replacen("[[", "[[1", 1);
        let other = URL_SAFE_NO_PAD.encode([&bytes[..17], altered.as_bytes()].concat());
        let unsealed = URL_SAFE_NO_PAD.encode([&[1], &bytes[17..]].concat());
        for forged in [other, unsealed] {
            let forged = Value::from(forged);
            assert_eq!(worker.commit(&forged, json!({"done": {"result": 0}})).await, "refused");
            assert_eq!(worker.heartbeat(&[&forged]).await, vec![forged.clone()]);
        }
        worker.done(&claim, json!({"done": {"result": 1}})).await;
    }

    async fn an_invalid_claim_token_refuses_its_entry_only(server: Server) {
        let worker = worker(&server);
        start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let good = claim["claim"].as_str().unwrap();
        assert!(good.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{good}");
        let texts: Vec<Value> = ["", "x", "AQAA", "ÄÄÄ", &good[1..], &good[..good.len() - 1], &format!("{good}{good}"), &"A".repeat(1 << 16)]
            .into_iter()
            .map(Value::from)
            .collect();
        let mut outcomes: Vec<(&Value, Value)> = texts.iter().map(|text| (text, json!({"done": {"result": 0}}))).collect();
        outcomes.push((&claim, json!({"done": {"result": 1}})));
        let results = worker.commit_all(outcomes).await;
        let (last, others) = results.split_last().unwrap();
        assert_eq!(last["status"], "committed");
        for (result, text) in others.iter().zip(&texts) {
            assert_eq!((&result["status"], &result["claim"]), (&json!("refused"), text));
            assert!(result["error"].as_str().unwrap().contains("invalid claim token"), "{result}");
        }
        let texts: Vec<&Value> = texts.iter().collect();
        assert_eq!(worker.heartbeat(&texts).await.len(), texts.len());
    }

    async fn a_request_that_does_not_fit_is_refused_with_what_was_wrong(server: Server) {
        let hand = worker(&server);
        let machines = json!([{"name": "m", "version": 1}]);
        let wrong = [
            (json!({"worker": "w", "queue": "q", "machines": machines, "limit": 1, "wait_ms": 0, "leese_ms": 1}), 422, "unknown field `leese_ms`"),
            (json!({"worker": "w", "queue": "q", "machines": [], "limit": 1, "wait_ms": 0}), 422, "machines"),
            (json!({"worker": "w", "queue": "q", "machines": [{"name": "graph/g", "version": 1}], "limit": 1}), 422, "task/"),
            (json!({"worker": "w", "queue": "q", "machines": [{"name": "m", "version": 0}], "limit": 1}), 422, "version"),
            (json!({"worker": "w", "queue": "q", "machines": machines, "limit": 0}), 422, "limit"),
            (json!({"worker": "w", "queue": "q", "machines": machines, "lease_ms": 999}), 422, "lease_ms"),
            (json!({"worker": "w", "queue": "q", "machines": machines, "wait_ms": 60_001}), 400, "wait_ms"),
            (json!({"worker": "", "queue": "q", "machines": machines}), 422, "empty"),
            (json!({"queue": "q", "machines": machines}), 422, "worker"),
        ];
        for (body, expected, what) in wrong {
            let (status, problem) = hand.post("/v1/workers/claim", &body).await;
            assert_eq!(status, expected, "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains(what), "{what}: {problem}");
        }
        let (status, problem) = hand.post("/v1/workers/commit", &json!({"worker": "w", "outcomes": [], "x": 1})).await;
        assert_eq!(status, 422, "{problem}");
        let (status, problem) = hand.post("/v1/workers/heartbeat", &json!({"worker": "w", "claim": []})).await;
        assert_eq!(status, 422, "{problem}");
    }

    async fn five_hundred_are_claimed_and_committed_at_once(server: Server) {
        let worker = worker(&server);
        let instances: Vec<Value> = (0..500).map(|n| json!({"machine": "m", "state": n})).collect();
        let (status, body) = server.post("/v1/instances/batch", &json!({"instances": instances})).await;
        assert_eq!((status, body["results"].as_array().unwrap().len()), (200, 500));
        let claims = worker.claim(500, 5_000).await;
        assert_eq!(claims.len(), 500);
        let texts: Vec<&Value> = claims.iter().collect();
        assert_eq!(worker.heartbeat(&texts).await, Vec::<Value>::new());
        let outcomes = claims.iter().map(|claim| (claim, json!({"done": {"result": claim["state"]}}))).collect();
        let results = worker.commit_all(outcomes).await;
        assert!(results.iter().all(|result| result["status"] == "committed"));
        for (claim, result) in claims.iter().zip(&results) {
            assert_eq!(claim["claim"], result["claim"]);
        }
        worker.none().await;
    }
}

/// A server that lets one wait for each type of event.
mod few_waiters {
    use super::*;

    on_both! {
        set("limits.waiters_per_type", 1);

        async fn a_wait_over_the_limit_is_refused_with_its_type_and_both_numbers(server: Server) {
            // rules 14.7 and 16.3
            let worker = worker(&server);
            for _ in 0..2 {
                start(&server, json!({"machine": "m"})).await;
            }
            let claims = worker.claim(2, 20_000).await;
            let event = json!({"type": "order", "conditions": [{"left": "id", "op": "eq", "right": 1}]});
            let wait = || json!({"wait": {"events": [event], "timeout_ms": 60_000, "next": "b", "state": 1}});
            worker.done(&claims[0], wait()).await;
            let refused = &worker.commit_all(vec![(&claims[1], wait())]).await[0];
            let fields = json!([refused["status"], refused["reason"], refused["limit"], refused["event_type"], refused["most"], refused["met"]]);
            assert_eq!(fields, json!(["refused", "limit_exceeded", "waiters_per_type", "order", 1, 2]), "{refused}");
            assert!(refused["error"].as_str().unwrap().contains("2 waits for events of type \"order\""), "{refused}");
            worker.done(&claims[1], json!({"done": {"result": 1}})).await;
        }
    }
}
