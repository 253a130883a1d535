//! Time: [`Timestamp`], a stored point in time, and short functions that return a `Duration`: `hours(1)`, `days(3)`.

pub use abide_core::model::Timestamp;

use std::time::Duration;

/// A duration of `n` milliseconds.
pub const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A duration of `n` seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A duration of `n` minutes.
pub const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(60))
}

/// A duration of `n` hours.
pub const fn hours(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(3_600))
}

/// A duration of `n` days of 24 hours each.
///
/// ```
/// assert_eq!(abide::time::days(3), abide::time::hours(72));
/// ```
pub const fn days(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(86_400))
}

/// Converts a duration to whole milliseconds, rounded up.
pub(crate) fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
