//! A clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use abide_core::model::Timestamp;
use futures_util::future::BoxFuture;

use crate::Clock;

/// A clock for tests that stands still until a test moves it. All clones are the same clock.
///
/// ```
/// use abide_kernel::model::Timestamp;
/// use abide_kernel::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::at(Timestamp::from_micros(0));
/// clock.advance(Duration::from_secs(90));
/// assert_eq!(clock.now().to_string(), "1970-01-01T00:01:30Z");
/// assert_eq!(clock.next_sleeper(), None);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Dial>>);

#[derive(Debug)]
struct Dial {
    now: Timestamp,
    /// The sleepers, by the time at which they wake.
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    last_sleeper: u64,
}

impl ManualClock {
    /// Creates a clock that stands at this time.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Dial {
            now,
            sleepers: BTreeMap::new(),
            last_sleeper: 0,
        })))
    }

    /// Moves the clock forward, and wakes the sleepers whose time has come.
    pub fn advance(&self, by: Duration) {
        let dial = self.dial();
        let now = dial.now + by;
        turn(dial, now);
    }

    /// Sets the clock to this time, which may be earlier, and wakes the sleepers whose time has come.
    pub fn set(&self, now: Timestamp) {
        turn(self.dial(), now);
    }

    /// Returns the earliest time for which a task sleeps. A sleep counts from its first poll until it is dropped or the
    /// clock has reached its time.
    pub fn next_sleeper(&self) -> Option<Timestamp> {
        self.dial()
            .sleepers
            .keys()
            .next()
            .map(|(moment, _)| *moment)
    }

    fn dial(&self) -> MutexGuard<'_, Dial> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the time, releases the lock, and then wakes the sleepers whose time has come.
fn turn(mut dial: MutexGuard<'_, Dial>, now: Timestamp) {
    dial.now = now;
    let still = dial.sleepers.split_off(&(now, u64::MAX));
    let woken = std::mem::replace(&mut dial.sleepers, still);
    drop(dial);
    woken.into_values().for_each(Waker::wake);
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.dial().now
    }

    fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(Sleep {
            clock: self.clone(),
            moment,
            number: None,
        })
    }
}

/// A sleep on a [`ManualClock`].
struct Sleep {
    clock: ManualClock,
    moment: Timestamp,
    /// Its number among the sleepers, after the first poll.
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut dial = clock.dial();
        if dial.now >= self.moment {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            dial.last_sleeper += 1;
            dial.last_sleeper
        });
        dial.sleepers
            .insert((self.moment, number), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.clock.dial().sleepers.remove(&(self.moment, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleeper_wakes_when_its_moment_has_come_and_not_before() {
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let (early, late) = (Timestamp::from_micros(10), Timestamp::from_micros(20));
        let mut sleeps = [late, early].map(|moment| clock.sleep_until(moment));
        let [late_sleep, early_sleep] = &mut sleeps;
        assert!(futures_util::poll!(&mut *late_sleep).is_pending());
        assert!(futures_util::poll!(&mut *early_sleep).is_pending());
        assert_eq!(clock.next_sleeper(), Some(early));
        clock.advance(Duration::from_micros(10));
        assert!(futures_util::poll!(&mut *early_sleep).is_ready());
        assert!(futures_util::poll!(&mut *late_sleep).is_pending());
        assert_eq!(clock.next_sleeper(), Some(late));
        drop(sleeps);
        assert_eq!(clock.next_sleeper(), None);
    }

    #[tokio::test]
    async fn moving_the_clock_wakes_a_task() {
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let sleeper = tokio::spawn(clock.sleep_until(Timestamp::from_micros(5)));
        while clock.next_sleeper().is_none() {
            tokio::task::yield_now().await;
        }
        clock.set(Timestamp::from_micros(5));
        sleeper.await.unwrap();
    }
}
