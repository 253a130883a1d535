//! The trait `Clock`, and the clock of the system.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use abide_core::model::Timestamp;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::Result;

/// A source of time for the engine.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time.
    fn now(&self) -> Timestamp;

    /// Waits until that time, or shorter. Read the clock again afterwards, and wait again if necessary.
    fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()>;
}

/// A clock based on the computer's monotonic clock, which cannot be set.
///
/// If there is a database server or another server, it [follows](Self::follow) that server's time. Then the wall clock
/// of this computer has no influence (rule 6.9). Otherwise it begins with the wall clock, or with [a given
/// time](Self::beginning_with), and follows the wall clock slowly when that is set, by at most a twentieth of the
/// elapsed time. So no timer is early or late by more than that, and no lease expires because a clock was set.
#[derive(Debug)]
pub struct SystemClock {
    reading: Mutex<Reading>,
    /// Notified when the time has jumped, so that sleepers read the clock again.
    jumped: watch::Sender<()>,
}

/// The time that the clock showed at one moment of the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    time: Timestamp,
    /// `true` if it follows another clock.
    follows: bool,
    /// When the clock last checked if the computer has slept, and the uptime at that moment, including sleep.
    checked: Instant,
    uptime: Option<Duration>,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::beginning_with(Self::here())
    }
}

impl SystemClock {
    /// The maximum length of one sleep, because the clock may follow the wall clock meanwhile.
    const STRETCH: Duration = Duration::from_secs(10);
    /// The number of readings of another clock when it is followed for the first time.
    const READINGS: usize = 3;
    /// A larger difference is a step, not an inaccuracy.
    const STEP: Duration = Duration::from_secs(1);
    /// The maximum age of the reading from which times are computed.
    const KEPT: Duration = Duration::from_millis(100);
    /// The clock runs slower or faster by at most one part in this many to follow the wall clock.
    const STEERS: u32 = 20;
    /// A larger correction from a followed clock wakes the sleepers.
    const JUMP: Duration = Duration::from_millis(100);

    /// Creates a clock that shows this time now, and follows the wall clock from there.
    pub fn beginning_with(time: Timestamp) -> Self {
        let at = Instant::now();
        Self {
            reading: Mutex::new(Reading {
                at,
                time,
                follows: false,
                checked: at,
                uptime: uptime(),
            }),
            jumped: watch::Sender::new(()),
        }
    }

    /// Follows another clock, so that all processes that follow it agree. Call it repeatedly. The first call reads the
    /// other clock a few times and uses the quickest reading, because a reading is inaccurate by up to its duration.
    /// Each later call reads it once, and corrects no more than necessary: a slow reading says little, and changes
    /// little.
    pub async fn follow<F>(&self, read: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<Timestamp>>,
    {
        let count = if self.reading().follows {
            1
        } else {
            Self::READINGS
        };
        let mut readings = Vec::with_capacity(count);
        for _ in 0..count {
            let before = Instant::now();
            let theirs = read().await?;
            let after = Instant::now();
            readings.push((after.duration_since(before), theirs, after));
        }
        if let Some((took, theirs, after)) = readings.into_iter().min_by_key(|(took, ..)| *took) {
            self.heed(theirs, took, after);
        }
        Ok(())
    }

    /// Applies a reading of another clock, which took `took` and ended at `after`.
    fn heed(&self, theirs: Timestamp, took: Duration, after: Instant) {
        let mut reading = self.reading();
        // The other clock showed this time at some moment of the reading. At the end of the reading its time was at
        // least that, and at most `took` later.
        let (least, most) = (theirs, theirs + took);
        let shown = match reading.follows {
            true => reading.time + after.saturating_duration_since(reading.at),
            false => theirs + took / 2,
        };
        let time = shown.clamp(least, most);
        let by = time.since(shown).max(shown.since(time));
        (reading.at, reading.time, reading.follows) = (after, time, true);
        drop(reading);
        if by > Self::JUMP {
            tracing::warn!(
                ?by,
                "the clock that is followed was set; the time follows it"
            );
            self.jumped.send_replace(());
        }
    }

    /// Returns the time of this computer's wall clock.
    pub fn here() -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// Returns the uptime of this computer, including sleep; `None` if it is not available. Setting the clock does not
    /// change it, and it is the same for all processes.
    pub fn uptime() -> Option<Duration> {
        uptime()
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Advances the reading to now, by the monotonic clock and the wall clock.
    fn turn(&mut self, at: Instant, wall: Timestamp, uptime: impl Fn() -> Option<Duration>) {
        let passed = at.saturating_duration_since(self.at);
        let mut due = self.time + passed;
        let ahead = wall.since(due) > SystemClock::STEP;
        let since_check = at.saturating_duration_since(self.checked);
        if ahead && since_check > SystemClock::STEP {
            due = match (self.uptime, uptime()) {
                // The monotonic clock stops while the computer sleeps.
                (Some(before), Some(now)) => {
                    let slept = now.saturating_sub(before).saturating_sub(since_check);
                    due + Some(slept)
                        .filter(|slept| *slept > SystemClock::STEP)
                        .unwrap_or_default()
                }
                // It is unknown if the computer has slept; it may have.
                _ => wall,
            };
            (self.checked, self.uptime) = (at, uptime());
        }
        self.time = steered(due, passed, wall);
        self.at = at;
    }
}

/// Returns `due`, moved towards the wall clock by at most a fraction of the elapsed time.
fn steered(due: Timestamp, passed: Duration, wall: Timestamp) -> Timestamp {
    let most = passed / SystemClock::STEERS;
    match wall >= due {
        true => due + wall.since(due).min(most),
        false => due - due.since(wall).min(most),
    }
}

/// Returns the uptime of the computer, including sleep; `None` if it is not available.
fn uptime() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut reading = self.reading();
        let at = Instant::now();
        if reading.follows {
            return reading.time + at.saturating_duration_since(reading.at);
        }
        let mut turned = *reading;
        turned.turn(at, Self::here(), uptime);
        // Not on every call: each would lose a fraction of a microsecond.
        if at.saturating_duration_since(reading.at) > Self::KEPT || turned.checked > reading.checked
        {
            *reading = turned;
        }
        turned.time
    }

    fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()> {
        let left = moment.since(self.now()).min(Self::STRETCH);
        let mut jumped = self.jumped.subscribe();
        Box::pin(async move {
            let jump = async {
                if jumped.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            // Either result is fine.
            let _ = tokio::time::timeout(left, jump).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn reading(start: Instant) -> Reading {
        Reading {
            at: start,
            time: at(1_000),
            follows: false,
            checked: start,
            uptime: Some(500 * SECOND),
        }
    }

    #[test]
    fn a_wall_clock_that_is_set_is_come_after_slowly() {
        // rule 6.9
        let start = Instant::now();
        for step in [15_i64, -15] {
            let mut clock = reading(start);
            let mut last = clock.time;
            for second in 1..=300_u32 {
                let wall = at(1_000 + step + i64::from(second));
                let ran = || Some((500 + second) * SECOND);
                clock.turn(start + second * SECOND, wall, ran);
                let moved = clock.time.since(last);
                assert!((SECOND * 19 / 20..=SECOND * 21 / 20).contains(&moved));
                last = clock.time;
            }
            // A twentieth of 300 s is 15 s.
            assert_eq!(last, at(1_300 + step));
        }
    }

    #[test]
    fn a_computer_that_slept_has_the_time_at_once() {
        // rules 6.5 and 6.9
        let start = Instant::now();
        let mut clock = reading(start);
        let wall = at(1_000 + 3_600 + 2);
        clock.turn(start + 2 * SECOND, wall, || Some(4_102 * SECOND));
        assert_eq!(clock.time, wall);
        // Without an uptime, a step forward counts as sleep, and a step back is not followed at once.
        let mut clock = Reading {
            uptime: None,
            ..reading(start)
        };
        clock.turn(start + 2 * SECOND, wall, || None);
        assert_eq!(clock.time, wall);
        clock.turn(start + 3 * SECOND, at(0), || None);
        assert!(clock.time > wall);
    }

    #[tokio::test]
    async fn a_clock_that_follows_another_ignores_the_wall_clock() {
        // rule 6.9
        let clock = SystemClock::default();
        let far = || async { Ok(at(5)) };
        clock.follow(far).await.unwrap();
        let shown = clock.now();
        assert!(shown >= at(5) && shown < at(10), "{shown}");
        // The other clock was set meanwhile, so sleepers read the clock again.
        let sleep = clock.sleep_until(at(4_000));
        let on = || async { Ok(at(3_000)) };
        clock.follow(on).await.unwrap();
        tokio::time::timeout(SECOND, sleep).await.unwrap();
        let shown = clock.now();
        assert!(shown >= at(3_000) && shown < at(3_005), "{shown}");
    }

    #[test]
    fn a_slow_reading_changes_no_more_than_it_must() {
        let clock = SystemClock::default();
        let start = Instant::now();
        clock.heed(at(100), Duration::from_millis(2), start);
        // Ten seconds later: a reading that took four seconds and agrees.
        clock.heed(at(107), 4 * SECOND, start + 10 * SECOND);
        assert_eq!(clock.reading().time, at(110) + Duration::from_millis(1));
        // An impossible time is moved into the possible range.
        clock.heed(at(115), 4 * SECOND, start + 11 * SECOND);
        assert_eq!(clock.reading().time, at(115));
        clock.heed(at(50), SECOND, start + 12 * SECOND);
        assert_eq!(clock.reading().time, at(51));
    }
}
