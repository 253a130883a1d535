//! The TCP stream of a connection, with a time limit for a client that does not read what the server writes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// The TCP stream of a connection. Clones share the same stream.
#[derive(Clone)]
pub(super) struct Wire(Arc<Inner>);

struct Inner {
    stream: TcpStream,
    /// How long the client may read nothing of what is written. Meanwhile it occupies memory and a connection.
    write_timeout: Duration,
    /// Runs while the client reads nothing.
    stalled: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl Wire {
    pub fn new(stream: TcpStream, write_timeout: Duration) -> Self {
        // Responses are small and complete, so delaying them to join packets gains nothing.
        let _ = stream.set_nodelay(true);
        Self(Arc::new(Inner {
            stream,
            write_timeout,
            stalled: Mutex::new(None),
        }))
    }

    /// The stream itself.
    pub fn stream(&self) -> &TcpStream {
        &self.0.stream
    }

    /// Reads and discards up to `most` bytes that the client still sends.
    pub async fn drain(&self, most: usize) {
        let mut buffer = vec![0; 16 << 10];
        let mut count = 0;
        while count < most && self.0.stream.readable().await.is_ok() {
            match self.0.stream.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => count += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Ready if the socket accepts bytes. Returns an error if it has accepted none for too long.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ready = self.0.stream.poll_write_ready(cx);
        let stalled = self.0.stalled.lock();
        let mut stalled = stalled.unwrap_or_else(PoisonError::into_inner);
        if ready.is_ready() {
            *stalled = None;
            return ready;
        }
        let timeout = self.0.write_timeout;
        let sleep = stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.stream.poll_read_ready(cx))?;
            match self.0.stream.try_read_buf(buffer) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Wire {
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
            ready!(self.poll_writable(cx))?;
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
        let shut = socket2::SockRef::from(&self.0.stream).shutdown(std::net::Shutdown::Write);
        Poll::Ready(shut)
    }
}
