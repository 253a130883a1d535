//! Time, handed in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abide_core::model::Timestamp;
use futures_util::future::BoxFuture;

use crate::Result;

/// Where the engine takes the time from.
pub trait Clock: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Waits until that moment has come, or some time less: look at the clock again, and wait again.
    fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()>;
}

/// The time of this computer, set right by an offset when a database server keeps another.
#[derive(Debug, Default)]
pub struct SystemClock {
    offset_us: std::sync::atomic::AtomicI64,
}

impl SystemClock {
    /// The longest sleep at a stretch: the computer's clock may be set meanwhile.
    const STRETCH: Duration = Duration::from_secs(30);

    /// How often another's clock is looked at to follow it once.
    const LOOKS: usize = 3;
    /// How often those who follow another's clock do so.
    pub const FOLLOWED_EVERY: Duration = Duration::from_secs(60);

    /// Follows another's clock, so that all who do agree. It is looked at a few times, and the quickest look counts: the
    /// others are off by as long as they were under way.
    pub async fn follow<F>(&self, look: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<Timestamp>>,
    {
        let mut looks = Vec::with_capacity(Self::LOOKS);
        for _ in 0..Self::LOOKS {
            let before = Self::here();
            looks.push((before, look().await?, Self::here()));
        }
        let quickest = looks
            .into_iter()
            .min_by_key(|(before, _, after)| after.since(*before));
        if let Some((before, theirs, after)) = quickest {
            let middle = before.as_micros() / 2 + after.as_micros() / 2;
            let offset = theirs.as_micros() - middle;
            self.offset_us
                .store(offset, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }

    /// The time of this computer, as it is.
    pub fn here() -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let offset = self.offset_us.load(std::sync::atomic::Ordering::Relaxed);
        Timestamp::from_micros(Self::here().as_micros() + offset)
    }

    fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()> {
        let left = moment.since(self.now());
        Box::pin(tokio::time::sleep(left.min(Self::STRETCH)))
    }
}
