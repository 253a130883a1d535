//! Shutdown: waiting requests are answered at once, running ones are finished, and nothing that was accepted is lost.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{PATIENCE, Server, postgres, server};
use crate::server::raw::Raw;

const HALF: &str = "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"type\":";

#[tokio::test]
async fn sigterm_answers_long_polls_at_once_and_ends_with_0() {
    for setup in [server(), server().over(postgres())] {
        let mut server = setup.start();
        let machine = json!({"signals": [], "updates": []});
        assert_eq!(server.put("/v1/machines/m/1", &machine).await.0, 200);
        let claim = json!({"worker": "w", "queue": "default", "machines": [{"name": "m", "version": 1}], "limit": 1, "wait_ms": 60_000});
        let poll = tokio::spawn(
            server
                .http
                .post(server.at("/v1/workers/claim"))
                .json(&claim)
                .send(),
        );
        let stream = server
            .http
            .get(server.at("/v1/stream"))
            .send()
            .await
            .unwrap();
        // A worker that polls is known.
        let known = async || {
            let (_, workers) = server.get("/v1/workers").await;
            workers.to_string().contains("\"name\":\"w\"")
        };
        server.until("the worker is known", known).await;
        let began = Instant::now();
        server.signal("TERM");
        let answer = poll.await.unwrap().unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(
            answer.json::<serde_json::Value>().await.unwrap()["claims"],
            json!([])
        );
        stream.bytes().await.unwrap();
        assert_eq!(server.wait(), Some(0), "{}", server.log());
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}\n{}",
            began.elapsed(),
            server.log()
        );
    }
}

#[tokio::test]
async fn a_request_that_runs_when_sigterm_comes_is_finished() {
    let mut server = server().start();
    let mut raw = Raw::to(&server).await;
    raw.send(HALF).await;
    // It is being worked on once the server answers others that came later.
    assert_eq!(server.get("/healthz").await.0, 200);
    server.signal("TERM");
    let connect = async || tokio::net::TcpStream::connect(server.address()).await;
    let refuses = async || connect().await.is_err();
    server.until("no connection is taken", refuses).await;
    assert!(server.ended().is_none());
    raw.send("\"t\"}").await;
    let response = raw.rest().await;
    assert_eq!(response.status, Some(200), "{response:?}");
    assert!(response.text.contains("event_id"), "{response:?}");
    assert_eq!(server.wait(), Some(0), "{}", server.log());

    // What was answered is there.
    let home = server.leave();
    let again = crate::common::server().home(home).start();
    assert_eq!(
        again.get("/v1/events").await.1["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off_when_the_grace_time_is_over() {
    let mut server = server().set("grace_ms", 300).start();
    let mut raw = Raw::to(&server).await;
    raw.send(HALF).await;
    assert_eq!(server.get("/healthz").await.0, 200);
    let began = Instant::now();
    server.signal("INT");
    assert_eq!(server.wait(), Some(0), "{}", server.log());
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}

/// Sends SIGTERM so many times at once while a request is half there, and waits until the server has noticed.
async fn stop_with_half_a_request(server: &Server, times: usize) -> Raw {
    let mut raw = Raw::to(server).await;
    raw.send(HALF).await;
    assert_eq!(server.get("/healthz").await.0, 200);
    let pids = vec![server.pid().to_string(); times];
    let killed = Command::new("kill").arg("-TERM").args(pids).status();
    assert!(killed.unwrap().success());
    server.logs("shutting down", 1).await;
    raw
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut server = server().set("grace_ms", 60_000).start();
    let _half = stop_with_half_a_request(&server, 1).await;
    let began = Instant::now();
    while server.ended().is_none() {
        assert!(began.elapsed() < PATIENCE, "{}", server.log());
        server.signal("TERM");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.wait(), Some(1), "{}", server.log());
}

#[tokio::test]
async fn a_signal_that_comes_twice_at_once_is_one() {
    let mut server = server().set("grace_ms", 60_000).start();
    let mut half = stop_with_half_a_request(&server, 2).await;
    half.send("\"t\"}").await;
    assert_eq!(half.rest().await.status, Some(200));
    assert_eq!(server.wait(), Some(0), "{}", server.log());
}

#[tokio::test]
async fn it_is_not_ready_while_it_drains() {
    let mut server = server().start();
    let mut kept = Raw::to(&server).await;
    kept.send("GET /readyz HTTP/1.1\r\nhost: localhost\r\n")
        .await;
    let mut raw = stop_with_half_a_request(&server, 1).await;
    kept.send("\r\n").await;
    let response = kept.rest().await;
    assert_eq!(response.status, Some(503), "{response:?}");
    raw.send("\"t\"}").await;
    assert_eq!(raw.rest().await.status, Some(200));
    assert_eq!(server.wait(), Some(0));
}

/// Waits until it says that it is not ready any more.
async fn drains(server: &Server) {
    let is_unready = async || server.get("/readyz").await.0 == 503;
    server.until("it drains", is_unready).await;
}

/// Requests that a load balancer sent after SIGTERM, because it had not asked `/readyz` again yet, were refused.
#[tokio::test]
async fn a_server_that_was_asked_to_stop_still_answers_while_it_drains() {
    let mut server = server().set("drain_ms", 60_000).start();
    server.signal("TERM");
    drains(&server).await;
    assert_eq!(server.get("/healthz").await.0, 200);
    let started = server
        .post("/v1/instances", &json!({"machine": "m", "key": "late"}))
        .await;
    assert_eq!(started.0, 201, "{started:?}");
    assert!(server.ended().is_none());
    // Asked once more, it ends at once. Two signals within half a second count as one.
    tokio::time::sleep(Duration::from_millis(600)).await;
    server.signal("TERM");
    assert_eq!(server.wait(), Some(1), "{}", server.log());
}

#[tokio::test]
async fn a_server_that_has_drained_ends_by_itself() {
    let mut server = server().set("drain_ms", 3_000).start();
    let began = Instant::now();
    server.signal("TERM");
    drains(&server).await;
    assert!(server.ended().is_none());
    assert_eq!(server.wait(), Some(0), "{}", server.log());
    assert!(
        began.elapsed() >= Duration::from_secs(3),
        "{}",
        server.log()
    );
}
