//! The cause that woke an instance, the graph step that took a message, and the chain of an id without a key.

use abide::{Context, Graph, Machine, Outcome, Step, done, stop};
use serde_json::{Value, json};

use crate::cli::lab::{Checkout, Lab, on_every_store, until, until_it_is};

on_every_store! {
    async fn the_cause_that_woke_it_is_shown_until_the_step_is_committed(lab: Lab) {
        // rules 7.1 and 13.1
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({})).key("order:1").await.unwrap();
        until_it_is(&abide, "order:1", "waiting_for_signal").await;
        engine.shutdown().await;
        let sent = lab.json(&["signal", "order:1", "payment_confirmed", "amount=3"]).await;
        assert_eq!(sent["command_sequence"], json!(1), "{sent}");
        let woken_by = json!({"command_id": sent["command_id"], "kind": "signal"});
        let shown = lab.json(&["show", "order:1"]).await;
        assert_eq!(shown["wait"]["resume_source"], woken_by, "{shown}");
        let listed = lab.json(&["list"]).await;
        assert_eq!(listed["items"][0]["wait"]["resume_source"], woken_by, "{listed}");
        let text = lab.done(&["show", "order:1"]).await;
        assert!(text.contains("woken by") && text.contains(&format!("signal {}", sent["command_id"])), "{text}");
        let records = lab.json(&["signals", "--target", "order:1"]).await;
        assert_eq!(records["items"][0]["command_sequence"], json!(1), "{records}");
    }

    async fn the_step_of_a_graph_that_took_a_signal_is_shown(lab: Lab) {
        // rules 7.6 and 15.4
        let abide = lab.abide().await;
        let graph = Graph::builder("choice").wait_for_signal("size", "go").build().unwrap();
        let engine = abide.engine().graph(&graph).start().await.unwrap();
        abide.start(graph, json!(null)).key("run:1").await.unwrap();
        until_it_is(&abide, "run:1", "waiting_for_signal").await;
        let text = lab.done(&["show", "run:1"]).await;
        assert!(text.contains("signal go, operation 1, id wait:"), "{text}");
        lab.done(&["signal", "run:1", "go", "7"]).await;
        let result = lab.json(&["result", "run:1", "--wait=30s"]).await;
        assert_eq!(result["result"], json!({"size": 7}), "{result}");
        let records = lab.json(&["signals", "--target", "run:1"]).await;
        let one = &records["items"][0];
        assert_eq!((&one["operation"], &one["graph_step"]), (&json!(1), &json!("size")), "{records}");
        let text = lab.done(&["show", "run:1"]).await;
        assert!(text.contains("by step size of the graph, operation 1"), "{text}");
        engine.shutdown().await;
    }

    async fn without_a_key_an_id_stands_for_the_newest_run_of_its_chain(lab: Lab) {
        // rule 2.5
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Fickle).start().await.unwrap();
        let first = abide.start(Fickle, 0).await.unwrap().id();
        let id = first.to_string();
        until_it_is(&abide, &id, "closed").await;
        let failed = lab.run(&["result", &id]).await;
        assert_eq!(failed.code, 1, "{failed:?}");
        let again = lab.json(&["restart", &id, "--step", "well"]).await;
        assert_ne!(again["id"], json!(first), "{again}");
        until(async || (lab.run(&["result", &id, "--wait=30s"]).await.code == 0).then_some(())).await;
        for arguments in [&["result", &id][..], &["result", &id, "--wait"], &["show", &id]] {
            let seen = lab.json(arguments).await;
            let fields = (&seen["id"], &seen["run"], &seen["status"], &seen["result"]);
            assert_eq!(fields, (&again["id"], &json!(2), &json!("done"), &json!(5)), "{arguments:?}: {seen}");
        }
        engine.shutdown().await;
    }
}

/// Fails at its first step, and is well at the other.
struct Fickle;

#[derive(Step)]
enum At {
    Ill,
    Well,
}

impl Machine for Fickle {
    const NAME: &'static str = "fickle";
    type Step = At;
    type State = u32;
    type Output = Value;

    async fn step(&self, at: At, _: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Ill => stop("ill"),
            At::Well => done(json!(5)),
        }
    }
}
