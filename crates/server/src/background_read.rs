//! Reads of the store that run in a task of their own, so that callers get an answer in time, however slow the store
//! is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The last value that was read, and when it was read.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// The value.
    pub what: T,
    /// The time when the read ended.
    pub at: Instant,
    /// The duration of the read.
    took: Duration,
}

/// A read of the store that is repeated on request. One read runs at a time, however many callers request it.
pub struct BackgroundRead<T> {
    requested: Arc<Notify>,
    seen: watch::Receiver<Option<Seen<T>>>,
    fresh: Duration,
    /// A value stays fresh for this many times the duration of its read, if that is longer than `fresh`.
    rest: u32,
}

/// Upper limit for the time that a value stays fresh because its read was slow.
const LONGEST_REST: Duration = Duration::from_secs(30);

impl<T: Clone + Send + Sync + 'static> BackgroundRead<T> {
    /// Spawns the task that calls `read` on request, until `stop` is cancelled. A value is fresh for the time `fresh`.
    pub fn begin(
        fresh: Duration,
        stop: CancellationToken,
        read: impl Fn() -> BoxFuture<'static, T> + Send + Sync + 'static,
    ) -> Self {
        let requested = Arc::new(Notify::new());
        let (sender, seen) = watch::channel(None);
        let waked = requested.clone();
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                waked.notified().await;
                let began = Instant::now();
                let what = read().await;
                let at = Instant::now();
                let took = at - began;
                sender.send_replace(Some(Seen { what, at, took }));
            }
        }));
        Self {
            requested,
            seen,
            fresh,
            rest: 0,
        }
    }

    /// Lets a value stay fresh for `times` as long as its read took, up to 30 seconds. This bounds the share of the
    /// store's time that such reads use.
    pub fn resting(mut self, times: u32) -> Self {
        self.rest = times;
        self
    }

    /// Returns the last value if it is fresh. Otherwise requests a read and waits for it, for `patience` at most. If
    /// the read does not end in time, returns the last value, however old it is.
    pub async fn newest(&self, patience: Duration) -> Option<Seen<T>> {
        let mut seen = self.seen.clone();
        let is_fresh = |seen: &Option<Seen<T>>| {
            seen.as_ref().is_some_and(|seen| {
                let rest = (seen.took * self.rest).min(LONGEST_REST);
                seen.at.elapsed() < self.fresh.max(rest)
            })
        };
        if !is_fresh(&seen.borrow_and_update()) {
            self.requested.notify_one();
            // On a timeout, or if the task has ended, the last value is returned.
            let _ = tokio::time::timeout(patience, seen.changed()).await;
        }
        seen.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_get_a_value_in_time_however_long_a_read_takes() {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let read = BackgroundRead::begin(
            Duration::from_secs(5),
            CancellationToken::new(),
            move || {
                let n = counted.fetch_add(1, Ordering::SeqCst);
                Box::pin(async move {
                    if n > 0 {
                        tokio::time::sleep(Duration::from_secs(3600)).await;
                    }
                    n
                })
            },
        );
        let patience = Duration::from_secs(1);
        let (one, two) = tokio::join!(read.newest(patience), read.newest(patience));
        assert_eq!((one.unwrap().what, two.unwrap().what), (0, 0));
        tokio::time::advance(Duration::from_secs(6)).await;
        let began = Instant::now();
        for _ in 0..3 {
            let old = read.newest(patience).await.unwrap();
            assert_eq!(old.what, 0);
            assert!(old.at.elapsed() >= Duration::from_secs(6));
        }
        assert!(began.elapsed() <= Duration::from_secs(4));
        assert_eq!(reads.load(Ordering::SeqCst), 2, "one read at a time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_read_is_repeated_less_often() {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let read = BackgroundRead::begin(
            Duration::from_secs(5),
            CancellationToken::new(),
            move || {
                counted.fetch_add(1, Ordering::SeqCst);
                Box::pin(tokio::time::sleep(Duration::from_secs(1)))
            },
        )
        .resting(20);
        let patience = Duration::from_secs(10);
        read.newest(patience).await;
        for (later, expected) in [(15, 1), (4, 1), (2, 2)] {
            tokio::time::advance(Duration::from_secs(later)).await;
            read.newest(patience).await;
            assert_eq!(reads.load(Ordering::SeqCst), expected, "after {later} s");
        }
    }
}
