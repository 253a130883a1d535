//! The activity of a connection: the requests that are being answered on it, and whether the client reads the
//! responses.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Body as _, Frame, SizeHint};

/// The activity of a connection. Clones share the same state.
#[derive(Clone)]
pub(super) struct Activity(Arc<Mutex<Doing>>);

struct Doing {
    /// The requests that are being answered: one over HTTP/1.1, one per open stream over HTTP/2. Each has the time when
    /// a part of its response was handed over that the client has not taken yet. The next part is requested when the
    /// client has taken it.
    answering: Vec<(u64, Option<Instant>)>,
    next: u64,
    /// The time since when no request is being answered.
    idle: Instant,
}

/// Reason why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// No request arrived for too long.
    Idle,
    /// The client did not read a response for too long.
    Stalled,
}

impl Activity {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Doing {
            answering: Vec::new(),
            next: 0,
            idle: Instant::now(),
        })))
    }

    fn doing(&self) -> MutexGuard<'_, Doing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request is being answered, until the returned value is dropped.
    pub fn answering(&self) -> Answering {
        let mut doing = self.doing();
        let number = doing.next;
        doing.next += 1;
        doing.answering.push((number, None));
        Answering {
            activity: self.clone(),
            number,
        }
    }

    /// Waits until the connection was idle for `idle`, or the client did not take a part of a response for `stalled`.
    pub async fn over(&self, idle: Duration, stalled: Duration) -> Over {
        let step = (idle.min(stalled) / 4).clamp(Duration::from_millis(20), Duration::from_secs(5));
        loop {
            tokio::time::sleep(step).await;
            let doing = self.doing();
            if doing.answering.is_empty() && doing.idle.elapsed() >= idle {
                return Over::Idle;
            }
            let mut handed = doing.answering.iter().filter_map(|(_, handed)| *handed);
            if handed.any(|handed| handed.elapsed() >= stalled) {
                return Over::Stalled;
            }
        }
    }
}

/// A request that is being answered, until this value is dropped.
pub(super) struct Answering {
    activity: Activity,
    number: u64,
}

impl Answering {
    /// Wraps the body of the response, so that it records when the client takes its parts.
    pub fn with(self, answer: Body) -> Body {
        Body::new(Answer {
            inner: answer,
            left: Bytes::new(),
            answering: self,
        })
    }

    fn handed(&self, at: Option<Instant>) {
        let mut doing = self.activity.doing();
        let mut answering = doing.answering.iter_mut();
        if let Some((_, handed)) = answering.find(|(number, _)| *number == self.number) {
            *handed = at;
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut doing = self.activity.doing();
        doing.answering.retain(|(number, _)| *number != self.number);
        doing.idle = Instant::now();
    }
}

/// Maximum number of bytes of a response that are handed over at once. HTTP/2 buffers all that it gets, even if the
/// client reads nothing, and then requests no more. Because the response is handed over in parts, it is finished only
/// when the client has taken all parts but the last.
const PART_BYTES: usize = 64 << 10;

/// The body of a response.
struct Answer {
    inner: Body,
    /// Bytes that were not handed over yet.
    left: Bytes,
    answering: Answering,
}

impl Answer {
    fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.left.is_empty() {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            match frame.into_data() {
                Ok(data) => self.left = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let part = self.left.split_to(self.left.len().min(PART_BYTES));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = self.poll_part(cx);
        let handed = matches!(polled, Poll::Ready(Some(Ok(_)))).then(Instant::now);
        self.answering.handed(handed);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, inner) = (self.left.len() as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + left);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + left);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(40);
    const NEVER: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_connection_is_idle_when_nothing_is_being_answered_on_it() {
        let activity = Activity::new();
        let one = activity.answering();
        let body = activity.answering().with(Body::from("answer"));
        assert!(
            tokio::time::timeout(SOON * 4, activity.over(SOON, NEVER))
                .await
                .is_err()
        );
        drop((one, body));
        assert_eq!(activity.over(SOON, NEVER).await, Over::Idle);
    }

    #[tokio::test]
    async fn a_response_whose_next_part_is_not_requested_is_stalled() {
        let activity = Activity::new();
        let chunks = futures_util::stream::iter([Ok::<_, axum::Error>("a"), Ok("b")]);
        let mut body = activity.answering().with(Body::from_stream(chunks));
        // The response waits for its first part, however long that takes.
        assert!(
            tokio::time::timeout(SOON * 4, activity.over(NEVER, SOON))
                .await
                .is_err()
        );
        std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert_eq!(activity.over(NEVER, SOON).await, Over::Stalled);
    }

    #[tokio::test]
    async fn a_response_is_handed_over_in_parts_and_stalls_when_no_part_is_requested() {
        // HTTP/2 took a large response as a whole, and the server no longer noticed that the client read none of it.
        let activity = Activity::new();
        let mut body = activity.answering().with(Body::from(vec![7; 200_000]));
        let mut parts = Vec::new();
        while !body.is_end_stream() {
            let left: usize = 200_000 - parts.iter().sum::<usize>();
            assert_eq!(body.size_hint().exact(), Some(left as u64));
            let part = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            parts.push(part.unwrap().unwrap().into_data().unwrap().len());
            assert_eq!(activity.over(NEVER, SOON).await, Over::Stalled);
        }
        assert_eq!(parts, [65_536, 65_536, 65_536, 3_392]);
    }
}
