//! TCP by hand: for requests that no client would send.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{PATIENCE, Server};

/// A connection.
pub struct Raw(TcpStream);

/// The bytes that came back, read as an HTTP response.
#[derive(Debug)]
pub struct RawResponse {
    /// The status; none when what came is not a response.
    pub status: Option<u16>,
    /// All of it.
    pub text: String,
}

impl Raw {
    pub async fn to(server: &Server) -> Self {
        Self(TcpStream::connect(server.address()).await.unwrap())
    }

    /// Sends bytes. The other side may have closed already.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref()).await;
    }

    /// Shuts down the sending side.
    pub async fn no_more(&mut self) {
        let _ = self.0.shutdown().await;
    }

    /// Reads until the other side closes.
    pub async fn rest(mut self) -> RawResponse {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await;
        assert!(
            read.is_ok(),
            "the connection stays open, having sent {:?}",
            String::from_utf8_lossy(&bytes)
        );
        parse(&bytes)
    }

    /// Reads one answer, by its length.
    pub async fn answer(&mut self) -> RawResponse {
        let mut bytes = Vec::new();
        let read = async {
            let mut byte = [0];
            while !bytes.ends_with(b"\r\n\r\n") {
                assert_eq!(
                    self.0.read(&mut byte).await.unwrap(),
                    1,
                    "closed after {:?}",
                    String::from_utf8_lossy(&bytes)
                );
                bytes.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&bytes).to_lowercase();
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            self.0.read_exact(&mut body).await.unwrap();
            bytes.extend(body);
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap();
        parse(&bytes)
    }

    /// Reads one frame of HTTP/2: its kind, its stream, and what is in it.
    pub async fn frame(&mut self) -> (u8, u32, Vec<u8>) {
        let read = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.unwrap();
            let [a, b, c, kind, _, stream @ ..] = head;
            let length = u32::from_be_bytes([0, a, b, c]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).await.unwrap();
            (kind, u32::from_be_bytes(stream), payload)
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap()
    }

    /// Returns true if nothing comes for a while.
    pub async fn is_silent(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.0.peek(&mut [0]))
            .await
            .is_err()
    }
}

fn parse(bytes: &[u8]) -> RawResponse {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let status = text
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| text.strip_prefix("HTTP/1.0 "));
    let status = status.and_then(|rest| rest.get(..3)?.parse().ok());
    RawResponse { status, text }
}
