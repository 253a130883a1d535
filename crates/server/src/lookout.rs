//! Looks at the store in a task of its own, so that who asks is answered in time whatever the store does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What was seen last, and when.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// What was seen.
    pub what: T,
    /// When.
    pub at: Instant,
}

/// A look at the store that is repeated when somebody asks: one at a time, however many ask.
pub struct Lookout<T> {
    asked: Arc<Notify>,
    seen: watch::Receiver<Option<Seen<T>>>,
    fresh: Duration,
}

impl<T: Clone + Send + Sync + 'static> Lookout<T> {
    /// Begins to look when it is asked, until it is stopped. What was seen is good enough for that long.
    pub fn begin(
        fresh: Duration,
        stop: CancellationToken,
        look: impl Fn() -> BoxFuture<'static, T> + Send + Sync + 'static,
    ) -> Self {
        let asked = Arc::new(Notify::new());
        let (sender, seen) = watch::channel(None);
        let waked = asked.clone();
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                waked.notified().await;
                let what = look().await;
                let at = Instant::now();
                sender.send_replace(Some(Seen { what, at }));
            }
        }));
        Self { asked, seen, fresh }
    }

    /// What was seen lately; when that is not fresh any more it is looked again, and waited for that as long as the patience
    /// lasts. Then the last that was seen has to do, however old it is.
    pub async fn newest(&self, patience: Duration) -> Option<Seen<T>> {
        let mut seen = self.seen.clone();
        let is_fresh = |seen: &Option<Seen<T>>| {
            seen.as_ref()
                .is_some_and(|seen| seen.at.elapsed() < self.fresh)
        };
        if !is_fresh(&seen.borrow_and_update()) {
            self.asked.notify_one();
            // That nothing came in time, or ever will, is told by what was seen.
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
    async fn who_asks_is_answered_in_time_however_long_a_look_takes() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = looks.clone();
        let lookout = Lookout::begin(
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
        let (one, two) = tokio::join!(lookout.newest(patience), lookout.newest(patience));
        assert_eq!((one.unwrap().what, two.unwrap().what), (0, 0));
        tokio::time::advance(Duration::from_secs(6)).await;
        let began = Instant::now();
        for _ in 0..3 {
            let old = lookout.newest(patience).await.unwrap();
            assert_eq!(old.what, 0);
            assert!(old.at.elapsed() >= Duration::from_secs(6));
        }
        assert!(began.elapsed() <= Duration::from_secs(4));
        assert_eq!(looks.load(Ordering::SeqCst), 2, "one look at a time");
    }
}
