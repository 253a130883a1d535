//! `show`: what an instance waits for and whether that is healthy, for every way in which one can be.

use abide::{Engine, Event, eq, hours, secs};
use serde_json::{Value, json};

use crate::lab::{
    CHILD, Chain, Checkout, FLOW, GO, LONG, Lab, Parent, SLOW, after, before, conditional,
    on_every_store, until_it_is,
};

/// The first line of what is shown, and the liveness as programs see it.
async fn sentence(lab: &Lab, target: &str) -> (String, Value) {
    let shown = lab.done(&["show", target]).await;
    let one = lab.json(&["show", target]).await;
    (
        shown.lines().next().unwrap_or_default().to_owned(),
        one["liveness"].clone(),
    )
}

async fn stop(engine: Engine) {
    engine.shutdown().await;
}

on_every_store! {
    async fn one_that_waits_for_a_signal(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({"item": "kettle\u{1b}[2J"})).key("order:1").await.unwrap();
        until_it_is(&abide, "order:1", "waiting_for_signal").await;
        let (said, liveness) = sentence(&lab, "order:1").await;
        assert_eq!(liveness, "waiting_for_signal");
        assert!(said.starts_with("order:1 waits for signal payment_confirmed since "), "{said}");
        assert!(said.contains("(deadline in ") && said.ends_with("; healthy: a signal of that name wakes it"), "{said}");

        let whole = lab.done(&["show", "order:1"]).await;
        assert!(!whole.contains('\u{1b}'), "{whole}");
        let headings: Vec<&str> = whole.lines().filter(|line| !line.starts_with(' ') && !line.is_empty()).skip(1).collect();
        assert!(headings.starts_with(&["state"]) && headings.contains(&"history"), "{whole}");
        for expected in ["  key         order:1", "  machine     checkout version 1", "  status      awaiting_signal · waiting for signal", "waits since", "step_completed", "wait_opened"] {
            assert!(whole.contains(expected), "{expected}: {whole}");
        }
        let one = lab.json(&["show", "order:1"]).await;
        assert_eq!((&one["wait"]["kind"], &one["wait"]["names"]), (&json!("signal"), &json!(["payment_confirmed"])));
        assert_eq!(one["history"][0]["kind"], json!("started"));
        let short = lab.json(&["show", "order:1", "--history", "1"]).await;
        assert_eq!(short["history"].as_array().unwrap().len(), 1);
        stop(engine).await;
    }

    async fn those_that_run_and_those_that_are_ready(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().name("billing-1").queue("default", 1)
            .job(SLOW, |n| async move { tokio::time::sleep(LONG).await; Ok(n) }).grace(secs(0)).start().await.unwrap();
        abide.start(SLOW, 1).key("slow:1").await.unwrap();
        until_it_is(&abide, "slow:1", "running").await;
        abide.start(SLOW, 2).key("slow:2").await.unwrap();
        let (said, liveness) = sentence(&lab, "slow:1").await;
        assert_eq!((said.as_str(), liveness), ("slow:1 runs step run on worker billing-1; healthy: if that dies, another takes over", json!("running")));
        let (said, liveness) = sentence(&lab, "slow:2").await;
        assert_eq!(liveness, "ready");
        assert!(said.starts_with("slow:2 ready to run since ") && said.contains("healthy: 1 worker serves queue default with code for slow version 1"), "{said}");
        let workers = lab.done(&["workers"]).await;
        assert!(workers.contains("billing-1") && workers.contains("slow v1") && workers.contains("ends in"), "{workers}");
        let queues = lab.json(&["queues"]).await;
        assert_eq!(queues["items"][0]["statuses"], json!({"executing": 1, "runnable": 1}), "{queues}");
        stop(engine).await;
    }

    async fn those_that_wait_for_a_worker_or_for_their_time(lab: Lab) {
        lab.done(&["start", "checkout", "--key", "order:1"]).await;
        let (said, liveness) = sentence(&lab, "order:1").await;
        assert_eq!(liveness, "waiting_for_worker");
        assert!(said.contains("no worker that lives serves queue default with code for checkout version 1. Start one"), "{said}");

        lab.done(&["start", "checkout", "--key", "order:2", "--delay", "1h"]).await;
        let (said, liveness) = sentence(&lab, "order:2").await;
        assert_eq!(liveness, "scheduled");
        assert!(said.starts_with("order:2 is due in ") && said.ends_with("healthy: nothing is to be done until then"), "{said}");
    }

    async fn one_that_waits_for_an_event(lab: Lab) {
        let abide = lab.abide().await;
        let graph = abide::Graph::builder("handler")
            .wait_for_event("paid", Event::new("payment.received").matching("order_id", eq("ord_1")), hours(1))
            .build().unwrap();
        abide.keep_graph(&graph).await.unwrap();
        let engine = abide.engine().graph(&graph).start().await.unwrap();
        lab.done(&["start", "handler", "--graph", "--key", "run:1", "id=ord_1"]).await;
        until_it_is(&abide, "run:1", "waiting_for_event").await;
        let (said, liveness) = sentence(&lab, "run:1").await;
        assert_eq!(liveness, "waiting_for_event");
        assert!(said.starts_with("run:1 waits for event payment.received where order_id eq \"ord_1\" since "), "{said}");
        assert!(said.ends_with("healthy: such an event wakes it"), "{said}");

        let waits = lab.json(&["waits", "--kind", "event"]).await;
        assert_eq!((&waits["items"][0]["name"], &waits["items"][0]["key"]), (&json!("payment.received"), &json!("run:1")), "{waits}");
        let table = lab.done(&["waits", "--instance", "run:1"]).await;
        assert!(table.contains("order_id eq \"ord_1\""), "{table}");
        let woken = lab.done(&["publish", "payment.received", "order_id=ord_1"]).await;
        assert!(woken.ends_with(": woke 1 waiter\n"), "{woken}");
        assert_eq!(lab.run(&["watch", "run:1"]).await.code, 0);
        stop(engine).await;
    }

    async fn one_that_waits_for_a_condition(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().workflow(FLOW, conditional).start().await.unwrap();
        abide.start(FLOW, ()).key("flow:1").await.unwrap();
        until_it_is(&abide, "flow:1", "waiting_for_condition").await;
        let (said, liveness) = sentence(&lab, "flow:1").await;
        assert_eq!(liveness, "waiting_for_condition");
        assert!(said.starts_with("flow:1 waits for the condition ready since ") && said.contains("(no deadline)"), "{said}");
        stop(engine).await;
    }

    async fn one_that_waits_for_its_children(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Parent).start().await.unwrap();
        abide.start(Parent, ()).key("parent:1").await.unwrap();
        until_it_is(&abide, "parent:1", "waiting_for_children").await;
        let (said, liveness) = sentence(&lab, "parent:1").await;
        assert_eq!(liveness, "waiting_for_children");
        assert!(said.starts_with("parent:1 waits for 3 more of its children since "), "{said}");
        let id = lab.json(&["show", "parent:1"]).await["id"].to_string();
        let which = format!("their ends wake it, but 3 of them could run, and no worker that lives has code for that. \
                             To see which: abide list --parent {id} --liveness waiting_for_worker");
        assert!(said.ends_with(&which), "{said}");
        let whole = lab.done(&["show", "parent:1"]).await;
        assert!(whole.contains("\nchildren\n") && whole.contains("child:2"), "{whole}");
        let listed = lab.json(&["list", "--parent", "parent:1"]).await;
        assert_eq!(listed["items"].as_array().unwrap().len(), 3);
        let stranded = lab.run(&["doctor"]).await;
        assert!(stranded.err.contains("no worker that lives has code for them: abide list --liveness waiting_for_worker"), "{stranded:?}");

        let children = abide.engine().job(CHILD, |n| async move { tokio::time::sleep(LONG).await; Ok(n) }).grace(secs(0)).start().await.unwrap();
        until_it_is(&abide, "child:2", "running").await;
        let (said, _) = sentence(&lab, "parent:1").await;
        assert!(said.ends_with("healthy: their ends wake it"), "{said}");
        assert!(!lab.run(&["doctor"]).await.err.contains("no worker"));
        stop(children).await;
        stop(engine).await;
    }

    /// A step that waits for a signal of a name that its machine does not declare was called healthy, while whoever sent
    /// that signal was refused.
    async fn one_that_would_wait_for_a_signal_that_nobody_can_send(lab: Lab) {
        // rule 8.6
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({"slip": 1})).key("slip:1").await.unwrap();
        until_it_is(&abide, "slip:1", "closed").await;
        let (said, _) = sentence(&lab, "slip:1").await;
        assert!(said.contains("failed") && said.contains("it waits for the signal \"go\", which the contract of this run does not declare"), "{said}");
        stop(engine).await;
    }

    async fn one_whose_code_does_not_fit_its_history(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().workflow(FLOW, before).start().await.unwrap();
        abide.start(FLOW, ()).key("flow:1").await.unwrap();
        until_it_is(&abide, "flow:1", "waiting_for_signal").await;
        stop(engine).await;
        let engine = abide.engine().workflow(FLOW, after).start().await.unwrap();
        abide.signal("flow:1", GO, &1).await.unwrap();
        until_it_is(&abide, "flow:1", "replay_blocked").await;
        let (said, liveness) = sentence(&lab, "flow:1").await;
        assert_eq!(liveness, "replay_blocked");
        assert!(said.starts_with("flow:1 blocked: its code does not fit its history (") && said.contains("abide repair flow:1"), "{said}");
        stop(engine).await;
    }

    async fn those_that_have_ended(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).machine(Chain).start().await.unwrap();
        let _ = abide.start(Checkout, json!({"quick": 1})).key("order:done").await.unwrap().result().await;
        let _ = abide.start(Checkout, json!({"fail": 1})).key("order:failed").await.unwrap().result().await;
        let chain = abide.start(Chain, 0).key("chain:1").await.unwrap();
        chain.result().await.unwrap();
        abide.start(Checkout, json!({})).key("order:cancelled").await.unwrap();
        abide.cancel("order:cancelled", "not wanted").await.unwrap();
        for (target, expected) in [
            ("order:done", "nothing is left to do"),
            ("order:failed", "at step start: the card was\\u{1b}[31m refused. To open a new run of it: abide restart order:failed"),
            ("order:cancelled", ": not wanted"),
        ] {
            let (said, liveness) = sentence(&lab, target).await;
            assert_eq!(liveness, "closed");
            assert!(said.ends_with(expected), "{said}");
        }
        let (said, _) = sentence(&lab, &chain.id().to_string()).await;
        assert!(said.contains("in a newer run as instance "), "{said}");
        stop(engine).await;
    }
}

/// Nothing but a hand in the tables makes such a one.
async fn broken(lab: &Lab, hand: impl AsyncFnOnce(&str)) {
    let abide = lab.abide().await;
    let engine = abide.engine().machine(Checkout).start().await.unwrap();
    abide
        .start(Checkout, json!({}))
        .key("order:1")
        .await
        .unwrap();
    until_it_is(&abide, "order:1", "waiting_for_signal").await;
    stop(engine).await;
    assert_eq!(lab.run(&["doctor"]).await.code, 0);
    abide.close().await;
    hand("set status = 3, worker = null where key = 'order:1'").await;
    let (said, liveness) = sentence(lab, "order:1").await;
    assert_eq!(liveness, "repair_needed");
    assert!(
        said.starts_with("order:1 needs repair: ") && said.ends_with("run: abide repair order:1"),
        "{said}"
    );
    let doctor = lab.run(&["doctor"]).await;
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(
        doctor.out.starts_with("INSTANCE")
            && doctor.err.contains("1 problem")
            && doctor.err.contains("try: abide repair"),
        "{doctor:?}"
    );
    assert_eq!(
        lab.done(&["repair", "order:1"]).await,
        "repair_dispatched\n"
    );
    assert_eq!(lab.json(&["doctor"]).await["findings"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_needs_repair_on_sqlite() {
    let lab = Lab::sqlite();
    let path = lab.path("orders.db");
    broken(&lab, async |what| {
        let conn = abide::sqlite::rusqlite::Connection::open(&path).unwrap();
        conn.execute(&format!("update abide_instances {what}"), [])
            .unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_needs_repair_on_postgres() {
    let lab = Lab::postgres();
    let url = lab.url.clone();
    broken(&lab, async |what| {
        abide_pgtest::psql(&url, &format!("update abide.instances {what}"));
    })
    .await;
}
