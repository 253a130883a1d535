//! Two servers on one store, and the clock of one is set while they run (rule 6.9).
//!
//! The bug: when one server's clock stepped by 15 s, timers fired 15 s early, and a worker of the other server lost what
//! it held.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Over, PATIENCE, Server, Setup, home, postgres, server};
use crate::workers::kit::{instance, start, worker};

/// Duration of the timers that are measured, and of a lease.
const TIMER: Duration = Duration::from_secs(6);
const LEASE_MS: u64 = 4_000;
/// Step by which a clock is set.
const STEP_S: i64 = 15;

/// The library that gives a process a false time.
fn libfaketime() -> PathBuf {
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/opt/homebrew/lib",
    ]
    .map(Path::new);
    let below = |folder: &Path| -> Vec<PathBuf> {
        let inside = std::fs::read_dir(folder).into_iter().flatten().flatten();
        inside.map(|entry| entry.path()).collect()
    };
    let folders = folders
        .iter()
        .flat_map(|folder| below(folder).into_iter().chain([folder.to_path_buf()]));
    folders
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
        .expect("libfaketime is not installed: run `make setup`, or install the package `faketime`")
}

/// Offset of a server's wall clock from ours, in seconds.
async fn is_off_by(server: &Server) -> i64 {
    let answer = server.http.get(server.at("/healthz")).send().await.unwrap();
    let date = answer.headers()["date"].to_str().unwrap().to_owned();
    let theirs = jiff::fmt::rfc2822::parse(&date).unwrap();
    theirs.timestamp().as_second() - jiff::Timestamp::now().as_second()
}

/// A server whose wall clock shows what that file says, compared with ours.
fn server_by(control: &Path, store: &str) -> Setup {
    server()
        .over(Over::Url(store.to_owned()))
        .env("LD_PRELOAD", libfaketime().to_str().unwrap())
        .env("FAKETIME_TIMESTAMP_FILE", control.to_str().unwrap())
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
}

/// Has timers begin at both servers and a worker at each hold a claim, does that, and looks that all timers fire on time and
/// all claims are kept meanwhile.
async fn fires_on_time_and_keeps_claims(
    servers: [&Server; 2],
    what: &str,
    then: impl AsyncFnOnce(),
) {
    let hands = servers.map(|server| worker(server).lease_ms(LEASE_MS));
    let mut claims = Vec::new();
    for (server, hand) in servers.iter().zip(&hands) {
        start(server, json!({"machine": "m"})).await;
        claims.push(hand.one().await);
    }
    let later = json!({"machine": "later", "delay_ms": TIMER.as_millis() as u64});
    let began = Instant::now();
    let timers = [
        start(servers[0], later.clone()).await,
        start(servers[1], later).await,
    ];
    then().await;
    let mut fired = [None; 2];
    while fired.contains(&None) {
        assert!(began.elapsed() < PATIENCE, "timers do not fire: {fired:?}");
        for (id, fired) in timers.iter().zip(&mut fired) {
            if fired.is_none() && instance(servers[1], *id).await["status"] == "runnable" {
                *fired = Some(began.elapsed());
            }
        }
        for (hand, claim) in hands.iter().zip(&claims) {
            let lost = hand.heartbeat(&[claim]).await;
            assert!(lost.is_empty(), "{what}: a worker lost its claim");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let early = TIMER - TIMER / 10;
    for fired in fired.into_iter().flatten() {
        assert!(fired >= early, "{what}: fired after {fired:?}");
        assert!(
            fired < TIMER + Duration::from_secs(3),
            "{what}: fired after {fired:?}"
        );
    }
    for (hand, claim) in hands.iter().zip(&claims) {
        hand.done(claim, json!({"done": {"result": 1}})).await;
    }
}

async fn a_clock_that_is_set_fires_nothing_early_and_takes_no_claim(store: String) {
    let files = home();
    let control = files.path().join("faketime");
    std::fs::write(&control, "+0").unwrap();
    let one = server_by(&control, &store).start();
    let other = server().over(Over::Url(store)).start();
    assert!(is_off_by(&one).await.abs() <= 2);
    for step in [STEP_S, -STEP_S] {
        let what = format!("set by {step:+} s");
        let set = async || {
            std::fs::write(&control, format!("{step:+}")).unwrap();
            // The date of an answer is remembered until a later one is due, so that it shows no step back.
            if step > 0 {
                let off = is_off_by(&one).await;
                assert!((off - step).abs() <= 3, "the clock was not set: {off}");
            }
        };
        fires_on_time_and_keeps_claims([&one, &other], &what, set).await;
        std::fs::write(&control, "+0").unwrap();
    }
}

#[tokio::test]
async fn a_clock_that_is_set_is_not_believed_on_postgresql() {
    // rule 6.9
    let Over::Url(url) = postgres() else {
        unreachable!()
    };
    a_clock_that_is_set_fires_nothing_early_and_takes_no_claim(url).await;
}

#[tokio::test]
async fn a_clock_that_is_set_is_come_after_slowly_on_sqlite() {
    // rule 6.9
    let files = home();
    let file = files.path().join("shared.db");
    let url = format!("sqlite:{}", file.display());
    a_clock_that_is_set_fires_nothing_early_and_takes_no_claim(url).await;
}

#[tokio::test]
async fn a_process_that_begins_after_a_clock_was_set_agrees_with_those_that_run_on_sqlite() {
    // rule 6.9. The bug: the clock was set back by 15 s, which the process that ran came after slowly. One that was
    // started then was 15 s behind it, so the first fired the second's timers at once and took the claims of its workers.
    for step in [-STEP_S, STEP_S] {
        let files = home();
        let file = files.path().join("shared.db");
        let url = format!("sqlite:{}", file.display());
        let old = server().over(Over::Url(url.clone())).start();
        let noted = files.path().join("shared.db-workers");
        let began = Instant::now();
        while std::fs::read_to_string(&noted).is_ok_and(|noted| noted.is_empty()) {
            assert!(
                began.elapsed() < PATIENCE,
                "it does not say what time it has"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let control = files.path().join("faketime");
        std::fs::write(&control, format!("{step:+}")).unwrap();
        let new = server_by(&control, &url).start();
        let off = is_off_by(&new).await;
        assert!((off - step).abs() <= 3, "the clock was not set: {off}");
        let what = format!("begun {step:+} s off");
        fires_on_time_and_keeps_claims([&old, &new], &what, async || ()).await;
        assert!(
            new.log().contains("the wall clock was set"),
            "{}",
            new.log()
        );
    }
}
