//! `Backoff`, the delays between retries; `Pause`, for owners that do not wait for them; and all retry policies that abide itself uses.

use std::time::Duration;

use abide_core::rules::retry::Retry;
use tokio::time::Instant;

/// For an entry that runs alone and may itself be the cause of its failure: short delays at first, 16 attempts in
/// total. Together they take longer than the maximum wait for the locks of a paused process, so no healthy entry is
/// given up because of those.
const CONFLICT: Retry = Retry::exponential(Duration::from_millis(5))
    .cap(Duration::from_secs(2))
    .attempts(16);
/// For a database or a system call that is unavailable for everyone at the moment.
const AWAY: Retry = Retry::exponential(Duration::from_millis(20)).cap(Duration::from_secs(2));
/// For a lost connection or stream whose loss delays only notifications.
const RECONNECT: Retry = Retry::exponential(Duration::from_millis(100)).cap(Duration::from_secs(5));
/// For work that has used up its attempts but must be done eventually.
const STUCK: Retry = Retry::exponential(Duration::from_secs(1)).cap(Duration::from_secs(60));

/// Delays between attempts. They grow each time and have jitter, so that callers that failed together do not retry
/// together.
///
/// ```
/// use abide_kernel::Backoff;
///
/// let mut backoff = Backoff::away();
/// let first = backoff.failed().unwrap();
/// for _ in 0..20 {
///     backoff.failed();
/// }
/// assert!(backoff.failed().unwrap() > first);
/// backoff.reset();
/// assert_eq!(backoff.failures(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: Retry,
    failures: u32,
}

impl Backoff {
    /// Creates a back-off for a policy, before its first attempt.
    pub const fn new(policy: Retry) -> Self {
        Self {
            policy,
            failures: 0,
        }
    }

    /// For an entry that may itself be the cause of its failure: 16 attempts.
    pub const fn conflict() -> Self {
        Self::new(CONFLICT)
    }

    /// For a database that is unavailable: unlimited attempts.
    pub const fn away() -> Self {
        Self::new(AWAY)
    }

    /// For a lost connection: unlimited attempts.
    pub const fn reconnect() -> Self {
        Self::new(RECONNECT)
    }

    /// For work that seems to fail permanently: unlimited attempts, finally one per minute.
    pub const fn stuck() -> Self {
        Self::new(STUCK)
    }

    /// Counts a failed attempt. Returns the delay before the next one, or `None` if there are no attempts left.
    pub fn failed(&mut self) -> Option<Duration> {
        let delay = self.policy.delay(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Counts a failed attempt, and waits. Returns `false`, without waiting, if there are no attempts left.
    pub async fn pause(&mut self) -> bool {
        match self.failed() {
            Some(delay) => {
                tokio::time::sleep(delay).await;
                true
            }
            None => false,
        }
    }

    /// Returns the number of failed attempts since the last success.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Resets the count after a successful attempt.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// The pause after a failed attempt. Its owner does not wait, but checks it before the next attempt.
#[derive(Clone, Debug)]
pub struct Pause {
    backoff: Backoff,
    until: Option<Instant>,
}

impl Pause {
    /// Creates the pauses of a back-off, before its first attempt.
    pub const fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            until: None,
        }
    }

    /// Returns when the pause ends; `None` if it is over, or if the last attempt succeeded.
    pub fn until(&self) -> Option<Instant> {
        self.until.filter(|until| *until > Instant::now())
    }

    /// Counts a failed attempt, and begins the pause.
    pub fn failed(&mut self) {
        let delay = self.backoff.failed().unwrap_or_default();
        self.until = Some(Instant::now() + delay);
    }

    /// Resets the count after a successful attempt, and ends the pause.
    pub const fn reset(&mut self) {
        self.backoff.reset();
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(mut backoff: Backoff) -> Vec<Duration> {
        std::iter::from_fn(|| backoff.failed()).take(100).collect()
    }

    #[test]
    fn a_conflict_is_tried_a_bounded_number_of_times_and_outlasts_a_paused_process() {
        // rule 1.4
        let delays = delays(Backoff::conflict());
        assert_eq!(delays.len(), 15, "the first attempt counts");
        let total: Duration = delays.iter().sum();
        assert!(total >= Duration::from_secs(7), "{total:?}");
        assert!(total <= Duration::from_secs(15), "{total:?}");
    }

    #[test]
    fn what_has_no_end_grows_to_its_cap() {
        for (backoff, cap) in [
            (Backoff::away(), 2),
            (Backoff::reconnect(), 5),
            (Backoff::stuck(), 60),
        ] {
            let delays = delays(backoff);
            let cap = Duration::from_secs(cap);
            assert_eq!(delays.len(), 100);
            assert!(delays.iter().all(|delay| *delay <= cap));
            assert!(delays.last().is_some_and(|last| *last >= cap / 2));
        }
    }
}
