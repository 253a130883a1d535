//! Deaths of workers: delays and limits for the step that was running.

use std::time::Duration;

use super::commit::{Facts, Moved, stop};
use super::inbox::Closed;
use super::retry::Retry;
use crate::model::{Kind, Limits, Name, Pending, Policy, Row, Sequence, Status, Timestamp};

/// Default number of deaths of its worker in one step after which an instance fails (rule 5.7).
pub const MAX_DEATHS: u32 = 5;

/// Maximum number of deaths that a policy may allow.
pub const MOST_DEATHS: u32 = 1_000_000;

/// The delays of a step that has killed its worker more than once.
const DELAYS: Retry = Retry::exponential(Duration::from_secs(5))
    .factor(4.0)
    .cap(Duration::from_secs(300));

/// The facts outside of the row that handling a death depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Number of deaths after which the instance fails; 0 if it never does.
    pub most: u32,
    /// Its position among those that are taken back together; it spreads their delays.
    pub position: usize,
}

impl Case {
    /// Creates the case of an instance with that policy, at that position.
    pub fn new(policy: Option<&Policy>, position: usize) -> Self {
        let most = policy.and_then(|policy| policy.max_deaths);
        Self {
            most: most.unwrap_or(MAX_DEATHS),
            position,
        }
    }
}

/// Number of deaths from which on a step is suspected of killing its worker.
pub const SUSPECTED: u32 = 2;

/// `true` if a step is suspected of killing its workers, after that many deaths and with that limit on them. It then
/// waits before it runs, and no worker holds two such steps at a time (rule 5.6). A step whose deaths have no limit is
/// never suspected.
pub fn is_suspected(deaths: u32, most: u32) -> bool {
    most > 0 && deaths >= SUSPECTED
}

/// Removes from what a worker has claimed the suspected steps that it must give back before it runs any, and returns
/// them: all but the first, and the first too if the worker holds a suspected step already. If that one is guilty, the
/// others would die with it (rule 5.6). The rest stays in its order.
pub fn give_up_suspects<T>(
    claimed: &mut Vec<T>,
    holds_one: bool,
    is_suspect: impl Fn(&T) -> bool,
) -> Vec<T> {
    let mut has_one = holds_one;
    let surplus = claimed.extract_if(.., |one| {
        is_suspect(one) && std::mem::replace(&mut has_one, true)
    });
    surplus.collect()
}

/// Returns the delay of a step whose worker has died that often in it (rule 5.6). `None` if it runs again at once.
/// Other instances that the dead worker held can end in that time, so the next worker that this step kills does not
/// hold them. Instances that are taken back together get different delays, so that they do not run together again. Time
/// and position determine the delay, so every store computes the same one. A step whose deaths have no limit does not
/// wait.
pub fn delay(deaths: u32, case: Case, now: Timestamp) -> Option<Duration> {
    if !is_suspected(deaths, case.most) {
        return None;
    }
    DELAYS.delay(deaths - SUSPECTED, spread(case.position, now))
}

/// Returns a number from 0 to 1, evenly distributed: the finaliser of splitmix64.
fn spread(position: usize, now: Timestamp) -> f64 {
    let position = u64::try_from(position).unwrap_or(u64::MAX);
    let mut mixed = now.as_micros().cast_unsigned();
    mixed = mixed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let high = u32::try_from(mixed >> 32).unwrap_or(u32::MAX);
    f64::from(high) / f64::from(u32::MAX)
}

/// Returns the error of an instance whose worker has died as often as allowed. `None` if it has not.
pub(super) fn spent(row: &Row, most: u32) -> Option<String> {
    (most > 0 && row.deaths >= most).then(|| {
        format!(
            "the worker died {} {}; find what ends its process there (memory, a signal, an abort), then restart the \
             instance",
            times(row.deaths),
            location(row.aside.is_some(), &row.step)
        )
    })
}

/// Returns the number of deaths in words.
pub fn times(deaths: u32) -> String {
    match deaths {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn location(aside: bool, step: &Name) -> String {
    match aside {
        false => format!("in step {step}"),
        true => format!("in an update before step {step}"),
    }
}

/// Ends a row as `failed` because its worker has died too often. The signals that the step was handed count as applied,
/// as they do when a step stops, and the rest of the inbox will not be consumed (rule 4.1).
pub fn fail(
    row: &mut Row,
    error: &str,
    pending: &[Pending],
    limits: &Limits,
    now: Timestamp,
) -> Closed {
    debug_assert!(row.status != Status::Executing, "its hold has ended");
    if row.aside.is_some() || row.kind == Kind::Workflow {
        // An instance that ran for its updates was handed no signal, and a workflow takes its signals one by one.
        row.inbox.handed = Sequence::default();
    }
    let facts = Facts {
        now,
        limits,
        waiting: None,
        pending,
        retry: None,
        taken: None,
        build: None,
    };
    let mut moved = Moved::default();
    stop(row, error, facts, &mut moved);
    let Moved {
        closings,
        history_events,
        ..
    } = moved;
    Closed {
        closings,
        history_events,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn at(position: usize) -> Case {
        Case::new(None, position)
    }

    #[test]
    fn the_first_death_costs_no_time_and_the_others_more_and_more() {
        // rule 5.6
        let seconds = |deaths| delay(deaths, at(0), NOW).map(|delay| delay.as_secs_f64());
        assert_eq!((seconds(0), seconds(1)), (None, None));
        for (deaths, most) in [
            (2, 5.0),
            (3, 20.0),
            (4, 80.0),
            (5, 300.0),
            (u32::MAX, 300.0),
        ] {
            let delay = seconds(deaths).unwrap();
            assert!((most / 2.0..=most).contains(&delay), "{deaths}: {delay}");
        }
        // rule 5.7: nor do those of a step that workers may die in as often as they like.
        let case = Case {
            most: 0,
            position: 0,
        };
        assert_eq!(
            (delay(2, case, NOW), delay(u32::MAX, case, NOW)),
            (None, None)
        );
    }

    #[test]
    fn a_worker_keeps_the_first_suspect_and_none_beside_another() {
        // rule 5.6
        let is_suspect = |deaths: &u32| is_suspected(*deaths, MAX_DEATHS);
        for (holds_one, claimed, kept, given_up) in [
            (false, vec![0, 1, 0], vec![0, 1, 0], vec![]),
            (true, vec![0, 1], vec![0, 1], vec![]),
            (false, vec![0, 2, 1, 3, 0, 4], vec![0, 2, 1, 0], vec![3, 4]),
            (true, vec![0, 2, 1, 3], vec![0, 1], vec![2, 3]),
            (false, vec![], vec![], vec![]),
        ] {
            let mut rest = claimed;
            let surplus = give_up_suspects(&mut rest, holds_one, is_suspect);
            assert_eq!((rest, surplus), (kept, given_up));
        }
    }

    #[test]
    fn a_policy_says_how_many_deaths_there_may_be() {
        // rule 5.7
        let policy = |max_deaths| Policy {
            max_deaths,
            ..Policy::default()
        };
        for (given, expected) in [
            (None, 5),
            (Some(policy(None)), 5),
            (Some(policy(Some(1))), 1),
            (Some(policy(Some(40))), 40),
            (Some(policy(Some(0))), 0),
        ] {
            assert_eq!(Case::new(given.as_ref(), 0).most, expected, "{given:?}");
        }
    }

    #[test]
    fn neighbours_that_died_together_run_again_at_different_times() {
        // rule 5.6
        let delays: Vec<Duration> = (0..64)
            .filter_map(|position| delay(2, at(position), NOW))
            .collect();
        let mut distinct = delays.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!((delays.len(), distinct.len()), (64, 64));
        let half = Duration::from_millis(3750);
        let early = delays.iter().filter(|delay| **delay < half).count();
        assert!((16..=48).contains(&early), "{delays:?}");
    }

    proptest! {
        #[test]
        fn a_delay_is_bounded_whatever_the_position_and_the_time(deaths: u32, position: usize, now: i64) {
            // rule 5.6
            let delay = delay(deaths, at(position), Timestamp::from_micros(now)).unwrap_or_default();
            prop_assert!(delay <= Duration::from_secs(300));
        }
    }
}
