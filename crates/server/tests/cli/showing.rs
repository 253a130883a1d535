//! `show`: what an instance waits for and whether that is healthy, for every way in which one can be.

use std::time::Instant;

use abide::client::new_start;
use abide::engine::Engine;
use abide::message::eq;
use abide::model::Limits;
use abide::time::{hours, secs};
use abide::{Abide, Event, Flow, Workflow};
use serde_json::{Value, json};

use crate::cli::lab::{
    CHILD, Chain, Checkout, FLOW, GO, LONG, Lab, PAID, Parent, Payment, SLOW, after, before,
    conditional, on_every_store, until_it_is,
};
use crate::common::{self, Over, Server};

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
        let (text, liveness) = sentence(&lab, "order:1").await;
        assert_eq!(liveness, "waiting_for_signal");
        assert!(text.starts_with("order:1 waits for signal payment_confirmed for "), "{text}");
        assert!(text.contains("(deadline in ") && text.ends_with("; healthy: a signal of that name wakes it"), "{text}");

        let whole = lab.done(&["show", "order:1"]).await;
        assert!(!whole.contains('\u{1b}'), "{whole}");
        let headings: Vec<&str> = whole.lines().filter(|line| !line.starts_with(' ') && !line.is_empty()).skip(1).collect();
        assert!(headings.starts_with(&["state"]) && headings.contains(&"history"), "{whole}");
        for expected in ["  key         order:1", "  machine     checkout version 1", "  status      awaiting_signal\n", "waits since", "step_completed", "wait_opened"] {
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
        let (text, liveness) = sentence(&lab, "slow:1").await;
        assert_eq!((text.as_str(), liveness), ("slow:1 runs step run on worker billing-1; healthy: if that dies, another takes over", json!("running")));
        let (text, liveness) = sentence(&lab, "slow:2").await;
        assert_eq!(liveness, "ready");
        assert!(text.starts_with("slow:2 ready to run for ") && text.contains("healthy: 1 worker serves queue default with code for slow version 1"), "{text}");
        let workers = lab.done(&["workers"]).await;
        assert!(workers.contains("billing-1") && workers.contains("slow v1") && workers.contains("ends in"), "{workers}");
        let queues = lab.json(&["queues"]).await;
        assert_eq!(queues["items"][0]["statuses"], json!({"executing": 1, "runnable": 1}), "{queues}");
        stop(engine).await;
    }

    async fn one_whose_worker_died_says_how_often(lab: Lab) {
        // rule 5.5
        let abide = lab.abide().await;
        let start = || abide.engine().name("billing-1").job(SLOW, |n| async move { tokio::time::sleep(LONG).await; Ok(n) })
            .grace(secs(0)).start();
        let first = start().await.unwrap();
        abide.start(SLOW, 1).key("slow:1").await.unwrap();
        until_it_is(&abide, "slow:1", "running").await;
        assert!(!lab.done(&["show", "slow:1"]).await.contains("died"));
        // It comes back under its name, as after a crash.
        let second = start().await.unwrap();
        let until = Instant::now() + common::PATIENCE;
        loop {
            let whole = lab.done(&["show", "slow:1"]).await;
            if whole.contains("(number 1, attempt 1, its worker died once)") {
                break;
            }
            assert!(Instant::now() < until, "{whole}");
        }
        assert_eq!(lab.json(&["show", "slow:1"]).await["deaths"], json!(1));
        stop(second).await;
        stop(first).await;
    }

    async fn those_that_wait_for_a_worker_or_for_their_time(lab: Lab) {
        lab.done(&["start", "checkout", "--key", "order:1"]).await;
        let (text, liveness) = sentence(&lab, "order:1").await;
        assert_eq!(liveness, "waiting_for_worker");
        assert!(text.contains("no live worker serves queue default with code for checkout version 1. Start one"), "{text}");

        lab.done(&["start", "checkout", "--key", "order:2", "--delay", "1h"]).await;
        let (text, liveness) = sentence(&lab, "order:2").await;
        assert_eq!(liveness, "scheduled");
        assert!(text.starts_with("order:2 is due in ") && text.ends_with("healthy: nothing is to be done until then"), "{text}");
    }

    async fn all_events_that_one_and_its_children_wait_for_are_shown(lab: Lab) {
        // rule 13.1: of 250 waits for events 100 were shown, and of a child's none.
        const MANY: Flow<u32, usize> = Flow::new("many");
        const FAMILY: Flow<u32, usize> = Flow::new("family");
        let many = |wf: Workflow, count: u32| async move {
            let tick = |n| Event::new("tick").matching("n", eq(n));
            let waits = (0..count).map(|n| wf.event::<Value>(tick(n)).timeout(hours(1)));
            Ok(wf.all(waits.collect::<Vec<_>>()).await.len())
        };
        let family = |wf: Workflow, count: u32| async move {
            Ok(wf.child(new_start(MANY, count).key("many:1")).await?)
        };
        let limits = Limits { names_per_wait: 1_000, ..Limits::default() };
        let abide = Abide::options().limits(limits).open(&lab.store).await.unwrap();
        let engine = abide.engine().workflow(MANY, many).workflow(FAMILY, family).start().await.unwrap();
        abide.start(FAMILY, 250).key("family:1").await.unwrap();
        until_it_is(&abide, "many:1", "waiting_for_event").await;
        let one = lab.json(&["show", "many:1"]).await;
        let parent = lab.json(&["show", "family:1"]).await;
        let list = lab.json(&["list", "--machine", "many"]).await;
        for seen in [&one, &parent["children"][0], &list["items"][0]] {
            assert_eq!(seen["wait"]["events"].as_array().unwrap().len(), 250);
        }
        stop(engine).await;
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
        let (text, liveness) = sentence(&lab, "run:1").await;
        assert_eq!(liveness, "waiting_for_event");
        assert!(text.starts_with("run:1 waits for event payment.received where order_id eq \"ord_1\" for "), "{text}");
        assert!(text.ends_with("healthy: such an event wakes it"), "{text}");

        let waits = lab.json(&["waits", "--kind", "event"]).await;
        assert_eq!((&waits["items"][0]["name"], &waits["items"][0]["key"]), (&json!("payment.received"), &json!("run:1")), "{waits}");
        let table = lab.done(&["waits", "--instance", "run:1"]).await;
        assert!(table.contains("order_id eq \"ord_1\""), "{table}");
        // rule 13.1: one that does not match is a fact, and its publisher hears of it.
        let other = lab.run(&["publish", "payment.received", "--id", "evt-9", "order_id=ord_2"]).await;
        assert!(other.out.contains("evt-9: woke 0 waiters") && other.err.contains("matches none of the waits for events of type payment.received"), "{other:?}");
        let (text, _) = sentence(&lab, "run:1").await;
        assert!(text.ends_with("event \"evt-9\" of type \"payment.received\" came since and did not match; compare it with the conditions of the wait"), "{text}");
        let woken = lab.done(&["publish", "payment.received", "order_id=ord_1"]).await;
        assert!(woken.ends_with(": woke 1 waiter\n"), "{woken}");
        assert_eq!(lab.run(&["watch", "run:1"]).await.code, 0);
        stop(engine).await;
    }

    async fn one_that_was_sent_a_signal_of_nearly_the_name(lab: Lab) {
        // rule 13.1
        let abide = lab.abide().await;
        let code = |wf: abide::Workflow, (): ()| async move { Ok(wf.signal(PAID).await.map(|_| 1)?) };
        let engine = abide.engine().workflow(FLOW, code).start().await.unwrap();
        abide.start(FLOW, ()).key("flow:1").await.unwrap();
        until_it_is(&abide, "flow:1", "waiting_for_signal").await;
        let slip = lab.run(&["signal", "flow:1", "Payment-confirmd", "1"]).await;
        assert!(slip.code == 0 && slip.err.contains("it waits for \"payment_confirmed\", and \"Payment-confirmd\" does not wake it"), "{slip:?}");
        let (text, liveness) = sentence(&lab, "flow:1").await;
        assert_eq!(liveness, "waiting_for_signal");
        assert!(!text.contains("healthy") && text.contains("is pending under the name \"Payment-confirmd\", and it waits for \"payment_confirmed\""), "{text}");
        let one = lab.json(&["show", "flow:1"]).await;
        assert_eq!(one["liveness_code"], json!("similar_signal"), "{one}");
        stop(engine).await;
    }

    async fn one_that_waits_for_a_condition(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().workflow(FLOW, conditional).start().await.unwrap();
        abide.start(FLOW, ()).key("flow:1").await.unwrap();
        until_it_is(&abide, "flow:1", "waiting_for_condition").await;
        let (text, liveness) = sentence(&lab, "flow:1").await;
        assert_eq!(liveness, "waiting_for_condition");
        assert!(text.starts_with("flow:1 waits for the condition ready for ") && text.contains("(no deadline)"), "{text}");
        stop(engine).await;
    }

    async fn one_that_waits_for_its_children(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Parent).start().await.unwrap();
        abide.start(Parent, ()).key("parent:1").await.unwrap();
        until_it_is(&abide, "parent:1", "waiting_for_children").await;
        let (text, liveness) = sentence(&lab, "parent:1").await;
        assert_eq!(liveness, "waiting_for_children");
        assert!(text.starts_with("parent:1 waits for 3 more of its children for "), "{text}");
        let id = lab.json(&["show", "parent:1"]).await["id"].to_string();
        let which = format!("their ends wake it, but 3 of the children that it waits for could run, and no live worker serves queue default \
                             with code for child version 1; start one. To see which: abide list --parent {id} --liveness waiting_for_worker");
        assert!(text.ends_with(&which), "{text}");
        let whole = lab.done(&["show", "parent:1"]).await;
        assert!(whole.contains("\nchildren\n") && whole.contains("child:2"), "{whole}");
        let listed = lab.json(&["list", "--parent", "parent:1"]).await;
        assert_eq!(listed["items"].as_array().unwrap().len(), 3);
        let stranded = lab.run(&["doctor"]).await;
        assert!(stranded.err.contains("no live worker has code for them: abide list --liveness waiting_for_worker"), "{stranded:?}");

        let children = abide.engine().job(CHILD, |n| async move { tokio::time::sleep(LONG).await; Ok(n) }).grace(secs(0)).start().await.unwrap();
        until_it_is(&abide, "child:2", "running").await;
        let (text, _) = sentence(&lab, "parent:1").await;
        assert!(text.ends_with("healthy: their ends wake it"), "{text}");
        assert!(!lab.run(&["doctor"]).await.err.contains("no worker"));
        stop(children).await;
        stop(engine).await;
    }

    /// A step that waits for a signal of a name that its machine does not declare was called healthy, while a sender of
    /// that signal was refused.
    async fn one_that_would_wait_for_a_signal_that_cannot_be_sent(lab: Lab) {
        // rule 8.6
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({"slip": 1})).key("slip:1").await.unwrap();
        until_it_is(&abide, "slip:1", "closed").await;
        let (text, _) = sentence(&lab, "slip:1").await;
        assert!(text.contains("failed") && text.contains("it waits for the signal \"go\", which the contract of this run does not declare"), "{text}");
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
        let (text, liveness) = sentence(&lab, "flow:1").await;
        assert_eq!(liveness, "replay_blocked");
        assert!(text.starts_with("flow:1 blocked: its code does not match its history (") && text.contains("abide repair flow:1"), "{text}");
        stop(engine).await;
    }

    async fn one_that_this_build_cannot_run(lab: Lab) {
        // rule 12.4
        let abide = lab.abide().await;
        assert!(lab.run(&["check"]).await.err.contains("nothing is blocked"));
        let engine = abide.engine().build("shop 2").machine(Checkout).start().await.unwrap();
        lab.done(&["start", "checkout", "--key", "order:1", "--step", "gone", "--state", "{}"]).await;
        until_it_is(&abide, "order:1", "blocked").await;
        let (text, liveness) = sentence(&lab, "order:1").await;
        assert_eq!(liveness, "blocked");
        assert!(text.starts_with("order:1 blocked at step gone: machine checkout version 1 has no step \"gone\""), "{text}");
        assert!(text.contains("(build shop 2)") && text.contains("abide repair order:1"), "{text}");
        let shown = lab.done(&["show", "order:1"]).await;
        assert!(shown.contains("blocked") && shown.contains("(build shop 2)"), "{shown}");
        let checked = lab.run(&["check"]).await;
        assert_eq!(checked.code, 1, "{checked:?}");
        assert!(checked.out.contains("gone") && checked.out.contains("shop 2"), "{checked:?}");
        assert!(checked.err.contains("1 instance cannot go on"), "{checked:?}");
        let checked = lab.run(&["check", "--json"]).await;
        let report: Value = serde_json::from_str(&checked.out).unwrap();
        let one = &report["unfit"][0];
        assert_eq!((&one["machine"], &one["step"], &one["count"]), (&json!("checkout"), &json!("gone"), &json!(1)));
        assert_eq!((&one["builds"], &one["running"]), (&json!(["shop 2"]), &json!(["shop 2"])));
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
            let (text, liveness) = sentence(&lab, target).await;
            assert_eq!(liveness, "closed");
            assert!(text.ends_with(expected), "{text}");
        }
        let (text, _) = sentence(&lab, &chain.id().to_string()).await;
        assert!(text.contains("in a newer run as instance "), "{text}");
        stop(engine).await;
    }
}

/// Writes to instances behind the engine's back: what to set in SQLite, and what in PostgreSQL.
fn tamper(lab: &Lab, key: &str, sqlite: &str, postgres: &str) {
    match lab.store.strip_prefix("sqlite:") {
        Some(path) => {
            let conn = abide::sqlite::rusqlite::Connection::open(path).unwrap();
            conn.busy_timeout(secs(10)).unwrap();
            let sql = format!("update abide_instances set {sqlite} where key = '{key}'");
            assert_eq!(conn.execute(&sql, []).unwrap(), 1, "{sql}");
        }
        None => {
            let sql = format!("update abide.instances set {postgres} where key = '{key}'");
            abide_pgtest::psql(&lab.store, &sql);
        }
    }
}

/// State of an instance as programs see it: on the command line and over HTTP, alone and in lists. It is the same.
async fn health(lab: &Lab, server: &Server, key: &str) -> Value {
    let of = |one: &Value| {
        json!({
            "liveness": one["liveness"],
            "text": one["liveness_reason"],
            "code": one["liveness_code"],
            "command_id": one["liveness_command_id"],
        })
    };
    let listed = |list: &Value| {
        let items = list["items"].as_array().unwrap();
        of(items.iter().find(|one| one["key"] == key).unwrap())
    };
    let shown = of(&lab.json(&["show", key]).await);
    assert_eq!(listed(&lab.json(&["list"]).await), shown, "abide list");
    let (_, one) = server.get(&format!("/v1/instances/{key}")).await;
    assert_eq!(of(&one), shown, "GET");
    let (_, all) = server.get("/v1/instances").await;
    assert_eq!(listed(&all), shown, "GET of the list");
    let word = shown["liveness"].as_str().unwrap();
    let (_, found) = server.get(&format!("/v1/instances?liveness={word}")).await;
    assert_eq!(listed(&found), shown, "GET of those that are so");
    let (text, _) = sentence(lab, key).await;
    assert!(
        text.contains(shown["text"].as_str().unwrap_or_default()),
        "{text}: {shown}"
    );
    shown
}

on_every_store! {
    /// `show`, `GET` and lists said that an instance waited for a signal, of which the doctor knew that it was there.
    async fn damage_done_by_hand_is_reported_alike_everywhere(lab: Lab) {
        // rules 11.3 and 13.1
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        let keys = ["missed_signal", "undeclared_signal", "waits_for_nothing", "never_due", "not_held"];
        for key in keys {
            abide.start(Checkout, json!({})).key(key).await.unwrap();
            until_it_is(&abide, key, "waiting_for_signal").await;
        }
        stop(engine).await;
        let own = (!lab.is_server()).then(|| common::server().over(Over::Url(lab.store.clone())).start());
        let server = own.as_ref().unwrap_or_else(|| lab.its_server());
        assert_eq!(health(&lab, server, "missed_signal").await, json!({"liveness": "waiting_for_signal", "text": null, "code": null, "command_id": null}));
        assert_eq!(lab.run(&["doctor"]).await.code, 0);

        tamper(&lab, "missed_signal", "extra = json_replace(extra, '$.awaits.names[0]', 'other')", "extra = jsonb_set(extra::jsonb, '{awaits,names}', '[\"other\"]')");
        let paid = abide.signal("missed_signal", PAID, &Payment { amount: 5, note: None }).await.unwrap();
        abide.close().await;
        tamper(&lab, "missed_signal", "extra = json_replace(extra, '$.awaits.names[0]', 'payment_confirmed')", "extra = jsonb_set(extra::jsonb, '{awaits,names}', '[\"payment_confirmed\"]')");
        let never = "due_at = null, wake_at = 9223372036854775807";
        tamper(&lab, "undeclared_signal", &format!("extra = json_replace(extra, '$.awaits.names[0]', 'other'), {never}"), "extra = jsonb_set(extra::jsonb, '{awaits,names}', '[\"other\"]'), due_at = null");
        tamper(&lab, "waits_for_nothing", &format!("extra = json_remove(extra, '$.awaits.names'), {never}"), "extra = extra::jsonb #- '{awaits,names}', due_at = null");
        tamper(&lab, "never_due", &format!("status = 1, {never}"), "status = 1, due_at = null");
        tamper(&lab, "not_held", "status = 3, wake_at = null, worker = null", "status = 3, worker = null");

        let found = lab.run(&["doctor", "--json"]).await;
        assert_eq!(found.code, 1, "{found:?}");
        let found: Value = serde_json::from_str(&found.out).unwrap();
        let findings = found["findings"].as_array().unwrap();
        assert_eq!(findings.len(), keys.len(), "{findings:?}");
        for key in keys {
            let seen = health(&lab, server, key).await;
            assert_eq!((&seen["liveness"], &seen["code"]), (&json!("repair_needed"), &json!(key)), "{seen}");
            let id = match key {
                "missed_signal" => json!(paid.id()),
                _ => Value::Null,
            };
            assert_eq!(seen["command_id"], id, "{seen}");
            let like = |one: &&Value| (&one["code"], &one["problem"], &one["command_id"]) == (&seen["code"], &seen["text"], &seen["command_id"]);
            assert!(findings.iter().any(|one| like(&one)), "{seen}: {findings:?}");
            let (text, _) = sentence(&lab, key).await;
            assert!(text.starts_with(&format!("{key} needs repair: ")) && text.ends_with(&format!("run: abide repair {key}")), "{text}");
        }
        let listed = lab.done(&["list", "--liveness", "repair_needed"]).await;
        assert_eq!(listed.matches("repair needed").count(), keys.len(), "{listed}");
        let table = lab.run(&["doctor"]).await;
        assert!(table.out.starts_with("INSTANCE") && table.err.contains("5 problems") && table.err.contains("try: abide repair"), "{table:?}");
        for key in keys {
            assert_eq!(lab.done(&["repair", key]).await, "repair_dispatched\n");
            assert_eq!(lab.done(&["repair", key]).await, "repair_not_needed\n");
            let seen = health(&lab, server, key).await;
            assert_eq!((&seen["liveness"], &seen["code"]), (&json!("waiting_for_worker"), &json!("no_worker")), "{seen}");
        }
        assert_eq!(lab.json(&["doctor"]).await["findings"], json!([]));
    }

    async fn what_is_missing_around_an_instance_is_reported_alike_everywhere(lab: Lab) {
        // rule 13.1
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Parent).start().await.unwrap();
        abide.start(Parent, ()).key("parent:1").await.unwrap();
        until_it_is(&abide, "parent:1", "waiting_for_children").await;
        let own = (!lab.is_server()).then(|| common::server().over(Over::Url(lab.store.clone())).start());
        let server = own.as_ref().unwrap_or_else(|| lab.its_server());
        let seen = health(&lab, server, "parent:1").await;
        assert_eq!((&seen["liveness"], &seen["code"]), (&json!("waiting_for_children"), &json!("children_unserved")), "{seen}");
        assert_eq!(seen["text"], "3 of the children that it waits for could run, and no live worker serves queue default with code for child version 1; start one");
        let seen = health(&lab, server, "child:1").await;
        assert_eq!((&seen["liveness"], &seen["code"]), (&json!("waiting_for_worker"), &json!("no_worker")), "{seen}");
        stop(engine).await;
    }
}
