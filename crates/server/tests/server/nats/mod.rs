//! Events from a real nats-server: `--set nats.url=…`.

mod logins;
#[path = "../../../../nats/tests/source/server.rs"]
#[allow(
    dead_code,
    clippy::expect_used,
    reason = "tests, a part of which is for the crate alone"
)]
mod server;

use std::time::Instant;

use async_nats::jetstream::Context;
use serde_json::{Value, json};
use server::Server as NatsServer;

use crate::common::{self, PATIENCE, Server, abide, home, postgres};

/// The path that [`server`] waits by.
mod wait {
    pub use crate::common::PATIENCE;
}

async fn send(context: &Context, subject: &'static str, body: &Value) {
    let sent = context.publish(subject, body.to_string().into()).await;
    sent.unwrap().await.unwrap();
}

/// Waits until there are so many events; their types and payloads, oldest first.
async fn events(server: &Server, count: usize) -> Vec<(String, Value)> {
    let until = Instant::now() + PATIENCE;
    loop {
        let (status, body) = server.get("/v1/events").await;
        assert_eq!(status, 200, "{body}");
        let found = body["items"].as_array().unwrap();
        if found.len() >= count {
            let read = |event: &Value| {
                let of = event["type"].as_str().unwrap().to_owned();
                (of, event["payload"].clone())
            };
            return found.iter().rev().map(read).collect();
        }
        assert!(Instant::now() < until, "{body}\n{}", server.log());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn messages_become_events_of_what_their_subjects_say() {
    // rule 14.1
    for over in [common::Over::Sqlite, postgres()] {
        let nats = NatsServer::start().await;
        let context = nats.with_stream("EVENTS", "event.>").await;
        let server = common::server()
            .over(over)
            .set("nats.url", nats.url())
            .start();
        send(&context, "event.payment.received", &json!({"order": 1})).await;
        send(&context, "event.shipped", &json!(2)).await;
        let expected = [
            ("payment.received".to_owned(), json!({"order": 1})),
            ("shipped".to_owned(), json!(2)),
        ];
        assert_eq!(events(&server, 2).await, expected);
        let home = server.stop();
        drop(home);
    }
}

#[tokio::test]
async fn several_subjects_are_read_and_another_prefix_is_left_out() {
    let nats = NatsServer::start().await;
    let context = nats.with_stream("ALL", "shop.>").await;
    let server = common::server()
        .set("nats.url", nats.url())
        .set("nats.subjects", "shop.orders.*,shop.paid")
        .set("nats.prefix", "shop.")
        .set("nats.stream", "ALL")
        .start();
    send(&context, "shop.orders.new", &json!(1)).await;
    send(&context, "shop.other", &json!(2)).await;
    events(&server, 1).await;
    send(&context, "shop.paid", &json!(3)).await;
    let expected = [
        ("orders.new".to_owned(), json!(1)),
        ("paid".to_owned(), json!(3)),
    ];
    assert_eq!(events(&server, 2).await, expected);
}

#[tokio::test]
async fn a_nats_server_that_is_away_and_a_stream_that_comes_late_delay_no_other_request() {
    let mut nats = NatsServer::start().await;
    nats.kill();
    let server = common::server().set("nats.url", nats.url()).start();
    let (status, _) = server.post("/v1/instances", &json!({"machine": "m"})).await;
    assert_eq!(status, 201, "all else goes on");
    nats.start_again().await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let context = nats.with_stream("EVENTS", "event.>").await;
    send(&context, "event.late", &json!(null)).await;
    assert_eq!(events(&server, 1).await, [("late".to_owned(), json!(null))]);
    // What was published while it was down comes when it is up again, and nothing comes twice.
    let over = server.store.clone();
    let home = server.stop();
    send(&context, "event.between", &json!(1)).await;
    let server = common::server()
        .home(home)
        .over(common::Over::Url(over))
        .set("nats.url", nats.url())
        .start();
    send(&context, "event.after", &json!(2)).await;
    let types = events(&server, 3).await.into_iter().map(|(of, _)| of);
    assert_eq!(types.collect::<Vec<_>>(), ["late", "between", "after"]);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let refused = |arguments: &[&str], part: &str| {
        let home = home();
        let mut command = abide(home.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
        for setting in arguments {
            command.args(["--set", setting]);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && stderr.contains(part),
            "{part}: {stderr}"
        );
        assert!(!stderr.contains("geheim"), "{stderr}");
    };
    let url = "nats.url=nats://127.0.0.1:1";
    refused(&[url, "nats.user=me"], "nats.password");
    refused(&[url, "nats.password=geheim"], "nats.user");
    refused(
        &[
            url,
            "nats.user=me",
            "nats.password=geheim",
            "nats.token=geheim",
        ],
        "log in in one way",
    );
    refused(&[url, "nats.subjects=a,,b"], "empty subject");
    refused(
        &[url, "nats.creds=/nowhere/creds"],
        "nats.creds = /nowhere/creds",
    );
    refused(
        &[url, "nats.nkey=/nowhere/seed"],
        "nats.nkey = /nowhere/seed",
    );
    refused(&[url, "nats.cert=/nowhere/cert"], "nats.key");
    refused(&["nats.token=geheim"], "nats.url is missing");
}
