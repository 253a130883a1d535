//! Server-sent events: nothing lost and nothing twice, over any number of connections.

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::common::{PATIENCE, Server};
use crate::http::cart::{engine, standing};
use crate::http::on_both;

/// An event as it came.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    id: String,
    event: String,
    data: Value,
}

/// Reads events until one is the last that is wanted, or the stream ends.
async fn read(
    server: &Server,
    path: &str,
    last_event_id: Option<&str>,
    mut enough: impl FnMut(&[Sent]) -> bool,
) -> Vec<Sent> {
    let mut request = server.http.get(server.at(path));
    if let Some(id) = last_event_id {
        request = request.header("last-event-id", id);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.bytes_stream();
    let (mut text, mut events) = (Vec::new(), Vec::new());
    let reading = async {
        while !enough(&events) {
            let Some(piece) = body.next().await else {
                return;
            };
            text.extend_from_slice(&piece.unwrap());
            while let Some(at) = text.windows(2).position(|pair| pair == b"\n\n") {
                let block = String::from_utf8(text.drain(..at + 2).collect()).unwrap();
                let field = |name: &str| {
                    let line = block
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    line.map(|value| value.trim_start().to_owned())
                };
                let Some(event) = field("event") else {
                    continue;
                };
                let data = serde_json::from_str(&field("data").unwrap()).unwrap();
                events.push(Sent {
                    id: field("id").unwrap_or_default(),
                    event,
                    data,
                });
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the stream sends too little");
    events
}

fn ended(events: &[Sent]) -> bool {
    events.last().is_some_and(|last| last.event == "end")
}

on_both! {
    async fn an_instance_is_followed_from_its_start_to_its_end(server) {
        let (_abide, engine) = engine(server).await;
        let (_, started) = server.post("/v1/instances", &json!({"machine": "cart", "key": "c:1", "state": ["cup"]})).await;
        standing(server, "c:1", "awaiting_signal").await;
        let following = read(server, "/v1/stream?instance=c:1", None, ended);
        let payment = json!({"payload": 1});
        let signal = server.post("/v1/instances/c:1/signals/order", &payment);
        let (events, _) = tokio::join!(following, signal);
        let (_, history) = server.get("/v1/instances/c:1/history").await;
        let history = history["items"].as_array().unwrap();
        let (end, seen) = events.split_last().unwrap();
        assert_eq!(seen.iter().map(|one| one.data.clone()).collect::<Vec<_>>(), *history, "as in the history");
        assert!(seen.iter().all(|one| one.event == one.data["kind"] && one.id.parse::<u64>().ok() == one.data["seq"].as_u64()), "{seen:?}");
        assert_eq!((&end.data["id"], &end.data["status"]), (&started["id"], &json!("done")));

        // A client that reconnects continues after the last event it has: nothing is lost, nothing comes twice.
        let mut again: Vec<Sent> = Vec::new();
        while !ended(&again) {
            let last = again.last().map(|last| last.id.clone());
            let more = read(server, "/v1/stream?instance=c:1", last.as_deref(), |events| !events.is_empty()).await;
            again.push(more[0].clone());
        }
        assert_eq!(again, events);
        let seq = seen[1].id.clone();
        let rest = read(server, &format!("/v1/stream?instance=c:1&last_event_id={seq}"), None, ended).await;
        assert_eq!(rest, events[2..]);
        let some = read(server, "/v1/stream?instance=c:1&types=signal_received,done", None, ended).await;
        assert_eq!(some.iter().map(|one| one.event.as_str()).collect::<Vec<_>>(), ["signal_received", "done", "end"]);
        engine.shutdown().await;
    }

    async fn changes_on_the_server_are_streamed_to_all_clients(server) {
        let watching = read(server, "/v1/stream?types=ready", None, |events| events.iter().filter(|one| one.event == "ready").count() >= 2);
        let starting = async {
            // It listens when its first bytes could come: so start until both have come.
            for n in 0..600 {
                server.post("/v1/instances", &json!({"machine": "m", "queue": format!("q{}", n % 2)})).await;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let events = tokio::select! {
            events = watching => events,
            () = starting => panic!("nothing came"),
        };
        assert!(events.iter().all(|one| one.event == "ready" && one.data["queue"].is_string()), "{events:?}");

        // A client that reconnects with the id of an event is sent again what came after it.
        let first = events[0].clone();
        let again = read(server, "/v1/stream?types=ready", Some(&first.id), |again| !again.is_empty()).await;
        assert_eq!(again[0], events[1]);
        // An id of another process, or of none: everything is to be looked at again.
        for unknown in ["0000000000000000-7", "nonsense", &format!("{}9999", first.id)] {
            let reset = read(server, "/v1/stream", Some(unknown), |events| !events.is_empty()).await;
            assert_eq!(reset[0].event, "reset", "{unknown}");
        }
    }

    async fn what_cannot_be_streamed_is_refused(server) {
        for (query, expected) in [("instance=absent", 404), ("types=", 400), ("types=A", 400), ("kind=x", 400)] {
            let (status, body) = server.get(&format!("/v1/stream?{query}")).await;
            assert_eq!(status, expected, "{query}: {body}");
        }
        server.post("/v1/instances", &json!({"machine": "m", "key": "k"})).await;
        assert_eq!(server.get("/v1/stream?instance=k&last_event_id=x").await.0, 400);
        // A type that does not exist would never come: the answer lists those that exist.
        for (query, unknown, known) in [
            ("types=redy,ended", "\"redy\"", "ready, ended, answered, cancelled, received, due, reset"),
            ("types=step_completed", "\"step_completed\"", "ready, ended,"),
            ("instance=k&types=signal_recieved", "\"signal_recieved\"", "signal_received, event_matched,"),
            ("instance=k&types=ready", "\"ready\"", "failed, end,"),
        ] {
            let (status, body) = server.get(&format!("/v1/stream?{query}")).await;
            let detail = body["detail"].as_str().unwrap();
            assert_eq!(status, 400, "{query}: {detail}");
            assert!(detail.contains(unknown) && detail.contains(known), "{query}: {detail}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_waits_end_at_once_when_the_server_stops() {
    let mut server = crate::common::server().start();
    server
        .post("/v1/instances", &json!({"machine": "m", "key": "k"}))
        .await;
    let stream = server
        .http
        .get(server.at("/v1/stream?instance=k"))
        .send()
        .await
        .unwrap();
    let whole = server
        .http
        .get(server.at("/v1/stream"))
        .send()
        .await
        .unwrap();
    let result = tokio::spawn(
        server
            .http
            .get(server.at("/v1/instances/k/result?wait_ms=60000"))
            .send(),
    );
    // Until it waits: the server has read it when it answers one that came later on another connection.
    assert_eq!(server.get("/healthz").await.0, 200);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let began = std::time::Instant::now();
    server.signal("TERM");
    let (stream, whole) = (stream.text(), whole.text());
    assert!(stream.await.unwrap().contains("started"));
    whole.await.unwrap();
    assert_eq!(result.await.unwrap().unwrap().status(), 202);
    assert_eq!(server.wait(), Some(0));
    assert!(
        began.elapsed() < std::time::Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}
