//! Durations that read as they are spoken: `hours(1)`, `days(3)`.

use std::time::Duration;

/// That many milliseconds.
pub const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// That many seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// That many minutes.
pub const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(60))
}

/// That many hours.
pub const fn hours(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(3_600))
}

/// That many days of 24 hours.
///
/// ```
/// assert_eq!(abide::days(3), abide::hours(72));
/// ```
pub const fn days(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(86_400))
}

/// A duration in whole milliseconds, never less than it was.
pub(crate) fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
