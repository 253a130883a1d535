//! Leases: how long they last, when they are renewed, and when they expire (rules 5.3, 5.4, 6.4).

use std::time::Duration;

use crate::model::{Lease, Timestamp};

/// The lease of an engine, unless it sets another.
pub const ENGINE: Duration = Duration::from_secs(10);

/// The shortest lease that an engine may set.
pub const ENGINE_MIN: Duration = Duration::from_millis(100);

/// The lease of a remote worker after its last request, and of a claim of such a worker, unless the server or the worker
/// sets another.
pub const REMOTE: Duration = Duration::from_secs(30);

/// The shortest lease of a claim of a remote worker.
pub const CLAIM_MIN: Duration = Duration::from_secs(1);

/// The longest lease of a claim of a remote worker.
pub const CLAIM_MAX: Duration = Duration::from_secs(24 * 3600);

/// Number of renewals within the length of a lease.
const RENEWALS: u32 = 3;

/// Returns the time between two renewals of a lease: one may fail and the next still comes in time.
pub fn renewal(lease: Duration) -> Duration {
    lease / RENEWALS
}

impl Lease {
    /// Creates a lease that begins now. `limit` is the time limit of the step.
    pub fn new(now: Timestamp, lease: Duration, limit: Option<Duration>) -> Self {
        let limit = limit.map(|limit| now + limit);
        Self {
            until: limit.map_or(now + lease, |limit| limit.min(now + lease)),
            limit,
        }
    }

    /// `true` if it has expired.
    pub fn is_over(self, now: Timestamp) -> bool {
        self.until <= now
    }

    /// `true` if it expired because the step took too long: the lease was renewed up to its limit. If it expired before
    /// the limit, the worker died, however late that is noticed.
    pub fn is_past_limit(self, now: Timestamp) -> bool {
        self.is_over(now) && self.limit.is_some_and(|limit| limit <= self.until)
    }

    /// Returns the lease after a heartbeat: longer, never shorter, and never past the limit.
    #[must_use]
    pub fn extended(self, now: Timestamp, lease: Duration) -> Self {
        let until = self.until.max(now + lease);
        Self {
            until: self.limit.map_or(until, |limit| limit.min(until)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lease_never_gets_shorter_and_never_passes_its_limit(
            lease in 0u64..100, limit in proptest::option::of(0u64..200), beats in proptest::collection::vec((0u64..50, 0u64..100), 0..9)
        ) {
            // rules 5.4 and 6.4
            let (mut now, seconds) = (Timestamp::from_micros(5), Duration::from_secs);
            let mut held = Lease::new(now, seconds(lease), limit.map(seconds));
            for (pause, lease) in beats {
                now = now + seconds(pause);
                let next = held.extended(now, seconds(lease));
                prop_assert!(next.until >= held.until && next.limit == held.limit);
                prop_assert!(next.limit.is_none_or(|limit| next.until <= limit));
                held = next;
            }
            let past = held.is_past_limit(held.until);
            prop_assert_eq!(past, held.limit == Some(held.until));
            prop_assert!(!held.is_over(held.until - Duration::from_micros(1)));
        }
    }
}
