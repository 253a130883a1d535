//! What a connection is doing: which requests are being answered on it, and whether their answers are taken.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Body as _, Frame, SizeHint};

/// What a connection is doing. Clones are of the same one.
#[derive(Clone)]
pub(super) struct Activity(Arc<Mutex<Doing>>);

struct Doing {
    /// The requests that are being answered, each with when a part of its answer was handed over that the client has not
    /// taken yet. The next part is asked for when it has.
    answering: HashMap<u64, Option<Instant>>,
    next: u64,
    /// Since when there have been none.
    idle: Instant,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing was asked for too long.
    Idle,
    /// An answer was not taken for too long.
    Stalled,
}

impl Activity {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Doing {
            answering: HashMap::new(),
            next: 0,
            idle: Instant::now(),
        })))
    }

    fn doing(&self) -> MutexGuard<'_, Doing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that is being answered from now on.
    pub fn answering(&self) -> Answering {
        let mut doing = self.doing();
        let number = doing.next;
        doing.next += 1;
        doing.answering.insert(number, None);
        Answering {
            activity: self.clone(),
            number,
        }
    }

    /// Ends when the connection was idle, or did not take an answer, for that long.
    pub async fn over(&self, idle: Duration, stalled: Duration) -> Over {
        let step = (idle.min(stalled) / 4).clamp(Duration::from_millis(20), Duration::from_secs(5));
        loop {
            tokio::time::sleep(step).await;
            let doing = self.doing();
            if doing.answering.is_empty() && doing.idle.elapsed() >= idle {
                return Over::Idle;
            }
            let mut handed = doing.answering.values().flatten();
            if handed.any(|handed| handed.elapsed() >= stalled) {
                return Over::Stalled;
            }
        }
    }
}

/// A request that is being answered, until that is dropped.
pub(super) struct Answering {
    activity: Activity,
    number: u64,
}

impl Answering {
    /// That answer, which tells how it is taken.
    pub fn with(self, answer: Body) -> Body {
        Body::new(Answer {
            inner: answer,
            left: Bytes::new(),
            answering: self,
        })
    }

    fn handed(&self, at: Option<Instant>) {
        if let Some(handed) = self.activity.doing().answering.get_mut(&self.number) {
            *handed = at;
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut doing = self.activity.doing();
        doing.answering.remove(&self.number);
        doing.idle = Instant::now();
    }
}

/// The most bytes of an answer that are handed over at once. HTTP/2 takes all that it is given, however little the client
/// does, and asks for no more: in parts, the answer lasts until the client has taken all but the last of them.
const PART_BYTES: usize = 64 << 10;

/// The body of an answer.
struct Answer {
    inner: Body,
    /// What was not handed over yet.
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
    async fn an_answer_of_which_no_more_is_asked_for_is_stalled() {
        let activity = Activity::new();
        let chunks = futures_util::stream::iter([Ok::<_, axum::Error>("a"), Ok("b")]);
        let mut body = activity.answering().with(Body::from_stream(chunks));
        // It waits for what it will have to say, however long that takes.
        assert!(
            tokio::time::timeout(SOON * 4, activity.over(NEVER, SOON))
                .await
                .is_err()
        );
        std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert_eq!(activity.over(NEVER, SOON).await, Over::Stalled);
    }

    #[tokio::test]
    async fn an_answer_is_handed_over_in_parts_and_stalls_when_none_is_asked_for() {
        // HTTP/2 took a large answer whole from here, and nobody knew any more that the client took nothing of it.
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
