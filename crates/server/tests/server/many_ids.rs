//! A read of a remote store names so many ids, and no more.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Server, answer, postgres, server};

/// A request for millions of ids is refused, and nobody else waits for it.
async fn a_read_of_too_many_ids_is_refused_and_others_read_on(server: Server) {
    // 7 million ids kept SQLite's readers busy for as long as it took to look for them.
    let ids = "1,".repeat(6_999_999);
    let began = Instant::now();
    let asked = ["endings", "records"].map(|read| {
        let body = format!("{{\"{read}\":[{ids}1]}}");
        let asked = server.http.post(server.at("/rpc/v1"));
        let asked = asked.header("content-type", "application/json").body(body);
        tokio::spawn(answer(asked))
    });
    let mut slowest = Duration::ZERO;
    while !asked.iter().all(tokio::task::JoinHandle::is_finished) {
        let read = Instant::now();
        assert_eq!(server.get("/v1/instances").await.0, 200);
        slowest = slowest.max(read.elapsed());
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    for asked in asked {
        let (_, told) = asked.await.unwrap();
        let told = told.to_string();
        assert!(
            told.contains("ids_per_read") && told.contains("1000") && told.contains("7000000"),
            "{:?}",
            told.get(..500)
        );
    }
    // As many as it may name are answered.
    let ids = vec![1; 1_000];
    let (status, told) = server.post("/rpc/v1", &json!({"endings": ids})).await;
    assert_eq!(status, 200, "{told}");
    assert!(told["endings"]["missing"].is_array(), "{told}");
}

#[tokio::test]
async fn a_read_of_too_many_ids_is_refused_on_sqlite() {
    a_read_of_too_many_ids_is_refused_and_others_read_on(server().start()).await;
}

#[tokio::test]
async fn a_read_of_too_many_ids_is_refused_on_postgres() {
    a_read_of_too_many_ids_is_refused_and_others_read_on(server().over(postgres()).start()).await;
}
