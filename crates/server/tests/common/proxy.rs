//! A proxy that passes requests on and then does not pass on the answer, as proxies do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Fate of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// That status comes instead, with that body.
    Says(u16, &'static str),
    /// The connection is cut.
    Cut,
    /// Nothing comes for so long, and then the connection is cut.
    Silence(Duration),
}

/// A proxy before a server.
pub struct Proxy {
    pub url: String,
    /// Number of requests of the kind that were passed on.
    pub seen: Arc<AtomicUsize>,
}

impl Proxy {
    /// Does that to the answers of so many requests whose text has these words in it, after the server has given them.
    pub async fn before(server: &str, words: &'static str, fault: Fault, times: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (server, seen) = (server.to_owned(), Arc::new(AtomicUsize::new(0)));
        let counted = seen.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let one = pass(client, server.clone(), words, fault, times, counted.clone());
                tokio::spawn(one);
            }
        });
        Self { url, seen }
    }

    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

/// Passes on the requests of one connection.
async fn pass(
    mut client: TcpStream,
    server: String,
    words: &'static str,
    fault: Fault,
    times: usize,
    seen: Arc<AtomicUsize>,
) {
    while let Some(request) = message(&mut client).await {
        let Ok(mut upstream) = TcpStream::connect(&server).await else {
            return;
        };
        if upstream.write_all(&request).await.is_err() {
            return;
        }
        if request.starts_with(b"GET") {
            // It may be a stream, which goes on.
            let _ = copy_bidirectional(&mut client, &mut upstream).await;
            return;
        }
        // The server has done its work when it answers.
        let Some(answer) = message(&mut upstream).await else {
            return;
        };
        let wanted = String::from_utf8_lossy(&request).contains(words);
        let answer = if wanted && seen.fetch_add(1, Ordering::SeqCst) < times {
            match fault {
                Fault::Cut => return,
                Fault::Silence(time) => {
                    tokio::time::sleep(time).await;
                    return;
                }
                Fault::Says(status, body) => format!(
                    "HTTP/1.1 {status} x\r\ncontent-type: text/html\r\ncontent-length: {}\r\nretry-after: 0\r\n\r\n{body}",
                    body.len()
                )
                .into_bytes(),
            }
        } else {
            answer
        };
        if client.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// A whole request or answer, head and body.
async fn message(from: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut text, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let read = from.read(&mut part).await.ok()?;
        if read == 0 {
            return None;
        }
        text.extend_from_slice(&part[..read]);
        let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let length = String::from_utf8_lossy(&text[..head])
            .to_ascii_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
            .unwrap_or(0);
        if text.len() >= head + 4 + length {
            return Some(text);
        }
    }
}
