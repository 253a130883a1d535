//! The status of an instance, and the scope: the statuses in which it holds its key.

use serde::{Deserialize, Serialize};

use super::WaitKind;
use super::coded::coded;

coded! {
    /// The status of an instance. There are no others.
    pub enum Status {
        /// It has an id and a key, and no run yet.
        Reserved = 0, "reserved";
        /// It is due later.
        Scheduled = 1, "scheduled";
        /// It waits for a worker.
        Runnable = 2, "runnable";
        /// A worker holds it.
        Executing = 3, "executing";
        /// It waits for a signal, an event or a condition.
        AwaitingSignal = 4, "awaiting_signal";
        /// It waits for its children.
        AwaitingChildren = 5, "awaiting_children";
        /// It ended with a result.
        Done = 6, "done";
        /// It ended with an error.
        Failed = 7, "failed";
        /// It was cancelled.
        Cancelled = 8, "cancelled";
        /// Its chain continues in a newer run.
        Continued = 9, "continued";
    }
}

/// A name that is not a status.
#[derive(thiserror::Error)]
#[error("{0:?} is not a status; the statuses are {names}", names = Status::ALL.map(Status::name).join(", "))]
pub struct UnknownStatus(String);

crate::debug_is_display!(UnknownStatus);

impl Status {
    /// `true` if the instance has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Done | Self::Failed | Self::Cancelled | Self::Continued
        )
    }

    /// `true` if the instance is parked: it is due later, or it waits.
    pub const fn is_parked(self) -> bool {
        matches!(
            self,
            Self::Scheduled | Self::AwaitingSignal | Self::AwaitingChildren
        )
    }

    /// `true` if an instance in this status waits for what its wait is for. One that is due later waits for its timer
    /// only: a step that is retried later still has the wait that it was woken from.
    pub fn waits_for(self, kind: WaitKind) -> bool {
        match self {
            Self::Scheduled => kind == WaitKind::Timer,
            _ => self.is_parked(),
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(name: &str) -> Result<Self, UnknownStatus> {
        Self::named(name).ok_or_else(|| UnknownStatus(name.to_owned()))
    }
}

/// The statuses in which an instance holds its key.
///
/// ```
/// use abide_core::model::{Scope, Status};
///
/// assert!(Scope::LIVE.holds(Status::Scheduled) && !Scope::LIVE.holds(Status::Done));
/// let once = Scope::LIVE.and(Status::Done);          // free again only when it failed or was cancelled
/// assert!(once.holds(Status::Done) && !once.holds(Status::Failed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Status>", into = "Vec<Status>")]
pub struct Scope(u16);

impl Scope {
    /// Every status that is not terminal: the default.
    pub const LIVE: Self = Self(0b00_0011_1111);
    /// As long as the row exists.
    pub const ALWAYS: Self = Self(0b11_1111_1111);
    /// In no status: the key is only an address.
    pub const NEVER: Self = Self(0);

    /// Returns this scope with one more status.
    #[must_use]
    pub const fn and(self, status: Status) -> Self {
        Self(self.0 | 1 << status as u8)
    }

    /// Returns this scope without the statuses of another.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// `true` if an instance with that status holds its key.
    pub const fn holds(self, status: Status) -> bool {
        self.0 >> (status as u8) & 1 == 1
    }

    /// The bits, one for each status code, in the form that the databases store.
    pub const fn bits(self) -> i32 {
        self.0 as i32
    }

    /// Converts stored bits back; bits that belong to no status are ignored.
    pub const fn from_bits(bits: i32) -> Self {
        Self((bits & Self::ALWAYS.0 as i32) as u16)
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::LIVE
    }
}

impl FromIterator<Status> for Scope {
    fn from_iter<I: IntoIterator<Item = Status>>(statuses: I) -> Self {
        statuses.into_iter().fold(Self::NEVER, Self::and)
    }
}

impl From<Vec<Status>> for Scope {
    fn from(statuses: Vec<Status>) -> Self {
        statuses.into_iter().collect()
    }
}

impl From<Scope> for Vec<Status> {
    fn from(scope: Scope) -> Self {
        Status::ALL
            .into_iter()
            .filter(|status| scope.holds(*status))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduled_instance_waits_for_its_timer_only() {
        // rule 13.1
        let waiting = |kind| {
            let statuses = Status::ALL.into_iter();
            let waiting: Vec<Status> = statuses.filter(|status| status.waits_for(kind)).collect();
            waiting
        };
        let awaiting = [Status::AwaitingSignal, Status::AwaitingChildren];
        for kind in [
            WaitKind::Signal,
            WaitKind::Event,
            WaitKind::Condition,
            WaitKind::Children,
        ] {
            assert_eq!(waiting(kind), awaiting, "{}", kind.name());
        }
        let parked = Status::ALL.into_iter().filter(|status| status.is_parked());
        assert_eq!(waiting(WaitKind::Timer), parked.collect::<Vec<_>>());
    }

    #[test]
    fn a_scope_is_the_statuses_it_was_made_of() {
        let scope: Scope = serde_json::from_str("[\"runnable\",\"done\"]").unwrap();
        assert_eq!(Vec::from(scope), [Status::Runnable, Status::Done]);
        assert_eq!(Scope::from_bits(scope.bits()), scope);
        assert_eq!(
            Scope::LIVE,
            Status::ALL
                .into_iter()
                .filter(|s| !s.is_terminal())
                .collect()
        );
    }
}
