//! Retry policies: checks, and ready-made ones for machines.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::deaths::{MAX_DEATHS, MOST_DEATHS};
use crate::model::{Declared, Kind, Policy, Refusal, RetrySpec};

/// Maximum delay, and maximum time limit, that a machine may declare: ten years.
pub const LONGEST_MS: u64 = 10 * 365 * 24 * 3600 * 1000;

/// Returns the delay in milliseconds before a failed step that was begun `attempt` times before runs again. `None` if
/// neither its instance nor its machine has a policy, or if no attempts are left.
pub fn next(policy: Option<&RetrySpec>, attempt: u32) -> Option<u64> {
    let delay_ms = policy?.delay_ms(attempt.saturating_add(1))?;
    Some(delay_ms.min(LONGEST_MS))
}

/// Refuses a declaration with an invalid version or policy; reports all problems of the policy at once.
pub fn check(declared: &Declared) -> Result<(), Refusal> {
    let version = declared.version;
    if version == 0 || i32::try_from(version).is_err() {
        return Err(Refusal::BadVersion { version });
    }
    let problems = problems(&declared.policy().unwrap_or_default());
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Refusal::BadDeclaration {
            machine: declared.machine.clone(),
            problems,
        })
    }
}

/// Refuses a policy that is invalid for an instance of that kind; reports all problems at once.
pub fn check_own(policy: &Policy, kind: Kind) -> Result<(), Refusal> {
    let mut problems = problems(policy);
    let fails = policy.retry.is_some() || policy.step_timeout_ms.is_some();
    if kind == Kind::Workflow && fails {
        problems.push(
            "a workflow has no policy but max_deaths: give its steps and its children policies of their own"
                .to_owned(),
        );
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Refusal::BadPolicy { problems })
    }
}

/// Returns the policy with its times limited to the maximum.
pub fn bounded(policy: Policy) -> Policy {
    Policy {
        retry: policy.retry.map(|retry| RetrySpec {
            delay_ms: retry.delay_ms.min(LONGEST_MS),
            max_delay_ms: retry.max_delay_ms.map(|ms| ms.min(LONGEST_MS)),
            ..retry
        }),
        step_timeout_ms: policy.step_timeout_ms.map(|ms| ms.min(LONGEST_MS)),
        max_deaths: policy.max_deaths.map(|deaths| deaths.min(MOST_DEATHS)),
    }
}

/// Returns all problems of a policy.
fn problems(policy: &Policy) -> Vec<String> {
    let mut problems = Vec::new();
    let mut most = |name: &str, ms: Option<u64>| {
        if ms.is_some_and(|ms| ms > LONGEST_MS) {
            problems.push(format!(
                "{name} is {LONGEST_MS} at most, which is ten years"
            ));
        }
    };
    most("step_timeout_ms", policy.step_timeout_ms);
    if let Some(retry) = &policy.retry {
        most("retry.delay_ms", Some(retry.delay_ms));
        most("retry.max_delay_ms", retry.max_delay_ms);
        if retry.max_attempts == 0 {
            problems.push(
                "retry.max_attempts counts the first attempt, so it is 1 at least".to_owned(),
            );
        }
        if !retry.has_fit_factor() {
            problems.push("retry.factor is 1 to 1000: delays do not shrink".to_owned());
        }
    }
    if policy.step_timeout_ms == Some(0) {
        problems.push("step_timeout_ms is 1 at least; leave it out for no limit".to_owned());
    }
    if policy.max_deaths.is_some_and(|deaths| deaths > MOST_DEATHS) {
        problems.push(format!(
            "max_deaths is {MOST_DEATHS} at most; leave it out for {MAX_DEATHS}, give 0 for no limit"
        ));
    }
    problems
}

/// A retry policy: delays that grow up to a cap, and a limit on the attempts.
///
/// The engine itself sets no cap and computes no delay (rule 5.1). If a machine names a policy, the policy handles its
/// errors.
///
/// ```
/// use abide_core::rules::retry::Retry;
/// use std::time::Duration;
///
/// let policy = Retry::exponential(Duration::from_secs(1)).cap(Duration::from_secs(60)).attempts(4).steady();
/// assert_eq!(policy.delay(0, 0.5), Some(Duration::from_secs(1)));
/// assert_eq!(policy.delay(2, 0.5), Some(Duration::from_secs(4)));
/// assert_eq!(policy.delay(3, 0.5), None);            // the fourth attempt was the last
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    first: Duration,
    factor: f64,
    cap: Duration,
    attempts: Option<u32>,
    jitter: bool,
}

impl Retry {
    /// The default cap of the delays.
    const CAP: Duration = Duration::from_secs(3600);

    /// Creates a policy whose delays double from `first` on, spread by jitter, capped at an hour, without a limit on
    /// the attempts.
    pub const fn exponential(first: Duration) -> Self {
        Self {
            first,
            factor: 2.0,
            cap: Self::CAP,
            attempts: None,
            jitter: true,
        }
    }

    /// Creates a policy with the same delay each time, without jitter and without a limit on the attempts.
    pub const fn every(delay: Duration) -> Self {
        Self {
            first: delay,
            factor: 1.0,
            cap: delay,
            attempts: None,
            jitter: false,
        }
    }

    /// Creates a policy without retries.
    pub const fn never() -> Self {
        Self {
            attempts: Some(1),
            ..Self::every(Duration::ZERO)
        }
    }

    /// Sets the number of attempts in total, including the first.
    #[must_use]
    pub const fn attempts(self, attempts: u32) -> Self {
        Self {
            attempts: Some(attempts),
            ..self
        }
    }

    /// Sets the longest delay.
    #[must_use]
    pub const fn cap(self, cap: Duration) -> Self {
        Self { cap, ..self }
    }

    /// Sets the factor by which each delay is longer than the one before.
    #[must_use]
    pub const fn factor(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// Switches jitter off: each delay is exactly as computed.
    #[must_use]
    pub const fn steady(self) -> Self {
        Self {
            jitter: false,
            ..self
        }
    }

    /// Returns the delay after the failure of an attempt that was preceded by `attempt` others. `None` if no attempts
    /// are left. `random` is from 0 to 1 and spreads the delay over its upper half.
    pub fn delay(&self, attempt: u32, random: f64) -> Option<Duration> {
        if self
            .attempts
            .is_some_and(|most| attempt.saturating_add(1) >= most)
        {
            return None;
        }
        let exponent = i32::try_from(attempt).unwrap_or(i32::MAX);
        let grown = self.first.as_secs_f64() * self.factor.max(0.0).powi(exponent);
        let capped = if grown.is_finite() {
            grown.min(self.cap.as_secs_f64())
        } else {
            self.cap.as_secs_f64()
        };
        let spread = if self.jitter {
            0.5 + random.clamp(0.0, 1.0) / 2.0
        } else {
            1.0
        };
        Some(Duration::try_from_secs_f64(capped * spread).unwrap_or(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_delay_never_passes_the_cap(first in 0u64..10_000_000, factor in -1.0f64..1e9, cap in 0u64..10_000_000,
                                        attempt: u32, random in -1.0f64..2.0) {
            // rule 5.1
            let policy = Retry::exponential(Duration::from_millis(first)).factor(factor).cap(Duration::from_millis(cap));
            let delay = policy.delay(attempt, random).unwrap();
            prop_assert!(delay <= Duration::from_millis(cap));
        }

        #[test]
        fn jitter_keeps_to_the_upper_half(attempt in 0u32..10, random in 0.0f64..=1.0) {
            let policy = Retry::exponential(Duration::from_secs(1));
            let whole = policy.clone().steady().delay(attempt, 0.0).unwrap();
            let delay = policy.delay(attempt, random).unwrap();
            prop_assert!(delay <= whole && delay >= whole / 2);
        }
    }

    #[test]
    fn the_first_attempt_counts() {
        // rule 5.1
        assert_eq!(Retry::never().delay(0, 0.0), None);
        let thrice = Retry::every(Duration::from_secs(2)).attempts(3);
        assert_eq!(thrice.delay(1, 0.0), Some(Duration::from_secs(2)));
        assert_eq!(thrice.delay(2, 0.0), None);
    }
}
