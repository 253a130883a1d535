//! Two servers over one PostgreSQL, one of which is stopped while it holds locks.

use std::time::{Duration, Instant};

use abide_pgtest::psql;
use serde_json::json;

use crate::common::{self, Over, Server};

/// Longest delay of other requests by default.
const BOUND: Duration = Duration::from_secs(10);
/// Number of keys that both servers work at.
const KEYS: usize = 4;

fn at(n: usize) -> String {
    format!("k{}", n % KEYS)
}

/// Holds a signal for a key.
async fn hold(server: &Server, n: usize) -> (u16, serde_json::Value) {
    let body = json!({"payload": n, "hold_for_ms": 600_000});
    server
        .post(&format!("/v1/instances/{}/signals/go", at(n)), &body)
        .await
}

/// Returns true if a session of the first server is in the middle of a transaction, silent, and holds a lock of a key.
fn holds_locks(url: &str) -> bool {
    let held = "select count(*) from pg_stat_activity a join pg_locks l on l.pid = a.pid \
        where a.application_name = 'first' and a.datname = current_database() \
        and a.state = 'idle in transaction' and l.locktype = 'advisory' and l.granted";
    psql(url, held) != "0"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_while_it_holds_locks_delays_others_for_a_bounded_time() {
    // rule 6.8. The bug: a server under load was stopped with SIGSTOP, and of the signals sent to another server over
    // the same database 96 of 124 timed out until the first was killed.
    let url = common::database();
    let over = |name: &str| Over::Url(format!("{url}?application_name={name}"));
    let first = common::server().over(over("first")).start();
    let second = common::server().over(over("second")).start();

    // The first is under load: signals that are held, for keys under which nothing runs.
    let mut load = Vec::new();
    for caller in 0..8 {
        let (http, base) = (first.http.clone(), first.url.clone());
        load.push(tokio::spawn(async move {
            let target = format!("{base}/v1/instances/{}/signals/go", at(caller));
            let body = json!({"payload": caller, "hold_for_ms": 600_000});
            while http.post(&target).json(&body).send().await.is_ok() {}
        }));
    }
    let deadline = Instant::now() + common::PATIENCE;
    loop {
        first.signal("STOP");
        if holds_locks(&url) {
            break;
        }
        first.signal("CONT");
        assert!(Instant::now() < deadline, "it was never met with a lock");
        tokio::time::sleep(Duration::from_millis(7)).await;
    }

    let begun = Instant::now();
    let calls = (0..24).map(|n| hold(&second, n));
    for (status, body) in futures_util::future::join_all(calls).await {
        assert_eq!(status, 202, "{body}");
    }
    let start = |n: usize| json!({"machine": "m", "step": "begin", "key": at(n)});
    let started = (0..KEYS).map(|n| {
        let body = start(n);
        let second = &second;
        async move { second.post("/v1/instances", &body).await }
    });
    for (status, body) in futures_util::future::join_all(started).await {
        assert!([200, 201].contains(&status), "{status} {body}");
    }
    for n in 0..KEYS {
        let body = json!({"payload": n});
        let path = format!("/v1/instances/{}/signals/go", at(n));
        let sent = second.post(&path, &body).await;
        assert_eq!(sent.0, 202, "{}", sent.1);
    }
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());

    // It goes on where it was; what it had begun was written once or not at all.
    first.signal("CONT");
    let deadline = Instant::now() + common::PATIENCE;
    loop {
        let body = json!({"payload": "back"});
        let sent = first.post("/v1/instances/k0/signals/go", &body).await;
        if sent.0 == 202 {
            break;
        }
        assert!(Instant::now() < deadline, "{sent:?}");
    }
    for one in &load {
        one.abort();
    }
    let doctor = second.cli(&["doctor"]);
    assert!(doctor.status.success(), "{doctor:?}");
    let twice = "select count(*) from (select chain_id, message_sequence from abide.signals \
        where message_sequence is not null group by 1, 2 having count(*) > 1) t";
    assert_eq!(psql(&url, twice), "0");
    let left = "select count(*) from abide.signals where status = 0";
    assert_eq!(
        psql(&url, left),
        "0",
        "a signal is held although its key's instance lives"
    );
}
