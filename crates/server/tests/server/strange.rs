//! Bytes that no client should send: always an answer, never a hang, never a panic.

use crate::common::{Server, server};
use crate::server::raw::Raw;

/// Sends bytes and reads what comes back, to the end.
async fn exchange(server: &Server, bytes: &[u8]) -> crate::server::raw::RawResponse {
    let mut raw = Raw::to(server).await;
    raw.send(bytes).await;
    raw.no_more().await;
    raw.rest().await
}

async fn lives(server: &mut Server) {
    assert_eq!(server.get("/healthz").await.0, 200);
    assert!(server.ended().is_none());
    let log = server.log();
    assert!(
        !log.contains("panicked") && !log.contains("\"panic\""),
        "{log}"
    );
}

#[tokio::test]
async fn strange_requests_are_answered() {
    let mut server = server()
        .set("header_timeout_ms", 2000)
        .set("request_timeout_ms", 2000)
        .start();
    let long = "x".repeat(100_000);
    let many: String = (0..300).map(|n| format!("x-{n}: y\r\n")).collect();
    let get =
        |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let post = |rest: &str| {
        format!(
            "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n{rest}"
        )
    };
    for (request, wanted) in [
        (get("/"), vec![404]),
        (get("/v1/instances/%ff"), vec![400]),
        (get("/v1/instances/%zz"), vec![400, 404]),
        (get("/v1/instances/%"), vec![400, 404]),
        (get("/v1/instances/%00"), vec![400, 404, 422]),
        (get("/v1/instances//history"), vec![400, 404, 422]),
        (get("/v1/instances/../../etc/passwd"), vec![404]),
        (get("/v1/instances/99999999999999999999999"), vec![404]),
        (get("/v1/instances?limit=-1"), vec![400, 422]),
        (get("/v1/instances?limit=1&limit=2"), vec![400, 422]),
        (get("/v1/instances?nonsense=1"), vec![400, 422]),
        (get("/v1/instances?cursor=%ff%fe"), vec![400, 422]),
        (get("/v1/updates/x"), vec![400, 404, 422]),
        (get(&format!("/{long}")), vec![404, 414, 431]),
        (format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"), vec![431]),
        (format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"), vec![431]),
        ("GET /healthz HTTP/1.1\r\n\r\n".to_owned(), vec![200, 400]),
        ("GET /healthz HTTP/1.0\r\n\r\n".to_owned(), vec![200]),
        ("GET /healthz HTTP/9.9\r\n\r\n".to_owned(), vec![400, 505]),
        ("GET /healthz\r\n\r\n".to_owned(), vec![400]),
        ("nonsense\r\n\r\n".to_owned(), vec![400]),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\r\n\r\n".to_owned(), vec![400]),
        ("GET  /healthz  HTTP/1.1\r\n\r\n".to_owned(), vec![400]),
        ("GET /healthz HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), vec![400]),
        ("GET /healthz HTTP/1.1\r\nx: a\u{0}b\r\n\r\n".to_owned(), vec![400]),
        ("GET http://elsewhere/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned(), vec![200]),
        ("OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned(), vec![404, 405]),
        ("CONNECT x:1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned(), vec![404, 405]),
        ("TRACE /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned(), vec![405]),
        ("DELETE /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned(), vec![405]),
        (post("content-length: 2\r\ncontent-length: 3\r\n\r\n{}"), vec![400]),
        (post("content-length: -1\r\n\r\n{}"), vec![400]),
        (post("content-length: 99999999999999999999\r\n\r\n{}"), vec![400]),
        (post("transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"), vec![400]),
        (post("transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), vec![400]),
        (post("transfer-encoding: gzip\r\n\r\n{}"), vec![400, 501]),
        (post("content-length: 2\r\n\r\n{}"), vec![422]),
        (post("content-length: 4\r\n\r\nnull"), vec![422]),
        (post("content-length: 1\r\n\r\n{"), vec![400]),
        (post("content-length: 3\r\n\r\n{}}"), vec![400, 422]),
        (post("content-length: 0\r\n\r\n"), vec![400, 422]),
        (post("\r\n"), vec![400, 422]),
        ("POST /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}".to_owned(), vec![415]),
        ("POST /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\n{}".to_owned(), vec![415]),
    ] {
        let response = exchange(&server, request.as_bytes()).await;
        let shown: String = request.chars().take(120).collect();
        assert!(response.status.is_some_and(|status| wanted.contains(&status)), "{shown:?} was answered {response:?}, not {wanted:?}");
    }
    // Deep and wrong JSON.
    let (opened, closed) = ("[".repeat(100_000), "]".repeat(100_000));
    for body in [
        opened.clone(),
        format!("{opened}{closed}"),
        format!("{{\"type\":\"t\",\"payload\":{opened}{closed}}}"),
    ] {
        let response = exchange(
            &server,
            post(&format!("content-length: {}\r\n\r\n{body}", body.len())).as_bytes(),
        )
        .await;
        assert!(
            response.status.is_some_and(|status| status < 500),
            "{response:?}"
        );
    }
    let response = exchange(
        &server,
        &[
            post("content-length: 4\r\n\r\n").as_bytes(),
            &[b'"', 0xff, 0xfe, b'"'],
        ]
        .concat(),
    )
    .await;
    assert!(matches!(response.status, Some(400 | 422)), "{response:?}");
    lives(&mut server).await;
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_with_what_there_is() {
    let server = server().start();
    let response = server.http.get(server.at("/v2/x")).send().await.unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["content-type"]
        ),
        (404, &"application/problem+json".parse().unwrap())
    );
    let response = server
        .http
        .delete(server.at("/v1/instances"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 405);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let allow = response.headers()["allow"].to_str().unwrap().to_owned();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
}

#[tokio::test]
async fn http_2_is_spoken_without_tls() {
    let server = server().start();
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let response = client.get(server.at("/healthz")).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (200, reqwest::Version::HTTP_2)
    );
    let large = client
        .post(server.at("/v1/events"))
        .header("content-type", "application/json")
        .body("x".repeat(17 << 20));
    assert_eq!(large.send().await.unwrap().status(), 413);
    // It begins well, and goes on badly.
    let mut raw = Raw::to(&server).await;
    raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
        .await;
    raw.rest().await;
    assert_eq!(
        client
            .get(server.at("/healthz"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
}

/// A small random number generator with a seed, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most as u64).unwrap()
    }
}

#[tokio::test]
async fn random_bytes_and_broken_requests_never_hang_it() {
    let mut server = server()
        .set("header_timeout_ms", 1000)
        .set("request_timeout_ms", 1000)
        .start();
    let seed: u64 = 0x5eed_0006;
    let mut random = Random(seed);
    let whole = [
        b"GET /v1/instances?limit=10 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_vec(),
        b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 28\r\n\r\n{\"type\":\"t\",\"payload\":[1,2]}".to_vec(),
        b"PUT /v1/machines/m/1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
    ];
    for round in 0..300 {
        let mut bytes = if random.below(4) == 0 {
            (0..1 + random.below(400))
                .map(|_| (random.next() & 0xff) as u8)
                .collect()
        } else {
            let mut bytes = whole[random.below(whole.len())].clone();
            for _ in 0..1 + random.below(4) {
                let position = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes[position] = (random.next() & 0xff) as u8,
                    1 => drop(bytes.remove(position)),
                    2 => bytes.insert(position, (random.next() & 0xff) as u8),
                    _ => bytes.truncate(position.max(1)),
                }
            }
            bytes
        };
        if random.below(3) == 0 {
            bytes.extend(b"\r\n\r\n");
        }
        let two = bytes.starts_with(b"PRI * HTTP/2");
        let response = exchange(&server, &bytes).await;
        // A head that has come to its end is answered.
        let begun = bytes
            .iter()
            .position(|byte| !b"\r\n".contains(byte))
            .unwrap_or(bytes.len());
        let whole = bytes[begun..].windows(4).any(|four| four == b"\r\n\r\n");
        assert!(
            two || !whole || response.status.is_some(),
            "seed {seed:x}, round {round}: {:?} was not answered: {response:?}",
            String::from_utf8_lossy(&bytes)
        );
        assert!(
            response.status.is_none_or(|status| status < 500),
            "seed {seed:x}, round {round}: {response:?}"
        );
    }
    lives(&mut server).await;
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let mut server = server().set("in_flight", 4).start();
    for _ in 0..50 {
        let mut raw = Raw::to(&server).await;
        raw.send("POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{").await;
        drop(raw);
    }
    let free = async || server.get("/v1/queues").await.0 == 200;
    server.until("the slots are given back", free).await;
    lives(&mut server).await;
}
