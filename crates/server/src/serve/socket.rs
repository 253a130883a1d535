//! The socket of a connection. The server keeps a handle on it, so that it can still answer after HTTP has given up.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use super::wire::Wire;

/// The socket of a connection. Clones share the same socket.
#[derive(Clone)]
pub(super) struct Socket(Arc<Inner>);

struct Inner {
    wire: Wire,
    /// The TLS session, if the connection is encrypted. It is shared, because the server answers after HTTP has given
    /// up.
    tls: Option<Mutex<TlsStream<Wire>>>,
    /// `true` if the client uses HTTP/2.
    two: AtomicBool,
    /// `true` while a request is being answered. Bytes that arrive then belong to its body.
    busy: AtomicBool,
    /// `true` if bytes of the next request have arrived.
    heard: AtomicBool,
    /// The time when the first byte of the head arrived; `None` if no byte of it has arrived.
    since: Mutex<Option<Instant>>,
    /// Notified when the first byte of a head arrives.
    begun: Notify,
}

/// A request that is being answered.
pub(super) struct Answering(Arc<Inner>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// The beginning of HTTP/2, up to where no HTTP/1 request has the same bytes.
const PREFACE: &[u8] = b"PRI * HTTP/2";
/// How long bytes from the client are still read before its connection is closed. A connection that is closed with
/// unread bytes is reset, and the client may lose the response.
const LINGER: Duration = Duration::from_millis(500);
/// Maximum number of bytes that are read then.
const LINGER_BYTES: usize = 1 << 20;

impl Socket {
    /// Makes a socket without TLS.
    pub fn plain(wire: Wire) -> Self {
        Self::new(wire, None)
    }

    /// Makes a socket with TLS.
    pub fn encrypted(wire: Wire, stream: TlsStream<Wire>) -> Self {
        Self::new(wire, Some(Mutex::new(stream)))
    }

    fn new(wire: Wire, tls: Option<Mutex<TlsStream<Wire>>>) -> Self {
        Self(Arc::new(Inner {
            wire,
            tls,
            two: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            // A connection that has sent nothing is idle. Clients open some ahead of their requests: closing those early
            // would lose the request that is sent in the same moment.
            since: Mutex::new(None),
            begun: Notify::new(),
        }))
    }

    /// Records that the head of a request has arrived. Bytes that arrive belong to its body, until the returned value
    /// is dropped.
    pub fn understood(&self) -> Answering {
        self.0.busy.store(true, Ordering::Relaxed);
        self.0.heard.store(false, Ordering::Relaxed);
        *self.0.since() = None;
        Answering(self.0.clone())
    }

    /// `true` if a part of a request has arrived, over HTTP/1.
    pub fn is_halfway(&self) -> bool {
        self.0.heard.load(Ordering::Relaxed) && !self.0.two.load(Ordering::Relaxed)
    }

    /// Waits until the head of a request has taken longer than `deadline` to arrive.
    pub async fn late(&self, deadline: Duration) {
        loop {
            let since = *self.0.since();
            match since {
                None => self.0.begun.notified().await,
                Some(since) if since.elapsed() >= deadline => return,
                Some(since) => tokio::time::sleep_until(since + deadline).await,
            }
        }
    }

    /// Sends an HTTP/1 response without having a request, and closes the connection.
    pub async fn refuse(&self, status: &str, kind: &str, detail: &str) {
        let body = format!(
            r#"{{"type":"/problems/{kind}","title":"{}","status":{},"detail":"{detail}"}}"#,
            kind.replace('_', " "),
            status.get(..3).unwrap_or("400"),
        );
        let retry = if status.starts_with("503") {
            "retry-after: 1\r\n"
        } else {
            ""
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n{retry}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut this = self.clone();
        let written = async {
            this.write_all(answer.as_bytes()).await?;
            this.flush().await
        };
        let _ = tokio::time::timeout(LINGER, written).await;
        self.linger().await;
    }

    /// Closes the write side, and reads for a short time what the client still sends.
    pub async fn linger(&self) {
        let mut this = self.clone();
        let drained = async {
            let _ = this.shutdown().await;
            self.0.wire.drain(LINGER_BYTES).await;
        };
        let _ = tokio::time::timeout(LINGER, drained).await;
    }

    /// Waits until the client has closed its side, and so may be gone. Never completes over HTTP/2, which reports that
    /// itself, nor if another request is already waiting.
    pub async fn gone(self) {
        let is_gone = !self.0.two.load(Ordering::Relaxed)
            && match &self.0.tls {
                None => {
                    let peeked = self.0.wire.stream().peek(&mut [0; 1]).await;
                    !matches!(peeked, Ok(1..))
                }
                Some(tls) => is_closed(self.0.wire.stream(), tls).await,
            };
        if !is_gone {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits until the client has closed its side (`true`) or has sent more (`false`). Data that was sent stays readable. A
/// client announces the close in a TLS record, so the data must be decrypted to know.
async fn is_closed(stream: &TcpStream, tls: &Mutex<TlsStream<Wire>>) -> bool {
    loop {
        {
            let mut tls = lock(tls);
            let (_, session) = tls.get_mut();
            match session.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return false,
                Ok(state) if state.peer_has_closed() => return true,
                Ok(_) => {}
                Err(_) => return true,
            }
            match session.read_tls(&mut ReadNow(stream)) {
                Ok(0) => return true,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return true,
            }
        }
        if stream.readable().await.is_err() {
            return true;
        }
    }
}

/// Reads the bytes that are available, without waiting.
struct ReadNow<'s>(&'s TcpStream);

impl io::Read for ReadNow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        lock(&self.since)
    }

    /// Records that bytes of a head have arrived. Does not start the deadline for HTTP/2, which has no such heads and
    /// its own limits.
    fn heard(&self) {
        let first = !self.heard.swap(true, Ordering::Relaxed);
        let mut since = self.since();
        if first && since.is_none() && !self.two.load(Ordering::Relaxed) {
            *since = Some(Instant::now());
            self.begun.notify_one();
        }
    }
}

impl Socket {
    /// Calls `io` with the stream to read from and write to: the TLS stream, or the TCP stream.
    fn with<R>(&self, io: impl FnOnce(Pin<&mut dyn Stream>) -> R) -> R {
        match &self.0.tls {
            None => io(Pin::new(&mut self.0.wire.clone())),
            Some(tls) => io(Pin::new(&mut *lock(tls))),
        }
    }
}

/// A stream of bytes in both directions.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.with(|io| io.poll_read(cx, buffer)))?;
        if buffer.filled().starts_with(PREFACE) {
            self.0.two.store(true, Ordering::Relaxed);
        }
        if buffer.filled().len() > before && !self.0.busy.load(Ordering::Relaxed) {
            self.0.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|io| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|io| io.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_shutdown(cx))
    }
}

/// Raises the limit of open files, and so of connections, of this process to what the system allows.
pub(super) fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // If this fails, the server continues with the current limit.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
