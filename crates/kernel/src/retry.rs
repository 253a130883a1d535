//! How long to wait before something that failed is tried again: one type, and every policy that abide itself follows.

use std::time::Duration;

use abide_core::rules::retry::Retry;

/// For an entry that goes alone and fails by what may be its own fault: soon at first, 16 attempts in all. Together they
/// take longer than the locks of a process that was paused are waited for, so that no healthy entry is given up for them.
const CONFLICT: Retry = Retry::exponential(Duration::from_millis(5))
    .cap(Duration::from_secs(2))
    .attempts(16);
/// For a database, or a system call, that cannot serve anybody just now.
const AWAY: Retry = Retry::exponential(Duration::from_millis(20)).cap(Duration::from_secs(2));
/// For a connection or a stream that was lost and whose loss delays nothing but notifications.
const RECONNECT: Retry = Retry::exponential(Duration::from_millis(100)).cap(Duration::from_secs(5));
/// For what failed as often as it may, and has to be done some day all the same.
const STUCK: Retry = Retry::exponential(Duration::from_secs(1)).cap(Duration::from_secs(60));

/// Delays between attempts, longer each time and spread by jitter, so that those who failed together do not come back
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
    /// Follows a policy, from its first attempt on.
    pub const fn new(policy: Retry) -> Self {
        Self {
            policy,
            failures: 0,
        }
    }

    /// For what fails by what may be its own fault: 16 attempts.
    pub const fn conflict() -> Self {
        Self::new(CONFLICT)
    }

    /// For a database that is away: without an end.
    pub const fn away() -> Self {
        Self::new(AWAY)
    }

    /// For a lost connection: without an end.
    pub const fn reconnect() -> Self {
        Self::new(RECONNECT)
    }

    /// For what has failed for good, as far as anybody can tell: once a minute in the end, without an end.
    pub const fn stuck() -> Self {
        Self::new(STUCK)
    }

    /// Counts a failed attempt; how long to wait before the next, or `None` when the attempts are spent.
    pub fn failed(&mut self) -> Option<Duration> {
        let delay = self.policy.delay(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Counts a failed attempt, and waits; `false` without a wait when the attempts are spent.
    pub async fn pause(&mut self) -> bool {
        match self.failed() {
            Some(delay) => {
                tokio::time::sleep(delay).await;
                true
            }
            None => false,
        }
    }

    /// How many attempts have failed since the last that did not.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Begins anew: an attempt has succeeded.
    pub const fn reset(&mut self) {
        self.failures = 0;
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
