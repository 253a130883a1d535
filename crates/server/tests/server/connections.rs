//! Connections: kept between requests, whatever became of the one before; and HTTP/2 however its beginning is cut.

use std::time::Duration;

use crate::common::server;
use crate::server::raw::Raw;

const LOOK: &str = "GET /v1/queues HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let server = server().start();
    let mut raw = Raw::to(&server).await;
    for _ in 0..3 {
        raw.send(LOOK).await;
        let response = raw.answer().await;
        assert_eq!(response.status, Some(200), "{response:?}");
        assert!(
            !response.text.to_lowercase().contains("connection: close"),
            "{response:?}"
        );
    }
    // Two at once are answered in their order.
    raw.send([LOOK, "GET /v1/nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n"].concat())
        .await;
    assert_eq!(raw.answer().await.status, Some(200));
    assert_eq!(raw.answer().await.status, Some(404));
}

#[tokio::test]
async fn a_refusal_with_an_unread_body_leaves_the_connection_to_the_next_request() {
    let server = server().start();
    let large = "x".repeat(300_000);
    for (head, body, status) in [
        (
            "POST /v1/nowhere HTTP/1.1\r\nhost: localhost\r\n",
            "{}",
            404,
        ),
        (
            "POST /v1/nowhere HTTP/1.1\r\nhost: localhost\r\n",
            &large,
            404,
        ),
        (
            "DELETE /v1/instances HTTP/1.1\r\nhost: localhost\r\n",
            &large,
            405,
        ),
        (
            "POST /v1/events HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\n",
            &large,
            403,
        ),
        (
            "POST /v1/events HTTP/1.1\r\nhost: evil.example\r\n",
            &large,
            421,
        ),
        (
            "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n",
            &large,
            415,
        ),
        (
            "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n",
            &large,
            400,
        ),
        (
            "POST /v1/workers/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n",
            "{}",
            422,
        ),
    ] {
        for late in [false, true] {
            let mut raw = Raw::to(&server).await;
            raw.send(format!("{head}content-length: {}\r\n\r\n", body.len()))
                .await;
            if late {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            raw.send(body).await;
            let response = raw.answer().await;
            assert_eq!(response.status, Some(status), "{head} {response:?}");
            raw.send(LOOK).await;
            let next = raw.answer().await;
            assert_eq!(next.status, Some(200), "after {head}: {next:?}");
        }
    }
}

/// The preface of HTTP/2, an empty SETTINGS frame, and a request for /healthz in a HEADERS frame that is the whole of it.
fn health_request() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // From the static table: GET, http; then a path and an authority as they are.
    let mut headers = vec![0x82, 0x86, 0x44, 8];
    headers.extend(b"/healthz");
    headers.extend([0x41, 9]);
    headers.extend(b"localhost");
    bytes.extend([0, 0, u8::try_from(headers.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
    bytes.extend(headers);
    bytes
}

#[tokio::test]
async fn http_2_is_distinguished_from_http_1_however_its_first_bytes_are_cut() {
    let server = server().start();
    let bytes = health_request();
    for cut in [1, 3, 14, 16, 18, 23, 24, 30] {
        let mut raw = Raw::to(&server).await;
        let (first, rest) = bytes.split_at(cut);
        raw.send(first).await;
        assert!(
            raw.is_silent(Duration::from_millis(30)).await || cut >= 24,
            "cut at {cut}"
        );
        raw.send(rest).await;
        loop {
            let (kind, stream, payload) = raw.frame().await;
            assert_ne!(kind, 7, "cut at {cut}: it goes away");
            if (kind, stream) == (1, 1) {
                // 200, of the static table.
                assert_eq!(payload.first(), Some(&0x88), "cut at {cut}");
                break;
            }
        }
    }
}
