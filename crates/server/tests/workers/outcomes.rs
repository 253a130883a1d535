//! Every outcome over HTTP.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::workers::kit::{instance, on_both, result, start, until, worker};

/// Sooner than anything that is tried again for ever.
const PROMPTLY: Duration = Duration::from_secs(5);

on_both! {
    async fn a_step_goes_on_with_next_and_ends_with_done(server: Server) {
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m", "key": "order:1", "state": {"n": 1}})).await;
        let claim = worker.one().await;
        assert_eq!(claim["instance_id"], id);
        assert_eq!((&claim["key"], &claim["machine"], &claim["version"]), (&json!("order:1"), &json!("m"), &json!(1)));
        assert_eq!((&claim["step"], &claim["state"]), (&json!("start"), &json!({"n": 1})));
        assert_eq!((&claim["attempt"], &claim["cause"]), (&json!(0), &json!("start")));
        let first = claim["step_sequence"].as_i64().unwrap();
        assert_eq!((&claim["timed_out"], &claim["awaited"], &claim["inbox"]), (&json!(false), &json!([]), &json!([])));
        assert_eq!((&claim["children"], &claim["updates"]), (&json!([]), &json!([])));

        worker.done(&claim, json!({"next": {"step": "ship", "state": {"n": 2}}})).await;
        let claim = worker.one().await;
        assert_eq!((&claim["step"], &claim["state"], &claim["cause"]), (&json!("ship"), &json!({"n": 2}), &json!("next")));
        assert_eq!(claim["step_sequence"].as_i64().unwrap(), first + 1);
        worker.done(&claim, json!({"done": {"result": {"shipped": true}}})).await;
        let ended = result(&server, id).await;
        assert_eq!((&ended["status"], &ended["result"]), (&json!("done"), &json!({"shipped": true})));
    }

    async fn a_delayed_next_comes_after_its_delay(server: Server) {
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"next": {"step": "later", "state": null, "delay_ms": 300}})).await;
        worker.none().await;
        assert_eq!(instance(&server, id).await["status"], "scheduled");
        assert_eq!(worker.one().await["step"], "later");
    }

    async fn retry_runs_the_same_step_one_attempt_on(server: Server) {
        // rule 5.1
        let worker = worker(&server);
        start(&server, json!({"machine": "m", "state": 1})).await;
        let claim = worker.one().await;
        let sequence = claim["step_sequence"].clone();
        worker.done(&claim, json!({"retry": {"state": 2, "delay_ms": 0}})).await;
        let claim = worker.one().await;
        assert_eq!((&claim["step"], &claim["state"], &claim["attempt"]), (&json!("start"), &json!(2), &json!(1)));
        assert_eq!((&claim["cause"], &claim["step_sequence"]), (&json!("retry"), &sequence));
    }

    async fn an_outcome_that_would_take_a_key_is_refused_and_the_claim_kept(server: Server) {
        // rules 2.8 and 4.2: such a commit went round in a loop, and 320 commits of others took 40 seconds.
        let worker = worker(&server);
        let once = json!({"machine": "m", "key": "k", "scope": ["done"]});
        let (first, second) = (start(&server, once.clone()).await, start(&server, once).await);
        let claims = worker.claim(2, 0).await;
        let done = || json!({"done": {"result": 1}});
        worker.done(&claims[0], done()).await;
        let began = Instant::now();
        let refused = worker.refused(&claims[1], done()).await;
        assert_eq!(refused, format!("key \"k\" is taken by instance {first}"));
        assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
        let healthy = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let results = worker.commit_all(vec![(&claims[1], done()), (&claim, done())]).await;
        assert_eq!((&results[0]["status"], &results[1]["status"]), (&json!("refused"), &json!("committed")));
        assert_eq!(result(&server, healthy).await["status"], "done");
        assert_eq!(worker.heartbeat(&[&claims[1]]).await, Vec::<Value>::new(), "it is held as before");
        worker.done(&claims[1], json!({"stop": {"reason": "another was faster"}})).await;
        assert_eq!(result(&server, second).await["last_error"], "another was faster");
    }

    async fn stop_ends_it_as_failed_with_its_reason(server: Server) {
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"stop": {"reason": "no stock"}})).await;
        let ended = result(&server, id).await;
        assert_eq!((&ended["status"], &ended["last_error"]), (&json!("failed"), &json!("no stock")));
    }

    async fn fail_without_a_policy_is_a_stop(server: Server) {
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"fail": {"error": "boom"}})).await;
        let ended = result(&server, id).await;
        assert_eq!((&ended["status"], &ended["last_error"]), (&json!("failed"), &json!("boom")));
    }

    async fn fail_with_a_policy_is_tried_again_in_the_state_it_had_until_its_attempts_are_spent(server: Server) {
        let (status, body) = server.put("/v1/machines/m/1", &json!({"retry": {"max_attempts": 2, "delay_ms": 10}})).await;
        assert_eq!(status, 200, "{body}");
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m", "state": {"n": 1}})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"fail": {"error": "first"}})).await;
        let claim = worker.one().await;
        assert_eq!((&claim["attempt"], &claim["state"], &claim["cause"]), (&json!(1), &json!({"n": 1}), &json!("retry")));
        worker.done(&claim, json!({"fail": {"error": "second"}})).await;
        let ended = result(&server, id).await;
        assert_eq!((&ended["status"], &ended["last_error"]), (&json!("failed"), &json!("second")));
    }

    async fn spawn_hands_its_children_to_the_step_that_joins_them(server: Server) {
        // rules 10.1 to 10.3
        let worker = worker(&server);
        let child = worker.at(&server).machine("child");
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let children: Vec<Value> = (0..3).map(|n| json!({"machine": "child", "key": format!("c:{n}"), "state": n})).collect();
        worker.done(&claim, json!({"spawn": {"children": children, "next": "join", "state": "s"}})).await;
        until(&server, id, "awaiting_children").await;
        let claims = child.claim(10, 5_000).await;
        assert_eq!(claims.len(), 3);
        let outcomes = claims.iter().map(|claim| match claim["state"].as_i64().unwrap() {
            1 => (claim, json!({"stop": {"reason": "one failed"}})),
            n => (claim, json!({"done": {"result": n * 10}})),
        });
        for result in child.commit_all(outcomes.collect()).await {
            assert_eq!(result["status"], "committed");
        }
        let joined = worker.one().await;
        assert_eq!((&joined["step"], &joined["cause"]), (&json!("join"), &json!("children")));
        let seen = joined["children"].as_array().unwrap();
        assert_eq!(seen.len(), 3);
        assert_eq!((&seen[0]["key"], &seen[0]["status"], &seen[0]["result"]), (&json!("c:0"), &json!("done"), &json!(0)));
        assert_eq!((&seen[1]["status"], &seen[1]["last_error"]), (&json!("failed"), &json!("one failed")));
        assert_eq!((&seen[1]["machine"], &seen[1]["state"], &seen[1]["result"]), (&json!("child"), &json!(1), &Value::Null));
        worker.done(&joined, json!({"done": {"result": null}})).await;
    }

    async fn a_join_of_some_goes_on_when_so_many_have_ended(server: Server) {
        let worker = worker(&server);
        let child = worker.at(&server).machine("child");
        start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let children = json!([{"machine": "child"}, {"machine": "child"}]);
        worker.done(&claim, json!({"spawn": {"children": children, "next": "join", "state": 0, "join": {"at_least": 1}}})).await;
        let first = child.one().await;
        child.done(&first, json!({"done": {"result": 7}})).await;
        let joined = worker.one().await;
        assert_eq!(joined["children"].as_array().unwrap().len(), 2);
    }

    async fn a_barrier_whose_time_is_up_says_so(server: Server) {
        let worker = worker(&server);
        start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let spawn = json!({"spawn": {"children": [{"machine": "absent"}], "next": "join", "state": 0, "timeout_ms": 50}});
        worker.done(&claim, spawn).await;
        let joined = worker.one().await;
        assert_eq!((&joined["timed_out"], &joined["cause"]), (&json!(true), &json!("timeout")));
        assert_eq!(joined["children"][0]["status"], "runnable");
    }

    async fn continue_as_new_opens_the_next_run(server: Server) {
        // rule 2.4
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m", "key": "loop:1", "state": 1})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"continue_as_new": {"step": "again", "state": 2}})).await;
        let claim = worker.one().await;
        assert_ne!(claim["instance_id"], id);
        assert_eq!((&claim["key"], &claim["step"], &claim["state"]), (&json!("loop:1"), &json!("again"), &json!(2)));
        assert_eq!(instance(&server, id).await["status"], "continued");
        let (_, now) = server.get("/v1/instances/loop:1").await;
        assert_eq!((&now["run"], &now["id"]), (&json!(2), &claim["instance_id"]));
    }

    async fn an_outcome_that_breaks_a_rule_is_refused_with_what_was_wrong_and_leaves_its_claim(server: Server) {
        // rule 4.2
        let worker = worker(&server);
        start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let wrong = [
            (json!({"next": {"step": "a", "state": 1, "wait": 3}}), "unknown field `next.wait`: expected"),
            (json!({"next": {"step": "a"}}), "`next.state` is missing"),
            (json!({"nxt": {}}), "it is \"nxt\": expected one of `next`, `retry`,"),
            (json!({"done": {"result": 1}, "stop": {"reason": "x"}}), "invalid outcome"),
            (json!("done"), "invalid outcome"),
            (json!({"workflow": {}}), "it is \"workflow\": expected one of `next`,"),
            (json!({"next": {"step": "", "state": 1}}), "`next.step`: \"\" cannot be a name or a key: it is empty"),
            (json!({"next": "a"}), "`next` is \"a\": expected an object"),
            (json!({"done": null}), "`done` is null: expected an object"),
            (json!({"wait": {"signals": "paid", "next": "a", "state": 1}}), "`wait.signals` is \"paid\": expected a list"),
            (json!({"spawn": {"children": [{"machine": "x"}], "join": 2, "next": "a", "state": 1}}), "`spawn.join` is 2: expected an object"),
            (json!({"answer": {"updates": [{"result": 1}]}}), "`answer.updates[0].update_id` is missing"),
            (json!({"answer": {"updates": [], "then": "done"}}), "`answer.then` is \"done\": expected an object with one field, which has that name"),
            (json!({"answer": {"updates": [], "then": {"dnoe": {}}}}), "`answer.then` is \"dnoe\": expected one of `next`,"),
            (json!({"answer": {"updates": [], "then": 5}}), "`answer.then` is 5: expected one of `next`,"),
            (json!({"wait": {"next": "a", "state": 1}}), "waits for nothing"),
            (json!({"wait": {"signals": ["event:x"], "next": "a", "state": 1}}), "not a signal"),
            (json!({"wait": {"events": [{"type": "paid"}], "next": "a", "state": 1}}), "timeout"),
            (json!({"wait": {"events": [{"type": "paid", "conditions": [{"left": "a", "op": "like", "right": 1}]}], "timeout_ms": 5, "next": "a", "state": 1}}), "like"),
            (json!({"spawn": {"children": [{"machin": "x"}], "next": "a", "state": 1}}), "unknown field `spawn.children[0].machin`: expected"),
            (json!({"spawn": {"children": [{"state": 1}], "next": "a", "state": 1}}), "children[0]"),
            (json!({"spawn": {"children": [{"machine": "x", "key": "k", "reserve": true}], "next": "a", "state": 1}}), "reserve"),
            (json!({"retry": {"state": 1, "delay_ms": -1}}), "`retry.delay_ms` is -1: expected a whole number, 0 or more"),
            (json!({"next": {"step": "a", "state": "x".repeat(1 << 20)}}), "state_bytes"),
            (json!({"answer": {"updates": [{"update_id": 1, "result": 1, "error": "x"}]}}), "a result and an error"),
            (json!({"answer": {"updates": [], "then": {"answer": {"updates": []}}}}), "answer cannot follow"),
            (json!({"continue_as_new": {"step": "a", "state": 1, "version": 0}}), "version"),
        ];
        for (outcome, what) in wrong {
            let error = worker.refused(&claim, outcome.clone()).await;
            assert!(error.contains(what), "{what}: {error}");
        }
        worker.done(&claim, json!({"done": {"result": 1}})).await;
    }

    async fn an_answer_to_an_update_that_is_not_its_own_is_refused_with_its_id(server: Server) {
        // rules 4.2 and 9.2
        let (status, body) = server.put("/v1/machines/m/1", &json!({"updates": [{"name": "add"}]})).await;
        assert_eq!(status, 200, "{body}");
        let worker = worker(&server);
        let mut updates = Vec::new();
        for key in ["a", "b"] {
            start(&server, json!({"machine": "m", "key": key})).await;
            let path = format!("/v1/instances/{key}/updates/add");
            let (status, update) = server.post(&path, &json!({"wait_for": "accepted"})).await;
            assert_eq!(status, 202, "{update}");
            updates.push(update["update_id"].as_i64().unwrap());
        }
        let claims = worker.claim(2, 5_000).await;
        let answer = |ids: &[i64]| {
            let updates: Vec<Value> = ids.iter().map(|id| json!({"update_id": id, "result": 1})).collect();
            json!({"answer": {"updates": updates}})
        };
        let other = updates[1];
        let error = worker.refused(&claims[0], answer(&[updates[0], other, 987_654])).await;
        assert!(error.contains(&format!("it answers {other}, 987654, and no update of that id is pending here")), "{error}");
        assert_eq!(server.get(&format!("/v1/updates/{}", updates[0])).await.1["update_status"], "accepted", "nothing of it was done");
        worker.done(&claims[0], answer(&updates[..1])).await;
        assert_eq!(server.get(&format!("/v1/updates/{}", updates[0])).await.1["update_status"], "completed");
        // Sent again, because its answer got lost, it is the same commit.
        worker.done(&claims[0], answer(&updates[..1])).await;
    }

    async fn one_bad_outcome_of_a_batch_refuses_itself_only(server: Server) {
        let worker = worker(&server);
        for _ in 0..3 {
            start(&server, json!({"machine": "m"})).await;
        }
        let claims = worker.claim(3, 5_000).await;
        assert_eq!(claims.len(), 3);
        let results = worker
            .commit_all(vec![
                (&claims[0], json!({"done": {"result": 0}})),
                (&claims[1], json!({"done": {"resultt": 0}})),
                (&claims[2], json!({"done": {"result": 0}})),
            ])
            .await;
        let statuses: Vec<&Value> = results.iter().map(|result| &result["status"]).collect();
        assert_eq!(statuses, ["committed", "refused", "committed"]);
        assert_eq!(results[1]["claim"], claims[1]["claim"]);
        assert!(results[0].get("error").is_none());
        worker.done(&claims[1], json!({"done": {"result": 0}})).await;
    }
}
