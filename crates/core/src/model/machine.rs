//! The declaration of a machine, for processes that do not have its code.

use serde::{Deserialize, Serialize};

use super::coded::coded;
use super::{ContractId, Name, RetrySpec};

coded! {
    /// The programming model of an instance.
    #[derive(Default)]
    pub enum Kind {
        /// A machine: steps that return an outcome.
        #[default]
        Machine = 0, "machine";
        /// A workflow: straight-line code, replayed from its history.
        Workflow = 1, "workflow";
    }
}

/// A machine as its workers declare it: the values that a start by name alone needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Its kind: machine or workflow.
    #[serde(default)]
    pub kind: Kind,
    /// Its name.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// The step that an instance begins at.
    pub first_step: Name,
    /// The queue of an instance, unless the start names another.
    pub queue: Name,
    /// `true` if its instances keep a history.
    pub history: bool,
    /// The contract of its signals and updates. Without one it accepts any signal and no update.
    #[serde(default)]
    pub contract: Option<ContractId>,
    /// Retry policy for failed steps; without one, a failed step does not run again.
    #[serde(default)]
    pub retry: Option<RetrySpec>,
    /// Time limit of a step that runs under a lease of its own.
    #[serde(default)]
    pub step_timeout_ms: Option<u64>,
    /// Number of deaths of its worker in one step after which an instance fails;
    /// [`MAX_DEATHS`](crate::rules::deaths::MAX_DEATHS) if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_deaths: Option<u32>,
}

impl Declared {
    /// Returns the declared failure policy. `None` if nothing is declared.
    pub fn policy(&self) -> Option<Policy> {
        let policy = Policy {
            retry: self.retry.clone(),
            step_timeout_ms: self.step_timeout_ms,
            max_deaths: self.max_deaths,
        };
        (!policy.is_empty()).then_some(policy)
    }

    /// Returns the declaration with that policy.
    #[must_use]
    pub fn with_policy(self, policy: Option<Policy>) -> Self {
        let Policy {
            retry,
            step_timeout_ms,
            max_deaths,
        } = policy.unwrap_or_default();
        Self {
            retry,
            step_timeout_ms,
            max_deaths,
            ..self
        }
    }
}

/// A failure policy: how the steps of all instances of a machine fail, or those of the one instance that was started
/// with it.
///
/// ```
/// use abide_core::model::{Policy, RetrySpec};
///
/// let retry = |max_attempts| RetrySpec { max_attempts, delay_ms: 100, factor: None, max_delay_ms: None };
/// let declared = Policy { retry: Some(retry(3)), step_timeout_ms: Some(5000), max_deaths: None };
/// let own = Policy { retry: Some(retry(9)), step_timeout_ms: None, max_deaths: Some(2) };
/// let in_force = own.or(&declared);                   // each part by itself
/// assert_eq!(in_force, Policy { retry: Some(retry(9)), step_timeout_ms: Some(5000), max_deaths: Some(2) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "The failure policy of an instance. The machine's declaration applies to what is left out."
    )
)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The retry policy of a failed step. A retry is the same instance with `attempt` one higher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// How long one attempt at a step may take, from its claim on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>, minimum = 1, maximum = 315_360_000_000_i64))]
    pub step_timeout_ms: Option<u64>,
    /// The number of deaths of its worker in one step after which the instance fails, 0 for no limit; also for workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000))]
    pub max_deaths: Option<u32>,
}

impl Policy {
    /// Returns this policy, with the values of `other` where this one sets nothing.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self {
            retry: self.retry.as_ref().or(other.retry.as_ref()).cloned(),
            step_timeout_ms: self.step_timeout_ms.or(other.step_timeout_ms),
            max_deaths: self.max_deaths.or(other.max_deaths),
        }
    }

    /// `true` if it sets nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The policies that apply to one instance.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Policies {
    /// The policy that the instance was started with.
    pub own: Option<Policy>,
    /// The policy that its machine declares.
    pub declared: Option<Policy>,
}

impl Policies {
    /// Returns the effective policy: each part of the instance's own policy replaces the declared one.
    pub fn in_force(&self) -> Policy {
        let declared = self.declared.clone().unwrap_or_default();
        match &self.own {
            Some(own) => own.or(&declared),
            None => declared,
        }
    }
}
