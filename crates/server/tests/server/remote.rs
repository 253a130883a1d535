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
async fn a_client_that_uses_another_name_of_an_open_server_learns_what_to_do() {
    let server = server().start();
    // It leads to this machine, and is none of its names.
    let url = server.url.replace("127.0.0.1", "0.0.0.0");
    let Err(error) = Abide::open(&url).await else {
        panic!("{url} is answered");
    };
    let message = error.to_string();
    assert!(
        message.contains("421") && message.contains("abide token create"),
        "{message}"
    );
    assert!(
        !message.contains("of this release"),
        "it is a server of ours: {message}"
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
        (
            json!({"read": {"machines": {"limit": 10}}}),
            vec!["read", "work", "operate"],
        ),
        (
            json!({"read": {"records": [1]}}),
            vec!["read", "send", "work", "operate"],
        ),
        (
            json!({"read": {"documents": {"kind": "token", "limit": 10}}}),
            vec!["operate"],
        ),
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
        "{\"read\": {\"get\": {\"key\": \"\"}}}",
    ] {
        let request = server
            .http
            .post(server.at("/rpc/v1"))
            .bearer_auth(operate)
            .header("content-type", "application/json")
            .body(body);
        let (status, reply) = answer(request).await;
        assert_eq!(status, 400, "{body}: {reply}");
    }
    assert_eq!(server.get("/rpc/v1/notifications").await.0, 401);
}

async fn no_caller_can_say_to_be_another(server: Server) {
    // rule 7.3
    let start = json!({"machine": "shop", "key": "order:1"});
    let (status, body) = server.post("/v1/instances", &start).await;
    assert_eq!(status, 201, "{body}");
    let made = server.cli(&["token", "create", "--role", "operate", "--name", "till"]);
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    tokio::time::timeout(crate::common::PATIENCE, async {
        while server.post("/rpc/v1", &json!("now")).await.0 != 401 {}
    })
    .await
    .unwrap();
    let post = |path: &str| server.http.post(server.at(path)).bearer_auth(&token);
    let get = async |path: &str| {
        let request = server.http.get(server.at(path)).bearer_auth(&token);
        answer(request).await.1
    };

    // The library's own language, alone, under an id, and under a key of its own.
    let command = |kind: &str, source: &str| {
        json!({"target": {"key": "order:1"}, "kind": kind, "name": "paid", "arguments": {"arguments": []},
            "source": source, "claimed_source": "http:boss"})
    };
    let deliver = |kind: &str| json!({"deliver": [command(kind, "hook:bank")]});
    let id = json!({"caller": "c", "key": "k", "fingerprint": "0".repeat(64)});
    for (op, key) in [
        (deliver("signal"), None),
        (
            json!({"once": [{"id": id, "ops": [deliver("signal")]}]}),
            None,
        ),
        (deliver("update"), None),
        (deliver("signal"), Some("own")),
    ] {
        let mut request = post("/rpc/v1").json(&json!({"run": [op]}));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let (status, body) = answer(request).await;
        assert_eq!((status, body.get("failed")), (200, None), "{op}: {body}");
    }
    // The plain routes take no source, and no claim of one.
    for (path, body) in [
        ("/v1/instances/order:1/signals/paid", json!({})),
        (
            "/v1/instances/order:1/updates/paid",
            json!({"wait_for": "accepted"}),
        ),
        (
            "/v1/signal-with-start",
            json!({"start": start, "name": "paid"}),
        ),
        ("/v1/instances/order:1/cancel", json!({})),
    ] {
        for field in ["source", "claimed_source"] {
            let mut forged = body.clone();
            forged[field] = json!("hook:bank");
            let (status, reply) = answer(post(path).json(&forged)).await;
            assert_eq!(status, 422, "{path} {forged}: {reply}");
            assert!(reply["detail"].as_str().unwrap().contains(field), "{reply}");
        }
        if !path.ends_with("/cancel") {
            let (status, reply) = answer(post(path).json(&body)).await;
            assert!(status < 500, "{path}: {reply}");
        }
    }

    let mut claimed = 0;
    for (records, least) in [("signals", 5), ("updates", 2)] {
        let listed = get(&format!("/v1/instances/order:1/{records}")).await;
        let items = listed["items"].as_array().unwrap();
        assert!(items.len() >= least, "{listed}");
        for record in items {
            assert_eq!(record["source"], "http:till", "{record}");
            if let Some(claimed_source) = record.get("claimed_source") {
                assert_eq!(claimed_source, "hook:bank", "{record}");
                claimed += 1;
            }
        }
    }
    assert_eq!(claimed, 4);
    let history = get("/v1/instances/order:1/history").await;
    let received = history["items"].as_array().unwrap().iter();
    let received: Vec<_> = received
        .filter(|event| event["kind"] == "signal_received")
        .map(|event| (&event["data"]["source"], &event["data"]["claimed_source"]))
        .collect();
    assert_eq!(
        received[0],
        (&json!("http:till"), &json!("hook:bank")),
        "{history}"
    );

    // A claim is short, and has no control characters; it touches no other.
    for bad in ["x".repeat(256), "a\nb".to_owned()] {
        let commands = [command("signal", &bad), command("signal", "desk 3")];
        let run = json!({"run": [{"deliver": commands}]});
        let (status, body) = answer(post("/rpc/v1").json(&run)).await;
        let each = &body["answers"][0]["delivered"];
        assert_eq!(
            (status, &each[0]["Err"]["reason"]),
            (200, &json!("bad_source")),
            "{body}"
        );
        assert_eq!(
            each[1]["Ok"]["record"]["claimed_source"], "desk 3",
            "{body}"
        );
    }
    let abide = Abide::options()
        .token(&token)
        .open(&server.url)
        .await
        .unwrap();
    let sent = abide
        .signal("order:1", GO, &1)
        .source("x".repeat(256))
        .await;
    let message = sent.unwrap_err().to_string();
    assert!(
        message.contains("invalid source") && message.contains("255 bytes"),
        "{message}"
    );
    abide.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_can_say_to_be_another_on_sqlite() {
    no_caller_can_say_to_be_another(server().start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_can_say_to_be_another_on_postgres() {
    no_caller_can_say_to_be_another(server().over(postgres()).start()).await;
}
