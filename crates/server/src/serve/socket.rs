//! A connection's socket, of which the server keeps a hold: it can still answer when HTTP has given up.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Sleep;

/// A connection's socket. Clones are the same one.
#[derive(Clone)]
pub(super) struct Socket(Arc<Inner>);

struct Inner {
    stream: TcpStream,
    /// Whether HTTP/2 is spoken.
    two: AtomicBool,
    /// Whether a request is being answered: then what comes is its body.
    busy: AtomicBool,
    /// Whether anything of the next request has come.
    heard: AtomicBool,
    /// Since when the head of a request is waited for; none when nothing of it has come.
    since: Mutex<Option<Instant>>,
    /// Told when the first byte of a head has come.
    begun: Notify,
    /// How long the client may take nothing of what is written: that is memory and a connection.
    write_timeout: Duration,
    /// Runs while it takes nothing.
    stalled: Mutex<Option<Pin<Box<Sleep>>>>,
}

/// A request that is being answered.
pub(super) struct Answering(Arc<Inner>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// How HTTP/2 begins, as far as no HTTP/1 request does.
const PREFACE: &[u8] = b"PRI * HTTP/2";
/// How long what a client still sends is read before its connection is closed. A connection that is closed with bytes
/// unread is reset, and the answer may be lost to the client.
const LINGER: Duration = Duration::from_millis(500);
/// How much of it is read.
const LINGER_BYTES: usize = 1 << 20;

impl Socket {
    pub fn new(stream: TcpStream, write_timeout: Duration) -> Self {
        // Answers are small and whole: waiting for more of them gains nothing.
        let _ = stream.set_nodelay(true);
        Self(Arc::new(Inner {
            stream,
            two: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            // The first head is waited for from the beginning.
            since: Mutex::new(Some(Instant::now())),
            begun: Notify::new(),
            write_timeout,
            stalled: Mutex::new(None),
        }))
    }

    /// That the head of a request has come; what comes next is its body, until that is dropped.
    pub fn understood(&self) -> Answering {
        self.0.busy.store(true, Ordering::Relaxed);
        self.0.heard.store(false, Ordering::Relaxed);
        *self.0.since() = None;
        Answering(self.0.clone())
    }

    /// Whether bytes came that are no request yet.
    pub fn is_halfway(&self) -> bool {
        self.0.heard.load(Ordering::Relaxed) && !self.0.two.load(Ordering::Relaxed)
    }

    /// Ends when the head of a request took longer than that to come.
    pub async fn late(&self, deadline: Duration) {
        loop {
            let since = *self.0.since();
            match since {
                None => self.0.begun.notified().await,
                Some(since) if since.elapsed() >= deadline => return,
                Some(since) => tokio::time::sleep_until((since + deadline).into()).await,
            }
        }
    }

    /// Answers for HTTP/1, as well as can be without a request, and closes.
    pub async fn refuse(&self, status: &str, word: &str, detail: &str) {
        let body = format!(
            r#"{{"type":"/problems/{word}","title":"{}","status":{},"detail":"{detail}"}}"#,
            word.replace('_', " "),
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
        let written = async {
            let mut rest = answer.as_bytes();
            while !rest.is_empty() && self.0.stream.writable().await.is_ok() {
                match self.0.stream.try_write(rest) {
                    Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, written).await;
        self.linger().await;
    }

    /// Says that no more will be written, and reads for a moment what still comes.
    pub async fn linger(&self) {
        let _ = self.end();
        let mut buffer = vec![0; 16 << 10];
        let drained = async {
            let mut count = 0;
            while count < LINGER_BYTES && self.0.stream.readable().await.is_ok() {
                match self.0.stream.try_read(&mut buffer) {
                    Ok(0) => return,
                    Ok(read) => count += read,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, drained).await;
    }

    /// Waits until the client has nothing more to say, and may be gone: its side is closed. Over HTTP/2, which tells so
    /// itself, and when another request waits behind, that is never.
    pub async fn gone(self) {
        let mut one = [0; 1];
        if self.0.two.load(Ordering::Relaxed)
            || matches!(self.0.stream.peek(&mut one).await, Ok(1..))
        {
            std::future::pending::<()>().await;
        }
    }

    fn end(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.0.stream).shutdown(std::net::Shutdown::Write)
    }
}

impl Inner {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the socket takes bytes; an error when it has taken none for too long.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ready = self.stream.poll_write_ready(cx);
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.is_ready() {
            *stalled = None;
            return ready;
        }
        let sleep = stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.write_timeout)));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Notes that something of a head has come. HTTP/2 has no heads of that kind, and looks after itself.
    fn heard(&self) {
        let first = !self.heard.swap(true, Ordering::Relaxed);
        let mut since = self.since();
        if first && since.is_none() && !self.two.load(Ordering::Relaxed) {
            *since = Some(Instant::now());
            self.begun.notify_one();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.stream.poll_read_ready(cx))?;
            match self.0.stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    if count > 0 && !self.0.busy.load(Ordering::Relaxed) {
                        self.0.heard();
                    }
                    if buffer.filled().starts_with(PREFACE) {
                        self.0.two.store(true, Ordering::Relaxed);
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_writable(cx))?;
            match self.0.stream.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}

/// Lets this process have as many connections open as the system allows.
pub(super) fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // With what there is it goes on, too.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
