//! Words on the screen: times, long errors, counts, and the order of options.

use std::process::Command;

use abide::Job;
use abide::machine::Retry;
use abide::time::millis;
use serde_json::json;

use crate::cli::lab::{
    Checkout, FLOW, GO, Lab, Parent, after, before, on_every_store, until, until_it_is,
};
use crate::common;

/// Returns true if a text is a moment with milliseconds and that offset.
fn is_moment(text: &str, offset: &str) -> bool {
    let Some(moment) = text.strip_suffix(offset) else {
        return false;
    };
    let shape = moment
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect::<String>();
    shape == "0000-00-00T00:00:00.000"
}

/// The value on a line of `show`.
fn value(shown: &str, name: &str) -> String {
    let line = shown
        .lines()
        .find(|line| line.trim_start().starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name}: {shown}"));
    line.split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// A text without colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once('m').map_or("", |(_, after)| after));
    first + &rest.collect::<String>()
}

/// Runs a command in a time zone.
fn in_zone(lab: &Lab, zone: &str, arguments: &[&str]) -> String {
    let mut command: Command = lab.command(arguments);
    let output = command.env("TZ", zone).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

on_every_store! {
    async fn times_have_milliseconds_and_are_of_the_computers_zone(lab: Lab) {
        lab.done(&["start", "checkout", "--key", "order:1", "--at", "2999-07-01T00:00:00Z"]).await;
        // A zone without a database of zones, half an hour beside the others.
        let shown = in_zone(&lab, "IST-5:30", &["show", "order:1"]);
        assert!(is_moment(&value(&shown, "created"), "+05:30"), "{shown}");
        assert!(shown.contains("due         2999-07-01T05:30:00.000+05:30 (in "), "{shown}");
        let history = shown.lines().find(|line| line.contains(" started ")).unwrap();
        assert!(is_moment(history.split_whitespace().nth(1).unwrap(), "+05:30"), "{history}");

        for shown in [in_zone(&lab, "IST-5:30", &["show", "order:1", "--utc"]), in_zone(&lab, "UTC0", &["show", "order:1"])] {
            assert!(is_moment(&value(&shown, "created"), "Z"), "{shown}");
            assert!(shown.contains("due         2999-07-01T00:00:00.000Z (in "), "{shown}");
        }
        // Programs are given UTC, whatever the zone is.
        let document = in_zone(&lab, "IST-5:30", &["show", "order:1", "--json"]);
        assert!(document.contains("\"due_at\":\"2999-07-01T00:00:00Z\"") && !document.contains("+05:30"), "{document}");
    }

    async fn what_two_words_would_say_is_printed_once(lab: Lab) {
        lab.done(&["start", "checkout", "--key", "order:1", "--delay", "1h"]).await;
        let shown = lab.done(&["show", "order:1"]).await;
        assert!(shown.contains("  status      scheduled\n"), "{shown}");
        lab.done(&["start", "checkout", "--key", "order:2"]).await;
        let shown = lab.done(&["show", "order:2"]).await;
        assert!(shown.contains("  status      runnable · waiting for worker\n"), "{shown}");
        for (list, none) in [("list", "no instances match"), ("signals", "no signals or updates match"),
            ("waits", "no waits match"), ("events", "no events match")] {
            let option = match list { "list" => "--machine", "events" => "--type", _ => "--name" };
            let ran = lab.run(&[list, option, "nothing"]).await;
            assert_eq!((ran.code, ran.err.trim_end()), (0, none), "{ran:?}");
        }
        assert_eq!(lab.run(&["workers"]).await.err.contains("no live workers"), !lab.is_server());
    }

    async fn one_child_is_one(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Parent).start().await.unwrap();
        abide.start(Parent, ()).key("parent:1").await.unwrap();
        until_it_is(&abide, "parent:1", "waiting_for_children").await;
        lab.done(&["cancel", "child:0"]).await;
        lab.done(&["cancel", "child:1"]).await;
        let listed = lab.done(&["list", "--machine", "parent"]).await;
        assert!(listed.contains(" 1 child ") || listed.contains(" 1 child\n"), "{listed}");
        engine.shutdown().await;
    }

    async fn the_end_of_an_error_is_seen_in_eighty_columns(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        let order = abide.start(Checkout, json!({"fail": "long"})).key("order:1").await.unwrap();
        let _ = order.result().await;
        let ran = lab.on_terminal(&["show", "order:1"], 80).await;
        let seen = plain(&ran.out);
        let seen: Vec<&str> = seen.split_whitespace().collect();
        let seen = seen.join(" ");
        // In the headline and in the history.
        assert!(seen.matches("connection refused (os error 111)").count() >= 3, "{}", ran.out);
        let watched = lab.on_terminal(&["watch", "order:1"], 80).await;
        assert!(watched.out.contains("refused (os error 111)"), "{}", watched.out);
        engine.shutdown().await;
    }

    async fn what_is_blocked_failing_or_ended_is_counted(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        for (key, state) in [("order:1", json!({"quick": 1})), ("order:2", json!({"fail": 1}))] {
            let _ = abide.start(Checkout, state).key(key).await.unwrap().result().await;
        }
        let ended = json!({"done": 1, "failed": 1});
        let stats = lab.json(&["stats"]).await;
        assert_eq!((&stats["blocked"], &stats["failing"], &stats["ended"]), (&json!(0), &json!(0), &ended), "{stats}");
        let lines = lab.done(&["stats"]).await;
        let of = |name: &str| lines.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_whitespace().last());
        assert_eq!((of("blocked"), of("failing"), of("ended as done"), of("ended as cancelled")), (Some("0"), Some("0"), Some("1"), Some("0")), "{lines}");
        let doctor = lab.run(&["doctor"]).await;
        assert!(doctor.err.contains("0 blocked, 0 failing, 2 ended"), "{doctor:?}");
        assert_eq!(lab.json(&["doctor"]).await["ended"], ended);
        engine.shutdown().await;
    }

    /// `doctor` named a command that lists blocked workflows and no blocked machines, and one that lists what is not failing.
    async fn the_commands_that_doctor_names_list_all_that_are_blocked_and_failing(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().workflow(FLOW, before).start().await.unwrap();
        abide.start(FLOW, ()).key("flow:1").await.unwrap();
        until_it_is(&abide, "flow:1", "waiting_for_signal").await;
        engine.shutdown().await;
        let refuse = |_| async { Err::<u32, _>(NO_ANSWER.into()) };
        let engine = abide.engine().machine(Checkout).workflow(FLOW, after).job(FAILING, refuse).start().await.unwrap();
        abide.signal("flow:1", GO, &1).await.unwrap();
        lab.done(&["start", "checkout", "--key", "order:1", "--step", "gone", "--state", "{}"]).await;
        abide.start(Checkout, json!({})).key("order:2").await.unwrap();
        lab.done(&["start", "checkout", "--key", "order:3", "--delay", "1h"]).await;
        abide.start(FAILING, 1).key("failing:1").await.unwrap();
        until_it_is(&abide, "flow:1", "replay_blocked").await;
        until_it_is(&abide, "order:1", "blocked").await;
        until_it_is(&abide, "order:2", "waiting_for_signal").await;
        until(async || (abide.tally().await.unwrap().failing == 1).then_some(())).await;

        let doctor = lab.run(&["doctor"]).await;
        assert!(doctor.err.contains("2 blocked, 1 failing, 0 ended"), "{doctor:?}");
        for (which, keys) in [("blocked", &["flow:1", "order:1"][..]), ("failing", &["failing:1"])] {
            let command = doctor.err.lines().find_map(|line| line.strip_prefix(&format!("to see which are {which}: abide ")));
            let words: Vec<&str> = command.unwrap().split(' ').collect();
            let listed = lab.json(&words).await;
            let mut listed: Vec<&str> = listed["items"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
            listed.sort_unstable();
            assert_eq!(listed, keys, "{which}");
        }
        let stats = lab.json(&["stats"]).await;
        assert_eq!((&stats["blocked"], &stats["failing"]), (&json!(2), &json!(1)), "{stats}");
        let document = lab.json(&["doctor"]).await;
        assert_eq!((&document["blocked"], &document["failing"]), (&json!(2), &json!(1)), "{document}");
        engine.shutdown().await;
    }

    async fn attempts_that_are_one_entry_are_shown_with_the_cause_and_the_computers_time(lab: Lab) {
        let abide = lab.abide().await;
        let refuse = |_| async { Err::<u32, _>(NO_ANSWER.into()) };
        let engine = abide.engine().job(FAILING, refuse).start().await.unwrap();
        let job = abide.start(FAILING, 1).key("failing:1").await.unwrap();
        until(async || abide.history(job.id()).await.unwrap().iter().any(|entry| entry.what.folded().is_some()).then_some(())).await;
        engine.shutdown().await;
        let shown = in_zone(&lab, "IST-5:30", &["show", "failing:1"]);
        let line = shown.lines().find(|line| line.contains(", the last failed: ")).unwrap();
        let (since, error) = line.split_once(" since ").unwrap().1.split_once(", the last failed: ").unwrap();
        assert!(is_moment(since, "+05:30"), "{line}");
        assert!(error.contains("the order could not") && error.contains("connection refused (os error 111); "), "{line}");
    }

    async fn tokens_are_listed_with_the_computers_time(lab: Lab) {
        if lab.is_server() {
            // Its token would be needed from then on; the words are the same.
            return;
        }
        lab.done(&["token", "create", "--role", "read", "--name", "prometheus"]).await;
        for (zone, offset) in [("IST-5:30", "+05:30"), ("UTC0", "Z")] {
            let listed = in_zone(&lab, zone, &["token", "list"]);
            let line = listed.lines().find(|line| line.starts_with("prometheus")).unwrap();
            assert!(is_moment(line.split_whitespace().last().unwrap(), offset), "{listed}");
        }
        let document = in_zone(&lab, "IST-5:30", &["token", "list", "--json"]);
        assert!(!document.contains("+05:30"), "{document}");
    }
}

/// Fails for ever, many times a second.
const FAILING: Job<u32, u32> = Job::new("failing").retry(Retry::every(millis(1)));
/// An error whose cause stands at its end, longer than a line of a history shows.
const NO_ANSWER: &str = "the order could not be charged: the bank's gateway did not answer in time: https://bank.example/v1/charges/of/a/customer/with/a/very/long/name/and/many/orders/in/the/last/year/and/in/the/years/before/that/one: connection refused (os error 111)";

#[test]
fn a_commands_own_options_come_before_the_global_ones() {
    let home = common::home();
    for command in ["list", "show", "start", "serve", "token create"] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let output = common::abide(home.path()).args(words).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let at = |text: &str| {
            help.find(text)
                .unwrap_or_else(|| panic!("no {text}: {help}"))
        };
        assert!(at("\nOptions:") < at("\nGlobal options:"), "{help}");
        for global in ["--store", "--json", "--utc", "--token", "--config"] {
            let line = format!("\n      {global}");
            assert!(at(&line) > at("\nGlobal options:"), "{global}: {help}");
        }
    }
}
