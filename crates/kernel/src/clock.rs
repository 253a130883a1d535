//! Time, handed in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abide_core::model::Timestamp;
use futures_util::future::BoxFuture;

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

    /// Follows the clock of a server that said it was `theirs` while it was between `before` and `after` here (as
    /// [`here`](Self::here) tells).
    pub fn follow(&self, before: Timestamp, theirs: Timestamp, after: Timestamp) {
        let middle = before.as_micros() / 2 + after.as_micros() / 2;
        self.offset_us.store(
            theirs.as_micros() - middle,
            std::sync::atomic::Ordering::Relaxed,
        );
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
