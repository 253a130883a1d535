//! The clock of a server for tests. It runs like the system clock, and can be advanced.

use std::time::Duration;

use abide::time::Timestamp;
use abide_kernel::{Clock, SystemClock};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// A clock that runs like the system clock, ahead of it by the total time that it was advanced.
#[derive(Debug)]
pub struct TestClock {
    computer: SystemClock,
    ahead: watch::Sender<Duration>,
}

impl Default for TestClock {
    fn default() -> Self {
        Self {
            computer: SystemClock::default(),
            ahead: watch::Sender::new(Duration::ZERO),
        }
    }
}

impl TestClock {
    /// Advances the clock, and wakes all sleepers. Each checks whether its time has come.
    pub fn advance(&self, by: Duration) {
        self.ahead
            .send_modify(|ahead| *ahead = ahead.saturating_add(by));
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.computer.now() + *self.ahead.borrow()
    }

    fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()> {
        let mut moved = self.ahead.subscribe();
        let ahead = *moved.borrow_and_update();
        let slept = self.computer.sleep_until(moment - ahead);
        Box::pin(async move {
            tokio::select! {
                () = slept => {}
                // The clock was advanced, or dropped with its server. In both cases the sleeper checks again.
                _ = moved.changed() => {}
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn advancing_the_clock_wakes_sleepers() {
        let clock = TestClock::default();
        let before = clock.now();
        let hour = Duration::from_secs(3_600);
        let mut sleep = clock.sleep_until(before + hour);
        assert!(futures_util::poll!(&mut sleep).is_pending());
        clock.advance(hour);
        sleep.await;
        assert!(clock.now() >= before + hour);
        clock.sleep_until(before + hour).await;
    }
}
