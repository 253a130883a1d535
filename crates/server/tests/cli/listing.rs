//! `list` and what all lists share: pages, widths, nothing to show.

use serde_json::json;

use crate::cli::lab::{Lab, on_every_store};

on_every_store! {
    async fn empty_lists_say_so_on_standard_error(lab: Lab) {
        lab.abide().await;
        for command in ["list", "waits", "events", "signals", "machines", "queues"] {
            let ran = lab.run(&[command]).await;
            // A server has workers and machines of its own.
            if lab.is_server() && command == "machines" {
                continue;
            }
            assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{command}: {ran:?}");
            assert!(ran.err.contains(['n', 'N']) && ran.err.ends_with('\n'), "{command}: {ran:?}");
            let listed = lab.json(&[command]).await;
            assert_eq!(listed["items"], json!([]), "{command}");
        }
    }

    async fn two_hundred_and_fifty_are_listed_in_pages_or_all_at_once(lab: Lab) {
        let abide = lab.abide().await;
        let specs = (0..250).map(|n| {
            let mut start = abide::model::Start::of(abide::model::Name::new("checkout").unwrap(), abide::model::Json::null());
            start.key = Some(abide::model::Key::new(format!("order:{n}")).unwrap());
            Ok::<_, abide::Error>(start)
        });
        abide.start_all(specs).await.unwrap();
        let page = lab.run(&["list"]).await;
        assert_eq!(page.out.lines().count(), 51, "{page:?}");
        assert!(page.err.contains("50 shown, and there are more"), "{page:?}");
        let all = lab.json(&["list", "--all"]).await;
        assert_eq!((all["items"].as_array().unwrap().len(), &all["next_cursor"]), (250, &json!(null)));

        let first = lab.json(&["list", "--limit", "200"]).await;
        let cursor = first["next_cursor"].as_str().unwrap().to_owned();
        let second = lab.json(&["list", "--limit", "200", "--cursor", &cursor]).await;
        assert_eq!((second["items"].as_array().unwrap().len(), &second["next_cursor"]), (50, &json!(null)));
        assert_eq!(second["items"][49]["key"], json!("order:0"));
        assert_eq!(lab.run(&["list", "--cursor", "elsewhere"]).await.code, 2);
        assert_eq!(lab.run(&["list", "--limit", "0"]).await.code, 2);

        let some = lab.json(&["list", "--key-prefix", "order:24", "--status", "runnable", "--machine", "checkout", "--queue", "default"]).await;
        assert_eq!(some["items"].as_array().unwrap().len(), 11);
        let no_worker = lab.json(&["list", "--liveness", "waiting_for_worker", "--limit", "5"]).await;
        assert_eq!(no_worker["items"][0]["liveness"], json!("waiting_for_worker"));
        let none = lab.run(&["list", "--status", "failed"]).await;
        assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "no instances match\n"));
        assert_eq!(lab.run(&["list", "--status", "sleeping"]).await.code, 2);
    }

    async fn tables_are_whole_in_a_pipe_and_fit_a_terminal(lab: Lab) {
        let long = format!("grüße:{}", "日本語".repeat(20));
        let machine = "a-machine-whose-name-is-long-".repeat(3);
        lab.done(&["start", &machine, "--key", &long, &format!("wide={}", "x".repeat(5_000))]).await;
        let whole = lab.done(&["list"]).await;
        assert!(whole.contains(&long) && whole.contains(&machine) && !whole.contains('…') && !whole.contains('\u{1b}'), "{whole}");
        for columns in [80, 40] {
            let ran = lab.on_terminal(&["list"], columns).await;
            assert_eq!(ran.code, 0, "{ran:?}");
            assert!(ran.out.contains('…') && ran.out.contains("runnable"), "{ran:?}");
            for line in ran.out.lines() {
                // Colours take no room, and these characters take two.
                let seen = line.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
                let width: usize = seen.trim_end().chars().map(|c| if c >= '\u{2e80}' { 2 } else { 1 }).sum();
                assert!(width <= columns, "{columns}: {width}: {line:?}");
            }
        }
    }

    async fn colours_are_for_terminals_that_want_them(lab: Lab) {
        lab.done(&["start", "checkout", "--key", "order:1"]).await;
        let shown = lab.on_terminal(&["show", "order:1"], 80).await;
        assert!(shown.out.contains("\u{1b}[1;31m"), "{shown:?}");
        let plain = lab.on_terminal_with("NO_COLOR=1", &["show", "order:1"], 80).await;
        assert!(plain.code == 0 && !plain.out.contains('\u{1b}'), "{plain:?}");
    }

    async fn a_reader_that_stops_reading_sees_no_error(lab: Lab) {
        let abide = lab.abide().await;
        let starts = (0..2_000).map(|_| {
            Ok::<_, abide::Error>(abide::model::Start::of(abide::model::Name::new("checkout").unwrap(), abide::model::Json::null()))
        });
        abide.start_all(starts).await.unwrap();
        let mut list = lab.command(&["list", "--all"]);
        let (code, err) = tokio::task::spawn_blocking(move || {
            use std::io::{BufRead, BufReader, Read};
            use std::process::Stdio;
            let mut child = list.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let mut err = String::new();
            child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            (child.wait().unwrap().code(), err)
        })
        .await
        .unwrap();
        assert_eq!((code, err.as_str()), (Some(0), ""));
    }
}
