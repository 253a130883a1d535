//! The store itself over HTTP: a program moves from a file to a server by its connection string.

use abide::{Abide, Job, Signal};
use serde_json::json;

use crate::common::{Server, answer, postgres, server};

const DOUBLE: Job<u32, u32> = Job::new("double");
const GO: Signal<u32> = Signal::new("go");

async fn a_program_works_on_a_server_as_on_a_file(server: Server) {
    let abide = Abide::open(&server.url).await.unwrap();
    let engine = abide
        .engine()
        .job(DOUBLE, |n: u32| async move { Ok(2 * n) })
        .start()
        .await
        .unwrap();
    let run = abide.start(DOUBLE, 21).key("answer").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 42);
    assert!(abide.signal("answer", GO, &1).await.is_err());
    // What one sees the other does.
    let (status, seen) = server.get("/v1/instances/answer").await;
    assert_eq!(
        (status, seen["status"].as_str()),
        (200, Some("done")),
        "{seen}"
    );
    engine.shutdown().await;
    abide.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_works_on_a_server_as_on_a_file_on_sqlite() {
    a_program_works_on_a_server_as_on_a_file(server().start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_works_on_a_server_as_on_a_file_on_postgres() {
    a_program_works_on_a_server_as_on_a_file(server().over(postgres()).start()).await;
}

#[tokio::test]
async fn who_names_an_open_server_otherwise_is_told_what_to_do() {
    let server = server().start();
    // It leads to this machine, and is none of its names.
    let url = server.url.replace("127.0.0.1", "0.0.0.0");
    let Err(error) = Abide::open(&url).await else {
        panic!("{url} is answered");
    };
    let told = error.to_string();
    assert!(
        told.contains("421") && told.contains("abide token create"),
        "{told}"
    );
    assert!(
        !told.contains("of this release"),
        "it is a server of ours: {told}"
    );
}

#[tokio::test]
async fn each_request_asks_for_the_rights_it_needs() {
    let server = server().start();
    let tokens = ["read", "send", "work", "operate"].map(|role| (role, server.token(role)));
    tokio::time::timeout(crate::common::PATIENCE, async {
        while server.post("/rpc/v1", &json!("now")).await.0 != 401 {}
    })
    .await
    .unwrap();
    for (request, roles) in [
        (json!("now"), vec!["read", "send", "work", "operate"]),
        (json!("machines"), vec!["read", "work", "operate"]),
        (
            json!({"records": [1]}),
            vec!["read", "send", "work", "operate"],
        ),
        (json!({"documents": "token"}), vec!["operate"]),
        (json!({"run": [{"publish": []}]}), vec!["send", "operate"]),
        (
            json!({"run": [{"fire": {"limit": 1}}]}),
            vec!["work", "operate"],
        ),
        (
            json!({"run": [{"publish": []}, {"start": []}]}),
            vec!["operate"],
        ),
    ] {
        for (role, token) in &tokens {
            let (status, body) = answer(
                server
                    .http
                    .post(server.at("/rpc/v1"))
                    .bearer_auth(token)
                    .json(&request),
            )
            .await;
            let may = roles.contains(role);
            assert_eq!(
                status,
                if may { 200 } else { 403 },
                "{request} as {role}: {body}"
            );
        }
    }
    let operate = &tokens[3].1;
    for body in [
        "",
        "{",
        "[]",
        "{\"nothing\": 1}",
        "{\"get\": {\"key\": \"\"}}",
    ] {
        let request = server
            .http
            .post(server.at("/rpc/v1"))
            .bearer_auth(operate)
            .header("content-type", "application/json")
            .body(body);
        let (status, told) = answer(request).await;
        assert_eq!(status, 400, "{body}: {told}");
    }
    assert_eq!(server.get("/rpc/v1/news").await.0, 401);
}
