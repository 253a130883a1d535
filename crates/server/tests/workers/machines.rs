//! Machines that wait, are signalled, and answer updates, with their code over HTTP.

use serde_json::json;

use crate::workers::kit::{on_both, result, start, until, worker};

on_both! {
    async fn a_signal_wakes_a_wait_and_comes_with_the_claim(server: Server) {
        // rules 7.4 and 8.4
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m", "key": "o:1"})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"wait": {"signals": ["paid"], "next": "ship", "state": {"n": 1}}})).await;
        assert_eq!(until(&server, id, "awaiting_signal").await["wait"]["names"], json!(["paid"]));
        let (status, _) = server.post("/v1/instances/o:1/signals/note", &json!({"payload": "hello"})).await;
        assert_eq!(status, 202);
        worker.none().await;
        let (status, sent) = server.post("/v1/instances/o:1/signals/paid", &json!({"payload": {"amount": 5}})).await;
        assert_eq!(status, 202);
        let claim = worker.one().await;
        assert_eq!((&claim["step"], &claim["cause"], &claim["timed_out"]), (&json!("ship"), &json!("signal"), &json!(false)));
        let awaited = claim["awaited"].as_array().unwrap();
        assert_eq!(awaited.len(), 1);
        assert_eq!((&awaited[0]["kind"], &awaited[0]["name"], &awaited[0]["payload"]), (&json!("signal"), &json!("paid"), &json!({"amount": 5})));
        assert_eq!((&awaited[0]["id"], &awaited[0]["message_sequence"]), (&sent["command_id"], &json!(2)));
        assert_eq!(awaited[0]["arguments"], json!([{"amount": 5}]));
        assert!(awaited[0]["received_at"].as_str().unwrap().ends_with('Z'));
        let inbox = claim["inbox"].as_array().unwrap();
        assert_eq!(inbox.iter().map(|one| &one["name"]).collect::<Vec<_>>(), ["note", "paid"]);
        worker.done(&claim, json!({"done": {"result": "ok"}})).await;
        assert_eq!(result(&server, id).await["result"], "ok");
        let (_, signals) = server.get(&format!("/v1/instances/{id}/signals")).await;
        let of = |name: &str| signals["items"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()["status"].clone();
        assert_eq!((of("paid"), of("note")), (json!("applied"), json!("discarded")));
    }

    async fn what_a_signal_yields_follows_its_contract(server: Server) {
        // rule 8.4
        let contract = json!({"signals": [
            {"name": "none", "parameters": []},
            {"name": "two", "parameters": [{"name": "by", "type": "string"}, {"name": "n", "type": "int", "default": 3}]},
        ]});
        assert_eq!(server.put("/v1/machines/m/1", &contract).await.0, 200);
        let worker = worker(&server);
        start(&server, json!({"machine": "m", "key": "o:1"})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"wait": {"signals": ["none", "two"], "next": "a", "state": 0}})).await;
        assert_eq!(server.post("/v1/instances/o:1/signals/none", &json!({})).await.0, 202);
        assert_eq!(server.post("/v1/instances/o:1/signals/two", &json!({"arguments": {"by": "ann"}})).await.0, 202);
        let claim = worker.one().await;
        let inbox = &claim["inbox"];
        assert_eq!((&inbox[0]["payload"], &inbox[0]["arguments"]), (&json!(true), &json!({})));
        assert_eq!((&inbox[1]["payload"], &inbox[1]["arguments"]), (&json!(["ann", 3]), &json!({"by": "ann", "n": 3})));
    }

    async fn a_wait_that_times_out_runs_its_step_and_says_so(server: Server) {
        // rule 7.5
        let worker = worker(&server);
        start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"wait": {"signals": ["paid"], "timeout_ms": 50, "next": "late", "state": 1}})).await;
        let claim = worker.one().await;
        assert_eq!((&claim["step"], &claim["timed_out"], &claim["cause"]), (&json!("late"), &json!(true), &json!("timeout")));
        assert_eq!((&claim["attempt"], &claim["awaited"]), (&json!(0), &json!([])));
    }

    async fn an_event_that_matches_comes_under_its_type(server: Server) {
        // rule 14.1
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m"})).await;
        let claim = worker.one().await;
        let wait = json!({"wait": {
            "events": [{"type": "payment.received", "conditions": [{"left": "order", "op": "eq", "right": 42}]}],
            "timeout_ms": 60_000, "next": "ship", "state": 1,
        }});
        worker.done(&claim, wait).await;
        until(&server, id, "awaiting_signal").await;
        assert_eq!(server.post("/v1/events", &json!({"type": "payment.received", "payload": {"order": 41}})).await.0, 200);
        worker.none().await;
        let (_, published) = server.post("/v1/events", &json!({"type": "payment.received", "payload": {"order": 42, "amount": 9}})).await;
        assert_eq!(published["matched"], 1);
        let claim = worker.one().await;
        let event = &claim["awaited"][0];
        assert_eq!((&event["kind"], &event["name"], &event["payload"]), (&json!("event"), &json!("payment.received"), &json!({"order": 42, "amount": 9})));
        assert_eq!((&claim["cause"], &claim["inbox"]), (&json!("event"), &claim["awaited"]));
    }

    async fn updates_come_with_the_claim_and_are_answered(server: Server) {
        // rules 9.1 and 9.2
        let contract = json!({"updates": [{"name": "add", "parameters": [{"name": "n", "type": "int"}]}]});
        assert_eq!(server.put("/v1/machines/m/1", &contract).await.0, 200);
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m", "key": "o:1"})).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"wait": {"signals": ["go"], "next": "on", "state": {"sum": 1}}})).await;
        until(&server, id, "awaiting_signal").await;

        let update_by = |n: i64| {
            let http = server.http.post(server.at("/v1/instances/o:1/updates/add"));
            let body = json!({"arguments": {"n": n}, "wait_for": "completed", "wait_ms": 20_000});
            tokio::spawn(crate::common::answer(http.json(&body)))
        };
        let pending = update_by(5);
        let claim = worker.one().await;
        assert_eq!((&claim["cause"], &claim["updates"][0]["name"]), (&json!("update"), &json!("add")));
        assert_eq!(claim["updates"][0]["arguments"], json!({"n": 5}));
        let update = claim["updates"][0]["update_id"].clone();
        let answer = json!({"answer": {"updates": [{"update_id": update, "result": 6}], "state": {"sum": 6}}});
        worker.done(&claim, answer).await;
        let (status, body) = pending.await.unwrap();
        assert_eq!((status, &body["update_status"], &body["result"]), (200, &json!("completed"), &json!(6)));
        // Without `then` it goes back to where it waited.
        let waiting = until(&server, id, "awaiting_signal").await;
        assert_eq!((&waiting["wait"]["names"], &waiting["state"]), (&json!(["go"]), &json!({"sum": 6})));

        let pending = update_by(0);
        let claim = worker.one().await;
        let update = claim["updates"][0]["update_id"].clone();
        worker.done(&claim, json!({"answer": {"updates": [{"update_id": update, "error": "no zero"}]}})).await;
        let (status, body) = pending.await.unwrap();
        assert_eq!((status, &body["update_status"], &body["error"]), (422, &json!("failed"), &json!("no zero")));

        let pending = update_by(1);
        let claim = worker.one().await;
        let update = claim["updates"][0]["update_id"].clone();
        let answer = json!({"answer": {"updates": [{"update_id": update, "result": 7}], "then": {"done": {"result": "early"}}}});
        worker.done(&claim, answer).await;
        assert_eq!(pending.await.unwrap().0, 200);
        assert_eq!(result(&server, id).await["result"], "early");
    }

    async fn waiting_again_keeps_what_was_handed_until_the_pack_is_whole(server: Server) {
        // rule 7.4
        let worker = worker(&server);
        let id = start(&server, json!({"machine": "m", "key": "o:1"})).await;
        let wait = json!({"wait": {"signals": ["a", "b"], "next": "pack", "state": 0}});
        let claim = worker.one().await;
        worker.done(&claim, wait.clone()).await;
        assert_eq!(server.post("/v1/instances/o:1/signals/a", &json!({"payload": 1})).await.0, 202);
        let claim = worker.one().await;
        assert_eq!(claim["awaited"].as_array().unwrap().len(), 1);
        worker.done(&claim, wait).await;
        until(&server, id, "awaiting_signal").await;
        assert_eq!(server.post("/v1/instances/o:1/signals/b", &json!({"payload": 2})).await.0, 202);
        let claim = worker.one().await;
        let payloads: Vec<_> = claim["awaited"].as_array().unwrap().iter().map(|one| one["payload"].clone()).collect();
        assert_eq!(payloads, [1, 2]);
        worker.done(&claim, json!({"next": {"step": "after", "state": 0}})).await;
        assert_eq!(worker.one().await["inbox"], json!([]));
    }
}
