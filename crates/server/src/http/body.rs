//! A request's body as it arrives: by a deadline, and read to its end even when nobody wants it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// The body did not arrive in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct Slow;

/// How much of a body that nobody wants is read, and for how long. A connection that is closed with bytes unread is reset,
/// and the answer may be lost to the client.
const UNWANTED_BYTES: u64 = 64 << 20;
const UNWANTED_TIME: Duration = Duration::from_secs(5);

/// A body with a deadline.
pub(crate) struct Timed {
    inner: Option<Body>,
    deadline: Pin<Box<Sleep>>,
    /// Whether the client waits to be told to send it.
    expects: bool,
    begun: bool,
}

impl Timed {
    /// That body, which must have arrived by then.
    pub fn body(inner: Body, until: Instant, expects: bool) -> Body {
        if inner.is_end_stream() {
            return inner;
        }
        let deadline = Box::pin(sleep_until(until));
        Body::new(Self {
            inner: Some(inner),
            deadline,
            expects,
            begun: false,
        })
    }
}

impl hyper::body::Body for Timed {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        this.begun = true;
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) {
            if !matches!(frame, Some(Ok(_))) {
                this.inner = None;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(this.deadline.as_mut().poll(cx));
        // What comes so slowly is not waited for again.
        this.inner = None;
        Poll::Ready(Some(Err(Slow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let Some(rest) = self.inner.take().filter(|rest| !rest.is_end_stream()) else {
            return;
        };
        // Who waits to be asked for a body is not asked for one that nobody wants.
        if (self.expects && !self.begun) || rest.size_hint().lower() > UNWANTED_BYTES {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(UNWANTED_TIME, discard(rest)));
        }
    }
}

async fn discard(mut rest: Body) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await
    {
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if bytes > UNWANTED_BYTES {
            return;
        }
    }
}
