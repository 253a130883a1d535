//! `watch`: live, across processes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::cli::lab::{Chain, Checkout, Lab, Steps, on_every_store, until_it_is};

on_every_store! {
    async fn what_another_process_does_is_seen_line_by_line_until_the_end(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({})).key("order:1").await.unwrap();
        until_it_is(&abide, "order:1", "waiting_for_signal").await;

        let mut watch = lab.command(&["watch", "order:1"]);
        let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let reader = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            while let Some(Ok(line)) = lines.next() {
                let _ = sender.send(line.clone());
                all.push(line);
            }
            (all, child.wait().unwrap().code())
        });
        // The signal is sent when it was seen to wait.
        loop {
            let line = receiver.recv().await.unwrap();
            if line.contains("waits for signal payment_confirmed") {
                break;
            }
        }
        lab.done(&["signal", "order:1", "payment_confirmed", "amount=5"]).await;
        let (all, code) = reader.await.unwrap();
        assert_eq!(code, Some(0), "{all:?}");
        for expected in [" started checkout version 1", " wait_opened waits for signal payment_confirmed", " signal_received payment_confirmed", " done"] {
            assert!(all.iter().any(|line| line.contains(expected)), "{expected}: {all:?}");
        }
        assert!(all.last().is_some_and(|line| line.contains("nothing is left to do")), "{all:?}");
        engine.shutdown().await;
    }

    async fn the_exit_code_shows_the_end_and_chains_are_followed(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).machine(Chain).machine(Steps).start().await.unwrap();
        let _ = abide.start(Checkout, json!({"fail": 1})).key("order:1").await.unwrap().result().await;
        let failed = lab.run(&["watch", "order:1"]).await;
        assert_eq!(failed.code, 1, "{failed:?}");
        assert!(!failed.out.contains('\u{1b}'), "{failed:?}");

        let chain = abide.start(Chain, 0).key("chain:1").await.unwrap();
        chain.result().await.unwrap();
        let watched = lab.run(&["watch", &chain.id().to_string(), "--json"]).await;
        let runs: Vec<Value> = watched.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(watched.code, 0, "{watched:?}");
        let seen: Vec<_> = runs.iter().map(|run| (&run["run"], &run["status"])).collect();
        assert_eq!(seen, [(&json!(1), &json!("continued")), (&json!(2), &json!("done"))]);

        abide.start(Steps, 0).key("steps:1").await.unwrap().result().await.unwrap();
        let all = lab.done(&["watch", "steps:1", "--history", "100"]).await;
        assert_eq!(all.lines().filter(|line| line.contains(" step_completed ")).count(), 10, "{all}");
        engine.shutdown().await;
    }

    async fn a_terminal_is_drawn_over(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        abide.start(Checkout, json!({"quick": 1})).key("order:1").await.unwrap().result().await.unwrap();
        for columns in [80, 40] {
            let ran = lab.on_terminal(&["watch", "order:1"], columns).await;
            assert_eq!(ran.code, 0, "{ran:?}");
            assert!(ran.out.contains("\u{1b}[J") && ran.out.contains("order:1"), "{ran:?}");
        }
        engine.shutdown().await;
    }
}

/// `watch` gave up when its server was started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_started_again_is_waited_for() {
    let server = crate::common::server().start();
    let (url, store, address) = (server.url.clone(), server.store.clone(), server.address());
    let run = |home: &std::path::Path, arguments: &[&str]| {
        let mut command = crate::common::abide(home);
        command.args(arguments).args(["--store", &url]);
        command
    };
    let started = run(&server.home(), &["start", "absent", "--key", "k"]).output();
    assert!(started.unwrap().status.success());
    let mut watch = run(&server.home(), &["watch", "k", "--json"]);
    let mut watch = watch
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(seen.next().unwrap().unwrap().contains("waiting_for_worker"));
    let mut warnings = BufReader::new(watch.stderr.take().unwrap()).lines();
    let home = server.stop();
    assert!(warnings.next().unwrap().unwrap().starts_with("waiting: "));
    let mut again = crate::common::abide(home.path());
    let mut again = again.args(["serve", "--listen", &address, "--store", &store]);
    again = again.stdout(Stdio::null()).stderr(Stdio::null());
    let mut again = again.spawn().unwrap();
    crate::cli::lab::until(async || {
        let cancelled = run(home.path(), &["cancel", "k"]).output().unwrap();
        cancelled.status.success().then_some(())
    })
    .await;
    assert!(seen.next().unwrap().unwrap().contains("\"cancelled\""));
    assert_eq!(watch.wait().unwrap().code(), Some(1));
    again.kill().unwrap();
    again.wait().unwrap();
}
