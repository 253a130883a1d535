//! TLS in the server: both versions of HTTP, clients of all kinds, certificates that change, and clients that are slow.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::common::{PATIENCE, Server, abide, home, server};

/// A certificate for `localhost`, its key, who signed it, and another one (`renewed`), which signed itself.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../postgres/tests/tls")
        .join(name)
}

/// A server with the first certificate, in files that can be changed.
fn encrypted(settings: &[(&str, &str)]) -> Server {
    let home = home();
    put(home.path(), "server");
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let setup = server()
        .set("tls.cert", cert.display())
        .set("tls.key", key.display());
    let setup = settings
        .iter()
        .fold(setup, |setup, (key, value)| setup.set(key, value));
    let server = setup.home(home).start();
    assert!(
        server.url.starts_with("https://127.0.0.1:"),
        "{}",
        server.url
    );
    server
}

/// Puts a certificate and its key where the server looks for them.
fn put(home: &Path, name: &str) {
    std::fs::copy(file(&format!("{name}.key")), home.join("key.pem")).unwrap();
    std::fs::copy(file(&format!("{name}.pem")), home.join("cert.pem")).unwrap();
}

fn trusting(authority: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(file(authority)).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client that speaks HTTP/2 where the server can, or HTTP/1.1 alone.
fn client(authority: &str, two: bool) -> Https {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(trusting(authority))
        .https_only();
    let connector = match two {
        true => connector.enable_all_versions().build(),
        false => connector.enable_http1().build(),
    };
    Client::builder(TokioExecutor::new()).build(connector)
}

/// The address by the name that the certificate has.
fn at(server: &Server, path: &str) -> String {
    let (_, port) = server.url.rsplit_once(':').unwrap();
    format!("https://localhost:{port}{path}")
}

async fn send(
    client: &Https,
    server: &Server,
    path: &str,
    body: Option<Value>,
) -> (Version, u16, String) {
    let request = Request::builder().uri(at(server, path));
    let request = match body {
        Some(body) => request
            .method("POST")
            .header("content-type", "application/json")
            .body(Full::from(body.to_string())),
        None => request.body(Full::default()),
    };
    let sent = client.request(request.unwrap());
    let response = tokio::time::timeout(PATIENCE, sent).await.unwrap().unwrap();
    let (version, status) = (response.version(), response.status().as_u16());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (version, status, String::from_utf8(body.to_vec()).unwrap())
}

/// A connection, after the handshake.
async fn shake_hands(server: &Server, authority: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server.address()).await?;
    let connector = TlsConnector::from(Arc::new(trusting(authority)));
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, stream).await
}

/// Waits until the server shows the certificate of that authority to new connections.
async fn shows(server: &Server, authority: &str) {
    let shows = async || shake_hands(server, authority).await.is_ok();
    server.until(authority, shows).await;
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_over_tls() {
    let server = encrypted(&[]);
    for (two, expected) in [(true, Version::HTTP_2), (false, Version::HTTP_11)] {
        let client = client("ca.pem", two);
        let (version, status, _) = send(&client, &server, "/healthz", None).await;
        assert_eq!((version, status), (expected, 200));
        let start = json!({"machine": "m", "version": 1, "state": "x".repeat(300_000)});
        let (_, status, body) = send(&client, &server, "/v1/instances", Some(start)).await;
        assert_eq!(status, 201, "{body}");
        let (_, status, body) = send(&client, &server, "/v1/instances", None).await;
        assert_eq!(status, 200);
        assert!(body.len() > 300_000, "an answer of many records");
    }
}

#[tokio::test]
async fn the_command_line_speaks_to_a_server_over_tls() {
    let server = encrypted(&[]);
    let store = at(&server, "");
    let list = |ca: Option<&str>| {
        let mut command = abide(&server.home());
        command.args(["list", "--store", &store]);
        // The system's authorities do not matter here.
        command.env("SSL_CERT_FILE", file("renewed.pem"));
        if let Some(ca) = ca {
            command.env("ABIDE_TLS_CA", file(ca));
        }
        command.output().unwrap()
    };
    let listed = list(Some("ca.pem"));
    assert!(listed.status.success(), "{listed:?}");
    for stranger in [None, Some("renewed.pem")] {
        let refused = list(stranger);
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("certificate"), "{text}");
    }
}

#[tokio::test]
async fn a_client_that_speaks_without_tls_learns_so() {
    let server = encrypted(&[]);
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("https://"), "{answer}");
}

#[tokio::test]
async fn slow_handshakes_block_no_other_client_and_are_disconnected() {
    // As slow heads: a handshake has the time of a head.
    let server = encrypted(&[("header_timeout_ms", "600"), ("connections", "50")]);
    let mut slow = Vec::new();
    for n in 0..40 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        if n % 2 == 0 {
            // The beginning of a handshake: a record of 512 bytes that never comes.
            stream.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
        }
        slow.push(stream);
    }
    let client = client("ca.pem", true);
    assert_eq!(send(&client, &server, "/healthz", None).await.1, 200);
    for mut stream in slow {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "a slow handshake is let go");
    }
    // One that has shaken hands and sends half a head is answered, as without TLS.
    let mut stream = shake_hands(&server, "ca.pem").await.unwrap();
    stream.write_all(b"GET /healthz HT").await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        read.is_ok() && answer.starts_with("HTTP/1.1 408"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_client_that_goes_away_during_its_poll_takes_nothing_with_it() {
    // A client that closes says so in a record: looking at the bytes alone, it seemed to have sent another request.
    let server = encrypted(&[]);
    let client = client("ca.pem", true);
    let lanes = json!([{"name": "m", "version": 1}]);
    let poll = json!({"worker": "gone", "queue": "default", "machines": lanes, "wait_ms": 60_000});
    let poll = poll.to_string();
    let mut stream = shake_hands(&server, "ca.pem").await.unwrap();
    let head = format!(
        "POST /v1/workers/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{poll}",
        poll.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    polls(&client, &server, "1").await;
    stream.shutdown().await.unwrap();
    polls(&client, &server, "0").await;
    let start = json!({"machine": "m", "version": 1, "state": 0});
    assert_eq!(
        send(&client, &server, "/v1/instances", Some(start)).await.1,
        201
    );
    let claim = json!({"worker": "here", "queue": "default", "machines": lanes, "wait_ms": 20_000});
    let (_, status, body) = send(&client, &server, "/v1/workers/claim", Some(claim)).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &body["claims"][0]["attempt"]),
        (200, &json!(0)),
        "{body}"
    );
}

/// Waits until that many long polls are open.
async fn polls(client: &Https, server: &Server, count: &str) {
    let line = format!("abide_http_long_polls {count}\n");
    let has = async || {
        send(client, server, "/metrics", None)
            .await
            .2
            .contains(&line)
    };
    server.until(&line, has).await;
}

#[tokio::test]
async fn a_certificate_that_changes_is_read_again_and_a_bad_one_is_not_taken() {
    let server = encrypted(&[]);
    let before = client("ca.pem", true);
    assert_eq!(send(&before, &server, "/healthz", None).await.1, 200);
    // Half of a change: the certificate is not that of the key.
    std::fs::copy(file("renewed.pem"), server.home().join("cert.pem")).unwrap();
    server.signal("HUP");
    server.logs("the old one stays in force", 1).await;
    shows(&server, "ca.pem").await;
    // The other half.
    put(&server.home(), "renewed");
    server.signal("HUP");
    shows(&server, "renewed.pem").await;
    assert!(shake_hands(&server, "ca.pem").await.is_err());
    // Open connections stay open.
    assert_eq!(send(&before, &server, "/healthz", None).await.1, 200);
    std::fs::remove_file(server.home().join("key.pem")).unwrap();
    server.signal("HUP");
    server.logs("cannot be read", 1).await;
    shows(&server, "renewed.pem").await;
    // Without a signal, too.
    put(&server.home(), "server");
    shows(&server, "ca.pem").await;
}

#[test]
fn a_server_does_not_start_with_a_certificate_that_it_cannot_use() {
    let home = home();
    let serve = |cert: &Path, key: &Path| {
        let mut command = abide(home.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command.arg(format!("--set=tls.cert={}", cert.display()));
        command.arg(format!("--set=tls.key={}", key.display()));
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    let (cert, key) = (file("server.pem"), file("server.key"));
    let text = serve(&cert, &file("renewed.key"));
    assert!(text.contains("server.pem"), "{text}");
    let text = serve(&key, &key);
    assert!(text.contains("no certificate"), "{text}");
    let text = serve(&cert, &cert);
    assert!(text.contains("no key"), "{text}");
    let text = serve(&cert, Path::new("/absent.pem"));
    assert!(text.contains("/absent.pem"), "{text}");
}
