//! `demo`: one command, worker processes that one can kill, and nothing is lost.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use abide::{Abide, Status};
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::lab::until;
use crate::common::{self, PATIENCE};

/// A demo that runs; it is killed when this is dropped.
struct Demo {
    child: Child,
    lines: mpsc::Receiver<String>,
    home: TempDir,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        Self::start_in(common::home(), arguments)
    }

    /// In that home, which is also where its temporary files are.
    fn start_in(home: TempDir, arguments: &[&str]) -> Self {
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let mut child = common::abide(home.path())
            .args(["demo", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("TMPDIR", home.path())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, home }
    }

    /// The next line that is so.
    fn line(&self, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if wanted(&line) => return line,
                Ok(_) => {}
                Err(error) => panic!("the demo never printed it: {error}\n{}", self.log()),
            }
        }
    }

    /// The next JSON object that is so.
    fn json(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let read = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        read(&self.line(|line| wanted(&read(line))))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    fn wait(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "the demo does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// The rest of its lines, once it has ended.
    fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    fn temporary(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_demo = |path: &PathBuf| path.to_string_lossy().contains("abide-demo-");
        paths.filter(is_demo).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: u32, name: &str) {
    let mut kill = Command::new("kill");
    kill.args([&format!("-{name}"), &pid.to_string()]);
    assert!(kill.status().unwrap().success());
}

/// The processes of the workers.
fn pids(ready: &Value) -> Vec<u32> {
    let workers = ready["workers"].as_array().unwrap().iter();
    workers
        .map(|one| one["pid"].as_u64().unwrap() as u32)
        .collect()
}

/// Returns true if a process is there; a zombie counts as gone.
fn lives(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    !stat
        .rsplit(')')
        .next()
        .unwrap()
        .trim_start()
        .starts_with('Z')
}

fn is(kind: &'static str) -> impl Fn(&Value) -> bool {
    move |value| value["kind"] == kind
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_in_the_middle_is_replaced_and_every_paid_order_ends() {
    let demo = Demo::start(&["--json"]);
    let ready = demo.json(is("ready"));
    let url = ready["url"].as_str().unwrap().to_owned();
    let before = pids(&ready);
    assert_eq!(before.len(), 2);

    // It serves.
    let health = reqwest::get(format!("{url}/healthz")).await.unwrap();
    assert!(health.status().is_success(), "{health:?}");

    // Killed while it runs something, which somebody else goes on with.
    let tick = demo.json(|one| {
        let workers = one["workers"].as_array();
        let mut workers = workers.into_iter().flatten();
        one["kind"] == "tick" && workers.any(|one| one["running"].as_u64() >= Some(1))
    });
    let busy = tick["workers"].as_array().unwrap().iter();
    let busy = busy.max_by_key(|one| one["running"].as_u64()).unwrap();
    signal(busy["pid"].as_u64().unwrap() as u32, "KILL");
    let has_event = |kind: &'static str| {
        move |one: &Value| {
            let events = one["events"].as_array().into_iter().flatten();
            one["kind"] == "tick" && { events }.any(|event| event["kind"] == kind)
        }
    };
    demo.json(has_event("worker_died"));
    let back = demo.json(has_event("worker_started"));
    let after: BTreeSet<u64> = back["workers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["pid"].as_u64())
        .collect();
    assert_eq!(after.len(), 2, "{back}");
    assert!(!after.contains(&busy["pid"].as_u64().unwrap()), "{back}");

    // The first six orders were paid, by the demo; the seventh was not paid.
    let abide = Abide::open(&url).await.unwrap();
    for number in 1..=6 {
        let order = until(async || {
            let order = abide
                .get(format!("order:{number}").as_str())
                .await
                .unwrap()?;
            order.status.is_terminal().then_some(order)
        })
        .await;
        assert_eq!(order.status, Status::Done, "{order:?}");
        let receipt: Value = order.result.unwrap().to().unwrap();
        let effects = receipt["effects"].as_array().unwrap().iter();
        let steps: Vec<&str> = effects
            .map(|effect| effect.as_str().unwrap().split(':').next().unwrap())
            .collect();
        assert_eq!(steps, ["reserve", "charge", "pack", "ship"]);
    }
    let seventh = abide.get("order:7").await.unwrap().unwrap();
    assert!(!seventh.status.is_terminal(), "{seventh:?}");
    abide.close().await;

    demo.signal("TERM");
    let end = demo.json(is("end"));
    assert_eq!(end["wrong"], serde_json::json!([]), "{end}");
    assert_eq!(end["killed"], 1, "{end}");
    assert!(
        end["ended"].as_u64() >= Some(6) && end["began"].as_u64() > Some(7),
        "{end}"
    );
    let text = end["text"].as_str().unwrap();
    assert!(
        text.contains("1 worker was killed") && text.contains("no step was lost"),
        "{text}"
    );
}

#[test]
fn nothing_remains_after_a_request_to_stop() {
    let mut demo = Demo::start(&["--json", "--workers", "3"]);
    let pids = pids(&demo.json(is("ready")));
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| lives(*pid)));
    assert_eq!(demo.temporary().len(), 1);
    // Twice at once, as timeout(1) does: that is one request.
    demo.signal("TERM");
    demo.signal("TERM");
    assert_eq!(demo.wait(), Some(0), "{}", demo.log());
    assert!(!pids.iter().any(|pid| lives(*pid)));
    assert_eq!(demo.temporary(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn no_worker_outlives_a_demo_that_was_killed() {
    let mut demo = Demo::start(&["--json"]);
    let pids = pids(&demo.json(is("ready")));
    // Also not one that has not got as far as to run anything.
    demo.signal("KILL");
    assert_eq!(demo.wait(), None);
    until(async || (!pids.iter().any(|pid| lives(*pid))).then_some(())).await;
}

#[tokio::test]
async fn no_worker_outlives_a_demo_that_was_killed_while_they_were_at_work() {
    let mut demo = Demo::start(&["--json"]);
    let ready = demo.json(is("ready"));
    demo.json(|one| one["ended"].as_u64() >= Some(1));
    demo.signal("KILL");
    assert_eq!(demo.wait(), None);
    until(async || (!pids(&ready).iter().any(|pid| lives(*pid))).then_some(())).await;
}

#[test]
fn an_address_that_is_taken_is_reported_with_what_to_try() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let home = common::home();
    let run = |arguments: &[&str]| {
        let output = common::abide(home.path())
            .env("TMPDIR", home.path())
            .args(arguments)
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), err)
    };
    let (code, err) = run(&["demo", "--listen", &address]);
    assert_eq!(code, Some(3), "{err}");
    assert!(
        err.contains(&format!("cannot listen on {address}")),
        "{err}"
    );
    assert!(
        err.contains("try: abide demo --listen 127.0.0.1:0"),
        "{err}"
    );

    let (code, err) = run(&["demo", "--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("listen on 127.0.0.1"), "{err}");
    let (code, err) = run(&["demo", "--listen", "nowhere"]);
    assert_eq!(code, Some(2), "{err}");
    let (code, err) = run(&["demo", "--store", "sqlite:x.db"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("--keep"), "{err}");
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_commands_that_it_prints_work_and_a_pipe_gets_no_escape_codes() {
    let mut demo = Demo::start(&[]);
    let head = demo.line(|line| line.contains("abide demo on "));
    demo.line(|line| line == "In another terminal:");
    let mut commands = Vec::new();
    loop {
        let line = demo.lines.recv_timeout(PATIENCE).unwrap();
        match line.strip_prefix("  ") {
            Some(command) => commands.push(command.split("  #").next().unwrap().trim().to_owned()),
            None => break,
        }
    }
    let has = |word: &str| commands.iter().position(|command| command.contains(word));
    let [list, show, watch, pay, kill] =
        [" list", " show ", " watch ", " signal ", "kill -9 "].map(|word| has(word).unwrap());
    let run = |index: usize| {
        let output = Command::new("sh")
            .args(["-c", &format!("timeout 30 {}", commands[index])])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{}: {text} {:?}",
            commands[index],
            output.stderr
        );
        text
    };
    assert!(run(list).contains("order:7"));
    assert!(run(show).contains("order:7"));
    run(pay);
    // Until it has ended; paid, it ends well.
    assert!(run(watch).contains("done"));
    run(kill);
    let died = demo.line(|line| line.contains("was killed"));
    assert!(died.contains("worker 1 was killed"), "{died}");
    demo.signal("INT");
    assert_eq!(demo.wait(), Some(0), "{}", demo.log());
    let rest = demo.rest();
    let last = rest.iter().find(|line| line.contains("no step was lost"));
    assert!(last.is_some(), "{rest:?}");
    let all = [vec![head, died], rest].concat().concat();
    assert!(!all.contains('\u{1b}'), "{all}");
}

#[test]
fn on_a_terminal_a_number_kills_that_worker_and_q_ends() {
    let home = common::home();
    let line = format!(
        "stty cols 80 rows 24; '{}' demo --listen 127.0.0.1:0; echo exit=$?",
        env!("CARGO_BIN_EXE_abide")
    );
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("TERM", "xterm-256color")
        .env_remove("COLUMNS")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut out = child.stdout.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = out.read(&mut part) {
            let _ = sender.send(String::from_utf8_lossy(&part[..read]).into_owned());
        }
    });
    let mut seen = String::new();
    let mut see = |wanted: &str| {
        while !seen.contains(wanted) {
            match receiver.recv_timeout(PATIENCE) {
                Ok(part) => seen.push_str(&part),
                Err(error) => panic!("{wanted:?} was never seen: {error}\n{seen}"),
            }
        }
        seen.clone()
    };
    see("kill a worker: its number and Enter");
    see("runs ");
    keys.write_all(b"9\n").unwrap();
    see("there is no worker 9");
    keys.write_all(b"2\n").unwrap();
    see("worker 2 was killed");
    keys.write_all(b"q\n").unwrap();
    let seen = see("exit=0");
    assert!(
        seen.contains("began") && seen.contains("1 worker was killed"),
        "{seen}"
    );
    // It is drawn in place.
    assert!(seen.contains("\u{1b}7\r\u{1b}["), "{seen:?}");
    child.wait().unwrap();
}

#[tokio::test]
async fn with_a_file_that_is_kept_it_goes_on_where_it_was() {
    let mut demo = Demo::start(&["--json", "--keep", "kept.db"]);
    demo.json(is("ready"));
    demo.json(|one| one["ended"].as_u64() >= Some(1));
    // Even killed, with its workers after it.
    demo.signal("KILL");
    demo.wait();
    let home = std::mem::replace(&mut demo.home, common::home());
    drop(demo);

    let mut again = Demo::start_in(home, &["--json", "--keep", "kept.db"]);
    let ready = again.json(is("ready"));
    let commands = ready["commands"].to_string();
    assert!(commands.contains("show order:7"), "{commands}");
    again.signal("TERM");
    let end = again.json(is("end"));
    assert_eq!(again.wait(), Some(0));
    assert!(end["found"].as_u64() >= Some(1), "{end}");
    assert_eq!(end["wrong"], serde_json::json!([]), "{end}");
    assert!(again.home.path().join("kept.db").exists());
    assert_eq!(again.temporary(), Vec::<PathBuf>::new());
}

#[test]
fn the_command_of_worker_processes_is_hidden() {
    let home = common::home();
    for arguments in [
        vec!["--help"],
        vec!["completions", "bash"],
        vec!["completions", "zsh"],
        vec!["completions", "fish"],
        vec!["man"],
    ] {
        let output = common::abide(home.path())
            .args(&arguments)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("demo") && !text.contains("demo-worker"),
            "{arguments:?}"
        );
    }
}
