//! Time, handed in.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use abide_core::model::Timestamp;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::Result;

/// Where the engine takes the time from.
pub trait Clock: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Waits until that moment has come, or some time less: look at the clock again, and wait again.
    fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()>;
}

/// A clock that runs by the computer's steady clock, which nobody can set.
///
/// Where there is a database server, or another server, it [follows](Self::follow) that one's time: then what the wall clock
/// of this computer is set to means nothing (rule 6.9). Where there is none, it begins with the wall clock and comes
/// after it slowly when that is set, a twentieth of the time that passes: no timer is more than that early or late, and
/// no lease runs out because a clock was set.
#[derive(Debug)]
pub struct SystemClock {
    reading: Mutex<Reading>,
    /// Told when the time has jumped: who sleeps looks again.
    jumped: watch::Sender<()>,
}

/// What the clock showed at one moment of the steady clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    time: Timestamp,
    /// Whether it follows another's.
    follows: bool,
    /// When it was last looked whether the computer has slept, and how long it had run by then, sleep included.
    looked: Instant,
    uptime: Option<Duration>,
}

impl Default for SystemClock {
    fn default() -> Self {
        let at = Instant::now();
        Self {
            reading: Mutex::new(Reading {
                at,
                time: Self::here(),
                follows: false,
                looked: at,
                uptime: uptime(),
            }),
            jumped: watch::Sender::new(()),
        }
    }
}

impl SystemClock {
    /// The longest sleep at a stretch: the time may come after the wall clock meanwhile.
    const STRETCH: Duration = Duration::from_secs(10);
    /// How often another's clock is looked at when it is followed for the first time.
    const LOOKS: usize = 3;
    /// From here on a difference is a step, and no inaccuracy.
    const STEP: Duration = Duration::from_secs(1);
    /// How long a reading is reckoned from.
    const KEPT: Duration = Duration::from_millis(100);
    /// How much slower or faster than the time itself it runs, at most, to come after the wall clock.
    const STEERS: u32 = 20;
    /// From here on sleepers are woken when another's clock has turned out to be set.
    const JUMP: Duration = Duration::from_millis(100);

    /// Follows another's clock, so that all who do agree; call it again and again. The first time it is looked at a few
    /// times, and the quickest look counts: the others are off by as long as they were under way. After that, one look
    /// corrects no more than it must: a slow one tells little, and changes little.
    pub async fn follow<F>(&self, look: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<Timestamp>>,
    {
        let count = if self.reading().follows {
            1
        } else {
            Self::LOOKS
        };
        let mut looks = Vec::with_capacity(count);
        for _ in 0..count {
            let before = Instant::now();
            let theirs = look().await?;
            let after = Instant::now();
            looks.push((after.duration_since(before), theirs, after));
        }
        if let Some((took, theirs, after)) = looks.into_iter().min_by_key(|(took, ..)| *took) {
            self.heed(theirs, took, after);
        }
        Ok(())
    }

    /// Sets it by what another said it was, in a look that took so long and ended then.
    fn heed(&self, theirs: Timestamp, took: Duration, after: Instant) {
        let mut reading = self.reading();
        // It was that some time during the look: when it ended, it was that at least, and at most so much later.
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

    /// The time that the wall clock of this computer shows.
    pub fn here() -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// The time now, by the steady clock and the wall clock as they are.
    fn turn(&mut self, at: Instant, wall: Timestamp, uptime: impl Fn() -> Option<Duration>) {
        let passed = at.saturating_duration_since(self.at);
        let mut due = self.time + passed;
        let ahead = wall.since(due) > SystemClock::STEP;
        let since_look = at.saturating_duration_since(self.looked);
        if ahead && since_look > SystemClock::STEP {
            due = match (self.uptime, uptime()) {
                // The steady clock stands still while the computer sleeps.
                (Some(before), Some(now)) => {
                    let slept = now.saturating_sub(before).saturating_sub(since_look);
                    due + Some(slept)
                        .filter(|slept| *slept > SystemClock::STEP)
                        .unwrap_or_default()
                }
                // It cannot be told whether it has slept: it may have.
                _ => wall,
            };
            (self.looked, self.uptime) = (at, uptime());
        }
        self.time = steered(due, passed, wall);
        self.at = at;
    }
}

/// A clock that shows `due`, brought nearer to the wall clock by a part of the time that has passed.
fn steered(due: Timestamp, passed: Duration, wall: Timestamp) -> Timestamp {
    let most = passed / SystemClock::STEERS;
    match wall >= due {
        true => due + wall.since(due).min(most),
        false => due - due.since(wall).min(most),
    }
}

/// How long the computer has run, with the time that it slept; none where that cannot be told.
fn uptime() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = told.split_whitespace().next()?.parse().ok()?;
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
        // Not at every look: each would lose what is less than a microsecond.
        if at.saturating_duration_since(reading.at) > Self::KEPT || turned.looked > reading.looked {
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
            // Either will do.
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
            looked: start,
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
        // Where that cannot be told, a step on is taken for a sleep, and a step back is not believed at once.
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
    async fn who_follows_another_believes_nobody_else() {
        // rule 6.9
        let clock = SystemClock::default();
        let far = || async { Ok(at(5)) };
        clock.follow(far).await.unwrap();
        let shown = clock.now();
        assert!(shown >= at(5) && shown < at(10), "{shown}");
        // It was set meanwhile, and whoever sleeps looks again.
        let sleep = clock.sleep_until(at(4_000));
        let on = || async { Ok(at(3_000)) };
        clock.follow(on).await.unwrap();
        tokio::time::timeout(SECOND, sleep).await.unwrap();
        let shown = clock.now();
        assert!(shown >= at(3_000) && shown < at(3_005), "{shown}");
    }

    #[test]
    fn a_slow_look_changes_no_more_than_it_must() {
        let clock = SystemClock::default();
        let start = Instant::now();
        clock.heed(at(100), Duration::from_millis(2), start);
        // Ten seconds later: a look that took four, and agrees.
        clock.heed(at(107), 4 * SECOND, start + 10 * SECOND);
        assert_eq!(clock.reading().time, at(110) + Duration::from_millis(1));
        // One that cannot be: moved to where it can.
        clock.heed(at(115), 4 * SECOND, start + 11 * SECOND);
        assert_eq!(clock.reading().time, at(115));
        clock.heed(at(50), SECOND, start + 12 * SECOND);
        assert_eq!(clock.reading().time, at(51));
    }
}
