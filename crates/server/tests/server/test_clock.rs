//! A server for tests lets its callers move the time; no other does.

use serde_json::json;

use crate::common::{Over, abide, home, server};

const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn the_time_is_moved_to_what_is_due_and_no_further() {
    let server = server()
        .over(Over::Url("memory:".to_owned()))
        .flag("--test-clock")
        .start();
    let start = json!({"machine": "m", "key": "k", "delay_ms": HOUR_MS});
    assert_eq!(server.post("/v1/instances", &start).await.0, 201);
    let (_, before) = server.get("/test/clock").await;
    let (_, seen) = server.get("/v1/instances/k").await;
    assert_eq!(seen["status"], "scheduled");
    assert_eq!(before["next_due"], seen["due_at"]);

    let body = json!({"by_ms": 2 * HOUR_MS});
    let (status, moved) = server.post("/test/clock", &body).await;
    let moved_ms = moved["moved_ms"].as_u64().unwrap();
    assert_eq!(status, 200, "{moved}");
    assert!((1..=HOUR_MS).contains(&moved_ms), "{moved}");
    while server.get("/v1/instances/k").await.1["status"] != "runnable" {
        tokio::task::yield_now().await;
    }
    let (_, moved) = server.post("/test/clock", &body).await;
    assert_eq!(moved["moved_ms"], 2 * HOUR_MS, "nothing is due: {moved}");
    let (_, after) = server.get("/test/clock").await;
    assert!(after["now"].as_str() > seen["due_at"].as_str());

    let (status, _) = server.post("/test/clock", &json!({"to": 5})).await;
    assert_eq!(status, 422);
    assert!(server.log().contains("test clock"), "it says so");
}

#[tokio::test]
async fn other_servers_have_no_such_route() {
    let server = server().start();
    assert_eq!(server.get("/test/clock").await.0, 404);
    let (status, _) = server.post("/test/clock", &json!({"by_ms": 1})).await;
    assert_eq!(status, 404);
}

#[test]
fn it_is_refused_where_it_could_do_harm() {
    for (store, listen, expected) in [
        ("sqlite:orders.db", "127.0.0.1:0", "sqlite:orders.db"),
        ("memory:", "0.0.0.0:0", "which others can reach"),
    ] {
        let home = home();
        let output = abide(home.path())
            .args([
                "serve",
                "--test-clock",
                "--store",
                store,
                "--listen",
                listen,
            ])
            .current_dir(home.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!home.path().join("orders.db").exists());
    }
}
