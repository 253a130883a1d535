//! `machines`, `stats`, and what looking does not do: make files, migrate, show passwords.

use serde_json::json;

use crate::cli::lab::{Checkout, Lab, on_every_store, until, until_it_is};
use crate::common;

on_every_store! {
    async fn machines_are_listed_with_what_they_take(lab: Lab) {
        let abide = lab.abide().await;
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        let listed = lab.json(&["machines"]).await;
        let machines = listed["items"].as_array().unwrap();
        let one = machines.iter().find(|one| one["name"] == "checkout").unwrap();
        assert_eq!((&one["version"], &one["first_step"]), (&json!(1), &json!("start")), "{one}");
        assert_eq!(one["signals"][0]["parameters"][0]["name"], json!("amount"), "{one}");
        assert_eq!(one["updates"][0]["name"], json!("rename"), "{one}");
        let table = lab.done(&["machines"]).await;
        assert!(table.contains("payment_confirmed") && table.contains("rename"), "{table}");
        engine.shutdown().await;
    }

    async fn stats_count_what_has_not_ended(lab: Lab) {
        lab.done(&["start", "checkout", "--delay", "1h"]).await;
        lab.done(&["start", "checkout"]).await;
        let stats = lab.json(&["stats"]).await;
        assert_eq!((&stats["statuses"], &stats["queues"]), (&json!({"runnable": 1, "scheduled": 1}), &json!(1)), "{stats}");
        let lines = lab.done(&["stats"]).await;
        let of = |name: &str| lines.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_whitespace().last());
        assert_eq!((of("runnable"), of("scheduled"), of("executing")), (Some("1"), Some("1"), Some("0")), "{lines}");
        let queues = lab.done(&["queues"]).await;
        assert!(queues.starts_with("QUEUE") && queues.contains("default"), "{queues}");
    }
}

#[tokio::test]
async fn looking_makes_no_file_and_says_who_does() {
    let lab = Lab::sqlite();
    for command in [
        vec!["list"],
        vec!["show", "order:1"],
        vec!["doctor"],
        vec!["check"],
        vec!["signal", "order:1", "paid"],
        vec!["sweep"],
        vec!["token", "list"],
        vec!["token", "revoke", "mailer"],
    ] {
        let ran = lab.without_a_store(&command).await;
        assert!(
            ran.err.contains("there is no store at")
                && ran.err.contains("abide serve")
                && ran.err.contains("abide start"),
            "{ran:?}"
        );
        assert!(!lab.path("orders.db").exists(), "{command:?}");
    }
    assert_eq!(lab.run(&["start", "checkout"]).await.code, 0);
    assert!(lab.path("orders.db").exists());
}

/// `abide list` on a file of another program created twelve tables in it.
#[tokio::test]
async fn looking_writes_nothing_to_a_file_without_tables_of_abide() {
    let lab = Lab::sqlite();
    let file = lab.path("orders.db");
    std::fs::write(&file, "").unwrap();
    for command in [
        vec!["list"],
        vec!["show", "order:1"],
        vec!["doctor"],
        vec!["check"],
        vec!["stats"],
        vec!["token", "list"],
        vec!["token", "revoke", "mailer"],
    ] {
        let ran = lab.without_a_store(&command).await;
        assert!(ran.err.contains("no tables of abide"), "{ran:?}");
        assert!(ran.err.contains("try: abide migrate --plan"), "{ran:?}");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 0, "{command:?}");
        assert!(!lab.path("orders.db-wal").exists(), "{command:?}");
    }
    lab.done(&["migrate"]).await;
    lab.done(&["list"]).await;
}

/// `abide token list` did.
#[tokio::test]
async fn listing_tokens_adds_nothing_to_a_file_of_another_program() {
    let lab = Lab::sqlite();
    let file = abide::sqlite::rusqlite::Connection::open(lab.path("orders.db")).unwrap();
    file.execute_batch("create table theirs (id integer)")
        .unwrap();
    for command in [vec!["token", "list"], vec!["token", "revoke", "mailer"]] {
        let ran = lab.run(&command).await;
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
        assert!(ran.err.contains("try: abide migrate --plan"), "{ran:?}");
        let tables: i64 = file
            .query_row("select count(*) from sqlite_master", [], |row| row.get(0))
            .unwrap();
        assert_eq!(tables, 1, "{command:?}");
    }
}

#[tokio::test]
async fn looking_does_not_migrate_a_database_and_says_who_does() {
    let lab = Lab::without_schema();
    for command in [vec!["list"], vec!["token", "list"]] {
        let ran = lab.run(&command).await;
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.err.contains("try: abide migrate --plan"), "{ran:?}");
    }
    assert_eq!(
        abide_pgtest::psql(&lab.url, "select to_regclass('abide.instances') is null"),
        "t"
    );
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_ends_with_3_and_one_that_is_none_with_2() {
    let lab = Lab::sqlite();
    let with = |url: &str| {
        common::abide(lab.path("").as_path())
            .args(["list", "--json", "--store", url])
            .output()
            .unwrap()
    };
    let directory = lab.path("");
    for (url, code) in [
        ("postgres://nobody:secret@127.0.0.1:9/none".to_owned(), 3),
        (format!("sqlite:{}", directory.display()), 3),
        ("oracle:orders".to_owned(), 2),
        ("orders.db".to_owned(), 2),
    ] {
        let output = with(&url);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{url}: {err}");
        assert!(
            err.contains("\ntry: ") && !err.contains("secret"),
            "{url}: {err}"
        );
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(document["detail"].is_string(), "{url}: {document}");
    }
}

#[tokio::test]
async fn the_default_store_is_the_users_own() {
    let lab = Lab::sqlite();
    let home = lab.path("");
    let started = common::abide(&home)
        .args(["start", "checkout", "--key", "order:1"])
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    assert!(home.join("data/abide/abide.db").exists());
    let shown = common::abide(&home)
        .args(["show", "order:1"])
        .output()
        .unwrap();
    assert!(shown.status.success(), "{shown:?}");
}

/// In a unit or a container without HOME the store was `abide/abide.db` in whatever directory the process was started in.
#[tokio::test]
async fn without_a_home_a_store_must_be_named() {
    let lab = Lab::sqlite();
    let run = |arguments: &[&str], more: &[(&str, &str)]| {
        let mut command = common::abide(&lab.path(""));
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env_remove(variable);
        }
        command.args(arguments).envs(more.iter().copied());
        command.output().unwrap()
    };
    for arguments in [
        &["start", "checkout"][..],
        &["list"],
        &["token", "list"],
        &["migrate"],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        for more in [&[][..], &[("HOME", "here"), ("XDG_DATA_HOME", "data")]] {
            let output = run(arguments, more);
            let err = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
            for word in [
                "no store is named",
                "HOME",
                "--store",
                "ABIDE_STORE",
                "\ntry: ",
            ] {
                assert!(err.contains(word), "{arguments:?}: {word}: {err}");
            }
            assert!(!lab.path("abide").exists() && !lab.path("here").exists());
        }
    }
    let shown = run(&["config", "--json"], &[]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["store"]["value"], json!("none"), "{shown}");
    let named = run(&["start", "checkout"], &[("ABIDE_STORE", &lab.url)]);
    assert!(named.status.success(), "{named:?}");
    assert!(lab.path("orders.db").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_see_what_the_server_answers() {
    let lab = Lab::server();
    let abide = lab.abide().await;
    let engine = abide.engine().machine(Checkout).start().await.unwrap();
    abide
        .start(Checkout, json!({"n": 1}))
        .key("order:1")
        .await
        .unwrap();
    until_it_is(&abide, "order:1", "waiting_for_signal").await;
    assert_eq!(lab.run(&["signal", "order:1", "undeclared"]).await.code, 1);
    lab.done(&["publish", "other", "a=1"]).await;
    let server = lab.its_server();
    for (command, path) in [
        (vec!["list"], "/v1/instances?limit=50"),
        (vec!["events"], "/v1/events"),
        (vec!["signals"], "/v1/signals"),
        (vec!["waits"], "/v1/waits"),
        (vec!["workers"], "/v1/workers"),
        (vec!["result", "order:1"], "/v1/instances/order:1/result"),
    ] {
        let (_, answered) = server.get(path).await;
        let mut printed: serde_json::Value = serde_json::from_str(
            &lab.run(&[command.as_slice(), &["--json"]].concat())
                .await
                .out,
        )
        .unwrap();
        let mut answered = answered;
        // A lease is renewed meanwhile.
        for document in [&mut printed, &mut answered] {
            for item in document["items"].as_array_mut().into_iter().flatten() {
                item.as_object_mut().unwrap().remove("lease_until");
            }
        }
        assert_eq!(printed, answered, "{command:?}");
    }
    let (_, answered) = server.get("/v1/instances/order:1").await;
    let printed = lab.json(&["show", "order:1"]).await;
    for (name, value) in answered.as_object().unwrap() {
        assert_eq!(&printed[name], value, "{name}");
    }
    let (_, history) = server.get("/v1/instances/order:1/history").await;
    assert_eq!(printed["history"], history["items"]);
    engine.shutdown().await;
}

/// The first token of a server was one that may only send: from then on no other could be made through that server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_token_locks_no_operator_out() {
    let lab = Lab::server();
    let send = ["token", "create", "--role", "send"];
    let refused = lab.run(&send).await;
    assert!(
        refused.code == 1
            && refused
                .err
                .ends_with("try: abide token create --role operate\n"),
        "{refused:?}"
    );
    assert_eq!(
        lab.run(&["token", "list"]).await.code,
        0,
        "it is open still"
    );
    // Beside the store that is not a trap, but worth a warning.
    let warned = |made: &std::process::Output| {
        String::from_utf8_lossy(&made.stderr).contains("no token may start or cancel yet")
    };
    let made = lab.its_server().cli(&send);
    assert!(made.status.success() && warned(&made), "{made:?}");
    let made = (lab.its_server()).cli(&["token", "create", "--role", "operate"]);
    assert!(made.status.success() && !warned(&made), "{made:?}");
    let token = String::from_utf8(made.stdout).unwrap();
    let made = lab
        .run(&[&send[..], &["--token", token.trim()]].concat())
        .await;
    assert_eq!(made.code, 0, "{made:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_for_a_token_is_shown_one() {
    let lab = Lab::server();
    let token = lab.its_server().token("operate");
    let until_it_asks = until(async || {
        let ran = lab.run(&["list"]).await;
        (ran.code != 0).then_some(ran)
    });
    let refused = until_it_asks.await;
    let cure = "\ntry: abide token create --role operate ";
    assert!(
        refused.code == 1 && refused.err.contains(cure),
        "{refused:?}"
    );
    assert_eq!(lab.run(&["list", "--token", &token]).await.code, 0);
    let weak = lab.its_server().token("send");
    let refused = lab.run(&["list", "--token", &weak]).await;
    assert!(
        refused.code == 1 && refused.err.contains(cure),
        "{refused:?}"
    );
    assert!(
        !lab.run(&["list", "--token", "abide_wrong"])
            .await
            .err
            .contains("abide_wrong")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_can_be_in_a_file() {
    let lab = Lab::server();
    let token = lab.its_server().token("operate");
    let file = lab.file("token", &format!("{token}\n"));
    let run = |more: &[(&str, &str)], arguments: &[&str]| {
        let mut command = lab.command(arguments);
        let output = command.envs(more.iter().copied()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), err)
    };
    let listed = run(&[("ABIDE_TOKEN_FILE", &file)], &["list"]);
    assert_eq!(listed.0, Some(0), "{listed:?}");
    // The variable and the flag go before it.
    let wrong = [
        ("ABIDE_TOKEN_FILE", file.as_str()),
        ("ABIDE_TOKEN", "abide_wrong"),
    ];
    let refused = run(&wrong, &["list"]);
    assert_eq!(refused.0, Some(1), "{refused:?}");
    let refused = run(&wrong[..1], &["list", "--token", "abide_wrong"]);
    assert_eq!(refused.0, Some(1), "{refused:?}");
    let absent = [("ABIDE_TOKEN_FILE", "/nowhere/token")];
    let (code, err) = run(&absent, &["list"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(
        err.contains("ABIDE_TOKEN_FILE = /nowhere/token: cannot be read")
            && err.contains("\ntry: "),
        "{err}"
    );
    // A store that asks for no token does not read it.
    let mut command = common::abide(&lab.path(""));
    let beside = command.envs(absent).args(["list", "--store", &lab.store]);
    let beside = beside.output().unwrap();
    assert!(beside.status.success(), "{beside:?}");
}
