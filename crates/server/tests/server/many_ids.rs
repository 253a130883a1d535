//! A read of a remote store names so many ids, and no more.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Server, answer, postgres, server};

/// A request for millions of ids is refused, and no other request waits for it.
async fn a_read_of_too_many_ids_is_refused_and_others_read_on(server: Server) {
    // 7 million ids kept SQLite's readers busy for as long as it took to look for them.
    let ids = "1,".repeat(6_999_999);
    let began = Instant::now();
    let requests = ["endings", "records"].map(|read| {
        let body = format!("{{\"read\":{{\"{read}\":[{ids}1]}}}}");
        let request = server.http.post(server.at("/rpc/v1"));
        let request = request
            .header("content-type", "application/json")
            .body(body);
        tokio::spawn(answer(request))
    });
    let mut slowest = Duration::ZERO;
    while !requests.iter().all(tokio::task::JoinHandle::is_finished) {
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
    for request in requests {
        let (_, reply) = request.await.unwrap();
        let reply = reply.to_string();
        assert!(
            reply.contains("ids_per_read") && reply.contains("1000") && reply.contains("7000000"),
            "{:?}",
            reply.get(..500)
        );
    }
    // As many as it may name are answered.
    let ids = vec![1; 1_000];
    let (status, reply) = server
        .post("/rpc/v1", &json!({"read": {"endings": ids}}))
        .await;
    assert_eq!(status, 200, "{reply}");
    assert!(reply["found"]["endings"]["missing"].is_array(), "{reply}");
}

#[tokio::test]
async fn a_read_of_too_many_ids_is_refused_on_sqlite() {
    a_read_of_too_many_ids_is_refused_and_others_read_on(server().start()).await;
}

#[tokio::test]
async fn a_read_of_too_many_ids_is_refused_on_postgres() {
    a_read_of_too_many_ids_is_refused_and_others_read_on(server().over(postgres()).start()).await;
}
