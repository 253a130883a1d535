//! The body of a request as it arrives: with a deadline, and read to its end even if no handler uses it.

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

/// How many bytes of a body that no handler uses are read, and for how long. A connection that is closed with unread
/// bytes is reset, and the client may lose the response.
const UNWANTED_BYTES: u64 = 64 << 20;
const UNWANTED_TIME: Duration = Duration::from_secs(5);

/// A body with a deadline.
pub(crate) struct Timed {
    inner: Option<Body>,
    until: Instant,
    /// The deadline as a timer, created when the body must be waited for. Most bodies are there at once.
    deadline: Option<Pin<Box<Sleep>>>,
    /// `true` if the client waits for `100 Continue` before it sends the body.
    expects: bool,
    begun: bool,
}

impl Timed {
    /// Wraps a body that must have arrived by `until`.
    pub fn body(inner: Body, until: Instant, expects: bool) -> Body {
        if inner.is_end_stream() {
            return inner;
        }
        Body::new(Self {
            inner: Some(inner),
            until,
            deadline: None,
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
        let until = this.until;
        let deadline = this
            .deadline
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        ready!(deadline.as_mut().poll(cx));
        // The rest of a late body is not read.
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
        // A client that waits for `100 Continue` is not asked for a body that no handler uses.
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
