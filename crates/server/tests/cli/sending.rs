//! `signal`, `update`, `publish`, and the lists of what was sent.

use serde_json::json;

use crate::cli::lab::{Checkout, Lab, on_every_store, until_it_is};

on_every_store! {
    async fn a_signal_is_sent_by_pairs_or_json_and_its_errors_are_reported_field_by_field(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({})).key("order:1").await.unwrap();
        until_it_is(&abide, "order:1", "waiting_for_signal").await;

        let wrong = lab.run(&["signal", "order:1", "payment_confirmed", "amount=x", "surprise=1"]).await;
        assert_eq!((wrong.code, wrong.out.as_str()), (1, ""), "{wrong:?}");
        let lines: Vec<&str> = wrong.err.lines().collect();
        assert_eq!(lines.first(), Some(&"abide: the arguments break the contract"), "{wrong:?}");
        assert!(lines.iter().any(|line| line.starts_with("  amount: ") && line.contains("int")), "{wrong:?}");
        assert!(lines.iter().any(|line| line.starts_with("  surprise: ")), "{wrong:?}");
        assert!(lines.last().is_some_and(|line| line.starts_with("try: abide machines")), "{wrong:?}");
        let wrong = lab.run(&["signal", "order:1", "payment_confirmed", "amount=x", "--json"]).await;
        let answer: serde_json::Value = serde_json::from_str(&wrong.out).unwrap();
        assert_eq!(answer["outcome"], json!("rejected_invalid_arguments"), "{answer}");
        assert!(answer["validation_errors"]["amount"][0]["code"] == "wrong_type", "{answer}");
        let unknown = lab.run(&["signal", "order:1", "payment_confrimed"]).await;
        assert_eq!(unknown.code, 1);
        assert!(unknown.err.contains("declares no signal of that name"), "{unknown:?}");

        let sent = lab.json(&["signal", "order:1", "payment_confirmed", "amount=7", "note=first", "--dedup", "evt-1"]).await;
        assert_eq!((&sent["outcome"], &sent["duplicate"], &sent["key"]), (&json!("signal_received"), &json!(false), &json!("order:1")), "{sent}");
        let again = lab.done(&["signal", "order:1", "payment_confirmed", "{\"amount\": 7, \"note\": \"first\"}", "--dedup", "evt-1"]).await;
        assert!(again.starts_with("signal_received: message 1 of instance ") && again.contains("had come before"), "{again}");
        assert_eq!(lab.done(&["result", "order:1", "--wait"]).await, "{\n  \"paid\": 7\n}\n");
        let late = lab.run(&["signal", "order:1", "payment_confirmed", "amount=8"]).await;
        assert_eq!(late.code, 1);
        assert!(late.err.contains("the instance has ended") && late.err.contains("try: abide show order:1"), "{late:?}");
        engine.shutdown().await;
    }

    async fn a_signal_without_an_instance_says_how_to_hold_it_and_is_held(lab: Lab) {
        lab.abide().await;
        let missing = lab.run(&["signal", "order:9", "paid", "1"]).await;
        assert_eq!(missing.code, 1);
        assert!(missing.err.contains("try: abide signal order:9 paid --hold-for 1h"), "{missing:?}");
        let held = lab.json(&["signal", "order:9", "paid", "1", "--hold-for", "1h"]).await;
        assert_eq!((&held["outcome"], &held["instance_id"]), (&json!("signal_held"), &json!(null)), "{held}");
        let listed = lab.json(&["signals", "--status", "held"]).await;
        assert_eq!((&listed["items"][0]["name"], &listed["items"][0]["status"]), (&json!("paid"), &json!("held")), "{listed}");
        let table = lab.done(&["signals", "--target", "order:9"]).await;
        assert!(table.contains("for order:9"), "{table}");
    }

    async fn a_record_says_who_sent_it_as_the_server_knows_and_as_the_command_says(lab: Lab) {
        // rule 7.3
        let abide = lab.abide().await;
        abide.start(Checkout, json!({})).key("order:1").await.unwrap();
        lab.done(&["signal", "order:1", "payment_confirmed", "amount=7"]).await;
        let (source, claimed, line) = match lab.is_server() {
            true => (json!("http"), json!("cli"), "message 1, command 1 from http, claiming \"cli\"\n"),
            false => (json!("cli"), json!(null), "message 1, command 1 from cli\n"),
        };
        let listed = lab.json(&["signals", "--target", "order:1"]).await;
        let record = &listed["items"][0];
        assert_eq!((&record["source"], &record["claimed_source"]), (&source, &claimed), "{record}");
        let shown = lab.done(&["show", "order:1"]).await;
        assert!(shown.contains(line), "{shown}");
    }

    async fn an_update_prints_its_answer_or_why_there_is_none(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({})).key("order:1").await.unwrap();
        until_it_is(&abide, "order:1", "waiting_for_signal").await;

        assert_eq!(lab.done(&["update", "order:1", "rename", "to=Ada Lovelace"]).await, "\"Ada Lovelace\"\n");
        let answer = lab.json(&["update", "order:1", "rename", "[\"Grace\"]", "--request-id", "r-1"]).await;
        assert_eq!((&answer["update_status"], &answer["result"]), (&json!("completed"), &json!("Grace")), "{answer}");
        let failed = lab.run(&["update", "order:1", "rename", "to=unnamed"]).await;
        assert_eq!(failed.code, 1);
        assert!(failed.err.contains("the update failed: there must be a name"), "{failed:?}");
        let wrong = lab.run(&["update", "order:1", "rename", "to=7"]).await;
        assert_eq!(wrong.code, 1);
        assert!(wrong.err.contains("\n  to: "), "{wrong:?}");
        let missing = lab.run(&["update", "order:9", "rename", "to=Ada"]).await;
        assert!(missing.code == 1 && missing.err.ends_with("try: abide list --key-prefix order\n"), "{missing:?}");
        engine.shutdown().await;

        let accepted = lab.done(&["update", "order:1", "rename", "to=Later", "--no-wait"]).await;
        let id: i64 = accepted.trim().parse().unwrap();
        let not_yet = lab.run(&["update", "order:1", "rename", "to=Later", "--wait", "50ms", "--request-id", "r-2"]).await;
        assert_eq!(not_yet.code, 1);
        assert!(not_yet.err.contains("is not answered after 50 ms") && not_yet.err.contains("abide signals --kind update"), "{not_yet:?}");
        let listed = lab.json(&["signals", "--kind", "update", "--target", "order:1", "--status", "accepted"]).await;
        let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|one| one["update_id"].as_i64()).collect();
        assert!(ids.contains(&Some(id)), "{listed}");
    }

    async fn an_event_is_published_and_kept(lab: Lab) {
        lab.abide().await;
        let ran = lab.run(&["publish", "payment.received", "order_id=ord_1", "amount=99.90", "--id", "evt_7"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (0, "evt_7: woke 0 waiters\n"), "{ran:?}");
        assert!(ran.err.contains("no instance waits for events of this type"), "{ran:?}");
        let again = lab.json(&["publish", "payment.received", "order_id=ord_1", "amount=99.90", "--id", "evt_7"]).await;
        assert_eq!(again, json!({"event_id": "evt_7", "matched": 0, "duplicate": true, "unmatched": false}));
        lab.done(&["publish", "other"]).await;

        let listed = lab.done(&["events", "--type", "payment.received", "--json"]).await;
        assert!(listed.contains(r#""payload":{"order_id":"ord_1","amount":99.90}"#) && !listed.contains("other"), "{listed}");
        let table = lab.done(&["events"]).await;
        assert!(table.starts_with("SEQUENCE") && table.contains("payment.received  evt_7"), "{table}");
        assert_eq!(lab.run(&["publish", "payment.received", "1", "2"]).await.code, 2);
    }
}
