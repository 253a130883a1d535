//! Clients that do not read the responses to their requests: they block no other client, and are disconnected in the end.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{PATIENCE, Server, server};

/// A client that speaks HTTP/2 by hand, and lets the server send so much of each answer and no more.
struct Two {
    stream: TcpStream,
    next: u32,
}

impl Two {
    async fn to(server: &Server, window: u32) -> Self {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let mut two = Self { stream, next: 1 };
        two.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        // The setting 4 is the window of a stream.
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        two.frame(4, 0, 0, &settings).await.unwrap();
        two
    }

    async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    async fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.send(&[&head, payload].concat()).await
    }

    /// Sends a GET request.
    async fn get(&mut self, path: &str) -> std::io::Result<()> {
        // `:method: GET` and `:scheme: http` by their numbers, `:path` and `:authority` as they are.
        let mut head = vec![0x82, 0x86];
        for (name, value) in [(4, path), (1, "localhost")] {
            head.extend([name, u8::try_from(value.len()).unwrap()]);
            head.extend(value.as_bytes());
        }
        let stream = self.next;
        self.next += 2;
        // All of the head, and no body.
        self.frame(1, 0x5, stream, &head).await
    }
}

/// A server in which a page of instances is as large as a page may be.
async fn with_large_pages() -> Server {
    let server = server().set("write_timeout_ms", 1_000).start();
    for _ in 0..5 {
        let large = json!({"machine": "m", "state": "x".repeat(1_000_000)});
        assert_eq!(server.post("/v1/instances", &large).await.0, 201);
    }
    server
}

async fn is_served(server: &Server) {
    let began = Instant::now();
    assert_eq!(server.get("/v1/queues").await.0, 200);
    let (status, page) = server.get("/v1/instances?limit=1").await;
    let items = page["items"].as_array().map(Vec::len);
    assert_eq!((status, items), (200, Some(1)));
    let (status, reply) = server.post("/v1/events", &json!({"type": "t"})).await;
    assert_eq!(status, 200, "{reply}");
    assert!(began.elapsed() < PATIENCE / 3, "{:?}", began.elapsed());
}

/// A client that asks for so many of these, takes no more of each than a window, and goes on asking.
async fn is_let_go(server: &Server, window: u32, paths: &[&str]) {
    let mut two = Two::to(server, window).await;
    for _ in 0..20 {
        for path in paths {
            two.get(path).await.unwrap();
        }
    }
    is_served(server).await;
    let (mut reading, mut writing) = two.stream.into_split();
    let ended = tokio::spawn(async move {
        let mut bytes = [0; 16 << 10];
        // What comes is read, and nothing more is asked for with it.
        while reading.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    });
    let began = Instant::now();
    while !ended.is_finished() {
        assert!(began.elapsed() < PATIENCE, "the connection stays open");
        // A ping: the connection is neither silent nor dead. The server may have closed it just now.
        let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let _ = writing.write_all(&ping).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    is_served(server).await;
}

#[tokio::test]
async fn answers_that_a_client_of_http_2_does_not_take_end_its_connection() {
    // A client that let one byte of each answer through was given all of them: HTTP/2 took each page whole, so the server did
    // not see that it was never taken. Up to 256 of them stayed in memory for as long as the client kept its connection busy.
    let server = with_large_pages().await;
    for window in [0, 1, 65_535] {
        is_let_go(&server, window, &["/v1/instances?limit=100"]).await;
    }
}

#[tokio::test]
async fn streams_that_a_client_of_http_2_does_not_take_end_its_connection() {
    let server = with_large_pages().await;
    is_let_go(
        &server,
        0,
        &["/v1/stream", "/rpc/v1/notifications", "/v1/queues"],
    )
    .await;
}

#[tokio::test]
async fn a_silent_stream_is_not_taken_for_an_unread_answer() {
    let server = server().set("write_timeout_ms", 300).start();
    let client = reqwest::Client::builder().http2_prior_knowledge();
    let client = client.build().unwrap();
    for client in [&client, &server.http] {
        let response = client.get(server.at("/v1/stream")).send().await;
        let mut stream = response.unwrap();
        let silent = tokio::time::timeout(Duration::from_millis(1_500), async {
            while stream.chunk().await.unwrap().is_some() {}
        });
        assert!(silent.await.is_err(), "a stream was taken for stalled");
    }
}
