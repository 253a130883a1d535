//! `outbox`: what was refused, and what is done about it.

use serde_json::json;

use crate::cli::lab::{Checkout, Lab, on_every_store, until};
use crate::common::insert_request;

on_every_store! {
    async fn refused_requests_are_listed_retried_and_discarded(lab: Lab) {
        // rule 17.3
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        let none = lab.run(&["outbox"]).await;
        assert_eq!((none.code, none.out.as_str()), (0, ""), "{none:?}");
        assert!(none.err.contains("no request of the outbox was refused"), "{none:?}");
        for request in [r#"{"cancel": {"target": "order:7"}}"#, "no JSON", r#"{"start": {"machine": "checkout", "key": "order:1"}}"#] {
            insert_request(&lab.store, request);
        }
        until(async || (lab.json(&["outbox"]).await["items"].as_array().unwrap().len() == 2).then_some(())).await;
        let listed = lab.json(&["outbox"]).await;
        let ids: Vec<String> = listed["items"].as_array().unwrap().iter().map(|one| one["id"].to_string()).collect();
        assert_eq!(listed["items"][0]["request"], json!("no JSON"), "{listed}");
        assert_eq!(listed["items"][1]["reason"], json!("no_target"), "{listed}");
        let table = lab.done(&["outbox"]).await;
        assert!(table.starts_with("ID") && table.contains("bad_request") && table.contains("no_target"), "{table}");
        // The problem is shown to its end, over as many lines as it takes.
        let narrow = lab.on_terminal(&["outbox"], 48).await.out;
        let words: Vec<&str> = narrow.split_whitespace().collect();
        for one in listed["items"].as_array().unwrap() {
            let problem = one["problem"].as_str().unwrap();
            assert!(words.join(" ").contains(problem), "{problem}: {narrow}");
        }
        let doctor = lab.run(&["doctor"]).await;
        assert!(doctor.code == 0 && doctor.err.contains("the outbox refused 2 requests") && doctor.err.contains("abide outbox"), "{doctor:?}");

        lab.done(&["start", "checkout", "--key", "order:7"]).await;
        assert_eq!(lab.done(&["outbox", "retry", &ids[1]]).await.trim(), "requeued: 1 request");
        until(async || (lab.json(&["show", "order:7"]).await["status"] == "cancelled").then_some(())).await;
        assert_eq!(lab.json(&["outbox", "discard", &ids[0]]).await, json!({"outcome": "discarded", "count": 1}));
        let gone = lab.run(&["outbox", "discard", &ids[0]]).await;
        assert!(gone.code == 1 && gone.err.contains("no refused request has such an id"), "{gone:?}");
        assert_eq!(lab.run(&["outbox", "retry"]).await.code, 2);
        engine.shutdown().await;
    }
}
