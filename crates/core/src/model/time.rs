//! Timestamps in UTC with microseconds, which both databases can store.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A timestamp in UTC, in microseconds.
///
/// Written as RFC 3339. Arithmetic saturates at the ends of the range, so no input can make it wrap around.
///
/// ```
/// use abide_core::model::Timestamp;
/// use std::time::Duration;
///
/// let start = Timestamp::from_micros(0);
/// assert_eq!((start + Duration::from_secs(90)).to_string(), "1970-01-01T00:01:30Z");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The latest timestamp that can be written as RFC 3339 and stored by both databases (the year 9999).
    pub const MAX: Self = Self(253_402_207_200_000_000);
    /// The earliest timestamp that is used.
    pub const MIN: Self = Self(-Self::MAX.0);

    /// Creates the timestamp that many microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(micros: i64) -> Self {
        if micros > Self::MAX.0 {
            Self::MAX
        } else if micros < Self::MIN.0 {
            Self::MIN
        } else {
            Self(micros)
        }
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is not before this.
    pub fn since(self, earlier: Self) -> Duration {
        u64::try_from(self.0.saturating_sub(earlier.0))
            .map_or(Duration::ZERO, Duration::from_micros)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        Self::from_micros(self.0.saturating_add(micros))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, by: Duration) -> Self {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        Self::from_micros(self.0.saturating_sub(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => moment.fmt(f),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        let moment: jiff::Timestamp = text.parse().map_err(|_| {
            serde::de::Error::custom(format_args!(
                "{text:?} is not a time as RFC 3339 writes it, like 2026-11-15T08:00:00Z"
            ))
        })?;
        Ok(Self::from_micros(moment.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_survives_json_to_the_microsecond() {
        let moment = Timestamp::from_micros(1_700_000_000_123_456);
        let text = serde_json::to_string(&moment).unwrap();
        assert_eq!(text, "\"2023-11-14T22:13:20.123456Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), moment);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::MIN - Duration::MAX, Timestamp::MIN);
        assert_eq!(Timestamp::MIN.since(Timestamp::MAX), Duration::ZERO);
        assert!(Timestamp::MAX.to_string().starts_with("9999-12-30"));
    }

    #[test]
    fn what_is_not_a_time_is_refused_with_an_example() {
        let error = serde_json::from_str::<Timestamp>("\"tomorrow\"")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("RFC 3339") && error.contains("tomorrow"),
            "{error}"
        );
    }
}
