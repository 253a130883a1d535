//! Events to wait for, as Rust builds them: a type, and conditions on the payload.

use std::time::Duration;

use abide_core::model::{Condition, EventWait, Json, Name, Operator, Path, Refusal};
use serde::Serialize;

use crate::time::as_ms;

/// The field name that marks a reference to an input or output of a graph inside a test.
pub(crate) const REFERENCE: &str = "abide reference";

/// An event to wait for: its type, and the conditions that its payload must meet.
///
/// ```
/// use abide::message::{eq, exists, gte};
/// use abide::prelude::*;
///
/// let paid = Event::new("payment.received")
///     .matching("order_id", eq("ord_123"))
///     .matching("amount", gte(100))
///     .matching("refunded", exists(false))
///     .lookback(hours(1));                                // one that was published already will do
/// # let _ = paid;
/// ```
///
/// Problems are reported, all at once, where the event is waited for.
#[derive(Clone, Debug)]
#[must_use = "wait for it"]
pub struct Event {
    event_type: String,
    tests: Vec<(String, Test)>,
    lookback: Option<Duration>,
}

/// A comparison with a field of an event, made by [`eq`] and the like.
#[derive(Clone, Debug)]
#[must_use = "give it to `matching`"]
pub struct Test {
    pub(crate) op: Operator,
    pub(crate) right: Result<Json, String>,
}

impl Event {
    /// Creates an event of that type, with any payload.
    pub fn new(event_type: impl Into<String>) -> Self {
        Self {
            event_type: event_type.into(),
            tests: Vec::new(),
            lookback: None,
        }
    }

    /// Adds a test of a field, which is named by a dot path into the payload. All tests must pass.
    pub fn matching(mut self, path: impl Into<String>, test: Test) -> Self {
        self.tests.push((path.into(), test));
        self
    }

    /// Also accepts the newest event that was published within that time before the wait.
    pub fn lookback(mut self, time: Duration) -> Self {
        self.lookback = Some(time);
        self
    }

    /// Returns its type, its tests and its lookback.
    pub(crate) fn parts(self) -> (String, Vec<(String, Test)>, Option<Duration>) {
        (self.event_type, self.tests, self.lookback)
    }

    /// Returns its stored form, or all problems with it.
    pub(crate) fn wait(self) -> Result<EventWait, Refusal> {
        let mut problems = Vec::new();
        let mut conditions = Vec::new();
        let event_type =
            Name::new(&self.event_type).map_err(|refusal| problems.push(refusal.to_string()));
        for (path, test) in self.tests {
            let left = Path::new(&path).map_err(|refusal| problems.push(refusal.to_string()));
            let right = test.right.map_err(|error| {
                problems.push(format!(
                    "{path} {}: the value to compare with is not JSON: {error}",
                    test.op
                ));
            });
            if right
                .as_ref()
                .is_ok_and(|right: &Json| right.as_str().contains(REFERENCE))
            {
                problems.push(format!(
                    "{path} {}: references to inputs and outputs are for graphs; give the value itself",
                    test.op
                ));
            }
            if let (Ok(left), Ok(right)) = (left, right) {
                conditions.push(Condition {
                    left,
                    op: test.op,
                    right,
                });
            }
        }
        let Ok(event_type) = event_type else {
            return Err(Refusal::BadEvent {
                problem: problems.join("; "),
            });
        };
        let wait = EventWait {
            event_type,
            conditions,
            lookback_ms: self.lookback.map(as_ms),
        };
        if let Err(refusal) = abide_core::rules::event::check(std::slice::from_ref(&wait)) {
            problems.push(refusal.to_string());
        }
        match problems.is_empty() {
            true => Ok(wait),
            false => Err(Refusal::BadEvent {
                problem: problems.join("; "),
            }),
        }
    }
}

fn test(op: Operator, right: &(impl Serialize + ?Sized)) -> Test {
    Test {
        op,
        right: Json::of(right).map_err(|error| error.to_string()),
    }
}

/// Equal, across numbers and strings: `42`, `42.0` and `"42"` are equal.
pub fn eq(value: impl Serialize) -> Test {
    test(Operator::Eq, &value)
}

/// Equal, and of the same type: `42` and `"42"` are not equal.
pub fn eq_typed(value: impl Serialize) -> Test {
    test(Operator::EqTyped, &value)
}

/// Present, and not equal.
pub fn ne(value: impl Serialize) -> Test {
    test(Operator::Ne, &value)
}

/// Greater: compares numbers with numbers, and strings with strings.
pub fn gt(value: impl Serialize) -> Test {
    test(Operator::Gt, &value)
}

/// Greater or equal.
pub fn gte(value: impl Serialize) -> Test {
    test(Operator::Gte, &value)
}

/// Less.
pub fn lt(value: impl Serialize) -> Test {
    test(Operator::Lt, &value)
}

/// Less or equal.
pub fn lte(value: impl Serialize) -> Test {
    test(Operator::Lte, &value)
}

/// Equal to one of these.
pub fn one_of<T: Serialize>(values: impl IntoIterator<Item = T>) -> Test {
    let values: Vec<T> = values.into_iter().collect();
    test(Operator::In, &values)
}

/// Present if `there` is set, otherwise absent.
pub fn exists(there: bool) -> Test {
    test(Operator::Exists, &there)
}
