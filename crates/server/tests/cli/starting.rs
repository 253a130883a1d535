//! `start`, `result`, `cancel`, `restart`, `repair`, `export`, `sweep`.

use serde_json::json;

use crate::cli::lab::{Chain, Checkout, Lab, on_every_store, until_it_is};

on_every_store! {
    async fn a_start_prints_the_id_and_says_when_no_worker_has_code_for_it(lab: Lab) {
        let ran = lab.run(&["start", "checkout", "--key", "order:42", "item=kettle", "amount=100", "code==007", "big=12345678901234567890123"]).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        let id: i64 = ran.out.trim().parse().unwrap();
        assert!(ran.err.contains("abide watch order:42") && ran.err.contains("no live worker has code for it"), "{ran:?}");
        let state = lab.done(&["show", "order:42", "--json"]).await;
        assert!(state.contains(r#""state":{"item":"kettle","amount":100,"code":"007","big":12345678901234567890123}"#), "{state}");

        let again = lab.run(&["start", "checkout", "--key", "order:42", "--json"]).await;
        assert_eq!(again.code, 1, "{again:?}");
        let answer: serde_json::Value = serde_json::from_str(&again.out).unwrap();
        assert_eq!((&answer["outcome"], &answer["id"]), (&json!("duplicate"), &json!(id)), "{again:?}");
        assert!(again.err.ends_with(&format!("try: abide show {id}\n")), "{again:?}");
    }

    async fn a_start_takes_all_that_a_start_can_say(lab: Lab) {
        let path = lab.file("order.json", "{\"n\": 1.50}\n");
        let made = lab.json(&["start", "checkout", "--key", "grüße:1", "--state", &format!("@{path}"), "--version", "3",
            "--step", "ship", "--queue", "fast", "--priority", "-5", "--partition", "p:1", "--unique-key", "u", "--delay", "1h30m"]).await;
        assert_eq!((&made["key"], &made["run"]), (&json!("grüße:1"), &json!(1)), "{made}");
        let one = lab.json(&["show", "grüße:1"]).await;
        assert_eq!(one["state"], json!({"n": 1.5}));
        assert_eq!(
            [&one["version"], &one["step"], &one["queue"], &one["priority"], &one["partition_key"], &one["unique_key"]],
            [&json!(3), &json!("ship"), &json!("fast"), &json!(-5), &json!("p:1"), &json!("u")]
        );
        assert_eq!((&one["status"], &one["liveness"]), (&json!("scheduled"), &json!("scheduled")));
        assert_eq!(one["id"], made["id"]);

        let read = lab.piped(&["start", "checkout", "--state", "-", "--at", "2999-01-01T00:00:00Z"], "[1, 2]").await;
        assert_eq!(read.code, 0, "{read:?}");
        let one = lab.json(&["show", read.out.trim()]).await;
        assert_eq!((&one["state"], &one["due_at"]), (&json!([1, 2]), &json!("2999-01-01T00:00:00Z")));
    }

    async fn what_is_refused_by_a_rule_ends_with_1_and_wrong_usage_with_2(lab: Lab) {
        for (wrong, code) in [
            (vec!["start", "checkout", "--key", "42"], 1),
            (vec!["start", "checkout", "--version", "0"], 1),
            (vec!["start", "nothing", "--graph"], 1),
            (vec!["start", "checkout", "hello"], 2),
            (vec!["start", "checkout", "--state", "{"], 2),
            (vec!["start", "checkout", "--delay", "soon"], 2),
            (vec!["start", "checkout", "a=1", "--state", "{}"], 2),
            (vec!["start"], 2),
            (vec!["strat"], 2),
        ] {
            let ran = lab.run(&wrong).await;
            assert_eq!(ran.code, code, "{wrong:?}: {ran:?}");
            assert!(ran.out.is_empty() && (ran.err.contains("\ntry: ") || ran.err.contains("--help") || ran.err.contains("similar")), "{wrong:?}: {ran:?}");
        }
    }

    async fn a_result_is_printed_when_it_is_there_and_waited_for_when_asked(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).machine(Chain).start().await.unwrap();
        abide.start(Checkout, json!({"quick": 1})).key("order:1").await.unwrap().result().await.unwrap();
        assert_eq!(lab.done(&["result", "order:1"]).await, "{\n  \"quick\": 1\n}\n");
        let answer = lab.json(&["result", "order:1"]).await;
        assert_eq!((&answer["status"], &answer["result"], &answer["key"]), (&json!("done"), &json!({"quick": 1}), &json!("order:1")));

        abide.start(Checkout, json!({})).key("order:2").await.unwrap();
        let not_yet = lab.run(&["result", "order:2", "--wait=50ms"]).await;
        assert_eq!((not_yet.code, not_yet.out.as_str()), (1, ""), "{not_yet:?}");
        assert!(not_yet.err.ends_with("try: abide result order:2 --wait\n"), "{not_yet:?}");
        let (waited, sent) = tokio::join!(
            lab.run(&["result", "order:2", "--wait"]),
            lab.run(&["signal", "order:2", "payment_confirmed", "amount=7"]),
        );
        assert_eq!((waited.code, sent.code, waited.out.as_str()), (0, 0, "{\n  \"paid\": 7\n}\n"), "{waited:?} {sent:?}");

        // One that continued as new is followed.
        let chain = abide.start(Chain, 0).key("chain:1").await.unwrap();
        let first = chain.id().to_string();
        chain.result().await.unwrap();
        assert_eq!(lab.done(&["result", &first, "--wait"]).await, "1\n");

        let _ = abide.start(Checkout, json!({"fail": 1})).key("order:3").await.unwrap().result().await;
        let failed = lab.run(&["result", "order:3"]).await;
        assert_eq!(failed.code, 1);
        assert!(failed.err.contains("the card was\\u{1b}[31m refused") && failed.err.contains("abide restart order:3"), "{failed:?}");
        engine.shutdown().await;
    }

    async fn an_operator_cancels_restarts_and_repairs(lab: Lab) {
        lab.done(&["start", "checkout", "--key", "order:1", "--delay", "1h"]).await;
        let cancelled = lab.done(&["cancel", "order:1", "--reason", "the customer left"]).await;
        assert!(cancelled.starts_with("cancelled: instance "), "{cancelled}");
        let one = lab.json(&["show", "order:1"]).await;
        assert_eq!((&one["status"], &one["last_error"]), (&json!("cancelled"), &json!("the customer left")));

        let twice = lab.run(&["cancel", "order:1", "--json"]).await;
        let answer: serde_json::Value = serde_json::from_str(&twice.out).unwrap();
        assert_eq!((twice.code, &answer["outcome"]), (1, &json!("rejected_not_active")), "{twice:?}");

        let run = lab.json(&["restart", "order:1", "--step", "ship"]).await;
        assert_eq!((&run["key"], &run["run"]), (&json!("order:1"), &json!(2)), "{run}");
        assert_eq!(lab.json(&["show", "order:1"]).await["step"], json!("ship"));
        let refused = lab.run(&["restart", "order:1"]).await;
        assert_eq!(refused.code, 1);
        assert!(refused.err.contains("only a failed or cancelled instance can be restarted"), "{refused:?}");

        assert_eq!(lab.done(&["repair", "order:1"]).await, "repair_not_needed\n");
        assert_eq!(lab.json(&["repair", "order:1"]).await, json!({"outcome": "repair_not_needed"}));
        for command in ["cancel", "restart", "repair", "show", "result", "watch", "export"] {
            let missing = lab.run(&[command, "order:404"]).await;
            assert_eq!(missing.code, 1, "{command}: {missing:?}");
            assert_eq!(missing.err, "abide: no instance with the id or key \"order:404\"\ntry: abide list --key-prefix order\n", "{command}");
        }
    }

    async fn a_run_is_exported_with_its_history_and_swept_when_it_has_ended(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({"quick": true})).key("order:1").await.unwrap().result().await.unwrap();
        abide.start(Checkout, json!({})).key("order:2").await.unwrap();
        until_it_is(&abide, "order:2", "waiting_for_signal").await;
        engine.shutdown().await;

        let run: abide::workflow::RunHistory = serde_json::from_str(&lab.done(&["export", "order:1"]).await).unwrap();
        assert_eq!(run.history.first().map(|entry| entry.what.kind()), Some("started"));
        let file = lab.path("run.json");
        let ran = lab.run(&["export", "order:1", "--to", file.to_str().unwrap()]).await;
        assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
        assert_eq!(abide::workflow::RunHistory::from_file(&file).unwrap(), run);

        assert_eq!(lab.json(&["sweep"]).await, json!({"deleted": 0}));
        let swept = lab.done(&["sweep", "--older-than", "0"]).await;
        assert!(swept.starts_with("1 instance deleted"), "{swept}");
        assert_eq!(lab.run(&["show", "order:1"]).await.code, 1);
        assert_eq!(lab.run(&["show", "order:2"]).await.code, 0);
    }
}
