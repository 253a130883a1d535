//! Matching events with the conditions of waiters.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::workflow;
use crate::model::{
    Condition, Decimal, EventWait, Json, Name, Operator, Outcome, Parsed, Path, Refusal, Shape,
    Then,
};

/// Maximum number of conditions of one wait, and of values of one list.
const MOST: usize = 100;
/// Maximum length of a value that is stored in the index as it is.
const LONG: usize = 120;

/// Refuses a wait that no event could ever be checked against, with all problems (rule 14.2).
pub fn check(waits: &[EventWait]) -> Result<(), Refusal> {
    let mut problems = Vec::new();
    for wait in waits {
        let of = wait.event_type.as_str();
        if let Err(refusal) = check_type(&wait.event_type) {
            problems.push(refusal.to_string());
        }
        if wait.conditions.len() > MOST {
            let count = wait.conditions.len();
            problems.push(format!("{of}: {count} conditions, and {MOST} are the most"));
        }
        for condition in &wait.conditions {
            if let Some(problem) = problem(condition) {
                let Condition { left, op, .. } = condition;
                problems.push(format!("{of}: {} {op}: {problem}", left.as_str()));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Refusal::BadEvent {
            problem: problems.join("; "),
        }),
    }
}

/// Refuses a type for which the reserved name of its events would not be a valid name.
pub fn check_type(event_type: &Name) -> Result<(), Refusal> {
    match Name::new(Name::of_event(event_type).as_str()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Refusal::BadEvent {
            problem: format!("the type {event_type} is longer than 249 bytes: shorten it"),
        }),
    }
}

fn problem(condition: &Condition) -> Option<String> {
    let right = Parsed::of(&condition.right);
    match (condition.op, right.shape(Parsed::WHOLE)) {
        (Operator::Exists, Shape::Scalar("true" | "false")) => None,
        (Operator::Exists, _) => Some("it takes true or false".into()),
        (Operator::In, Shape::List) => {
            let count = right.items(Parsed::WHOLE).len();
            (count > MOST).then(|| format!("a list of {count} values, and {MOST} are the most"))
        }
        (Operator::In, _) => Some("it takes a list".into()),
        (Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte, shape) => {
            let fits = matches!(Value::of(shape), Value::Number(_) | Value::Text(_));
            (!fits).then(|| "it compares with a number or a text".into())
        }
        (Operator::Eq | Operator::EqTyped | Operator::Ne, _) => None,
    }
}

/// A payload, parsed once for all waiters.
pub struct Payload<'a>(Parsed<'a>);

impl<'a> Payload<'a> {
    /// Parses a payload.
    pub fn of(payload: &'a Json) -> Self {
        Self(Parsed::of(payload))
    }

    /// Returns the value at a path, in the form that the index of waiters uses. `None` if there is no value at the
    /// path.
    pub fn index_value(&self, path: &str) -> Option<String> {
        let at = path
            .split('.')
            .try_fold(Parsed::WHOLE, |at, part| self.0.inside(at, part))?;
        Some(index_value(&self.0, at))
    }

    /// `true` if it satisfies all of these conditions (rules 14.2 and 14.3).
    pub fn satisfies(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| self.meets(condition))
    }

    fn meets(&self, condition: &Condition) -> bool {
        let found = condition
            .left
            .parts()
            .try_fold(Parsed::WHOLE, |at, part| self.0.inside(at, part));
        let right = Parsed::of(&condition.right);
        let wanted = right.shape(Parsed::WHOLE);
        let Some(at) = found else {
            // rule 14.3: a missing field satisfies no other condition.
            return condition.op == Operator::Exists && wanted == Shape::Scalar("false");
        };
        let same = |other: usize| equal(&self.0, at, &right, other);
        match condition.op {
            Operator::Exists => wanted == Shape::Scalar("true"),
            Operator::Eq => same(Parsed::WHOLE),
            Operator::Ne => !same(Parsed::WHOLE),
            Operator::EqTyped => same(Parsed::WHOLE) && kind(self.0.shape(at)) == kind(wanted),
            Operator::In => right.items(Parsed::WHOLE).iter().any(|item| same(*item)),
            Operator::Gt => self.compare(at, wanted) == Some(Ordering::Greater),
            Operator::Lt => self.compare(at, wanted) == Some(Ordering::Less),
            Operator::Gte => self.compare(at, wanted).is_some_and(Ordering::is_ge),
            Operator::Lte => self.compare(at, wanted).is_some_and(Ordering::is_le),
        }
    }

    /// Compares numbers with numbers, texts with texts by their bytes, and nothing else.
    fn compare(&self, at: usize, wanted: Shape<'_>) -> Option<Ordering> {
        match (Value::of(self.0.shape(at)), Value::of(wanted)) {
            (Value::Number(left), Value::Number(right)) => {
                Some(Decimal::of(left)?.compare(&Decimal::of(right)?))
            }
            (Value::Text(left), Value::Text(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
            _ => None,
        }
    }
}

/// A value in the form that is compared.
enum Value<'a> {
    Null,
    Bool(&'a str),
    Number(&'a str),
    Text(Cow<'a, str>),
    /// A string with half of a surrogate pair, which is not valid text: kept as it is written.
    Torn(&'a str),
    Other,
}

impl<'a> Value<'a> {
    fn of(shape: Shape<'a>) -> Self {
        let Shape::Scalar(scalar) = shape else {
            return Self::Other;
        };
        match scalar.as_bytes().first() {
            Some(b'"') => {
                if !scalar.contains('\\') {
                    return Self::Text(scalar.trim_matches('"').into());
                }
                let text = serde_json::from_str(scalar);
                text.map_or(Self::Torn(scalar), |text| Self::Text(Cow::Owned(text)))
            }
            Some(b't' | b'f') => Self::Bool(scalar),
            Some(b'n') => Self::Null,
            _ => Self::Number(scalar),
        }
    }

    /// Returns the text by which scalars are compared for equality (rule 14.3); null has none. A string that is a
    /// plainly written number has the text of that number, whatever its size.
    fn text(&self) -> Option<String> {
        match self {
            Self::Null | Self::Other => None,
            Self::Bool(text) => Some(format!("s{text}")),
            // A number is already in canonical spelling here.
            Self::Number(number) => Some(format!("d{number}")),
            Self::Text(text) => Some(match plain_number(text) {
                Some(decimal) => format!("d{}", decimal.spelled()),
                None => format!("s{text}"),
            }),
            Self::Torn(scalar) => Some(format!("t{scalar}")),
        }
    }
}

/// Parses a number that is written without an exponent and without superfluous zeros.
fn plain_number(text: &str) -> Option<Decimal> {
    let positive = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = match positive.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (positive, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let plain = digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(|fraction| digits(fraction) && !fraction.ends_with('0'))
        && text != "-0";
    plain.then(|| Decimal::of(text)).flatten()
}

fn kind(shape: Shape<'_>) -> u8 {
    match Value::of(shape) {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::Text(_) | Value::Torn(_) => 3,
        Value::Other => 4,
    }
}

fn equal(left: &Parsed<'_>, at: usize, right: &Parsed<'_>, other: usize) -> bool {
    let (one, two) = (Value::of(left.shape(at)), Value::of(right.shape(other)));
    match (&one, &two) {
        (Value::Other, Value::Other) => left.canonical(at) == right.canonical(other),
        (Value::Null, Value::Null) => true,
        (Value::Null | Value::Other, _) | (_, Value::Null | Value::Other) => false,
        _ => one.text() == two.text(),
    }
}

/// Returns the index value: values that are equal by `eq` have the same one. A long value is stored by its hash, so two
/// different values may have the same index value; the conditions are checked in any case.
fn index_value(parsed: &Parsed<'_>, at: usize) -> String {
    let value = Value::of(parsed.shape(at));
    let text = match (&value, value.text()) {
        (_, Some(text)) => text,
        (Value::Null, _) => "n".to_owned(),
        _ => format!("j{}", parsed.canonical(at)),
    };
    // PostgreSQL does not accept NUL in a text.
    if text.len() <= LONG && !text.contains('\0') {
        return text;
    }
    let digest = Sha256::digest(&text);
    digest
        .iter()
        .fold("#".to_owned(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// Returns the path and the values under which the waiters of a wait are indexed: those of its first condition that
/// asks for equality, or none (rule 14.4).
pub fn index_of(wait: &EventWait) -> (String, Vec<String>) {
    let indexed = wait.conditions.iter().find_map(|condition| {
        let right = Parsed::of(&condition.right);
        let mut values: Vec<String> = match condition.op {
            Operator::Eq | Operator::EqTyped => vec![index_value(&right, Parsed::WHOLE)],
            Operator::In => {
                let items = right.items(Parsed::WHOLE).iter();
                items.map(|item| index_value(&right, *item)).collect()
            }
            _ => return None,
        };
        values.sort_unstable();
        values.dedup();
        Some((condition.left.as_str().to_owned(), values))
    });
    indexed.unwrap_or_else(|| (String::new(), vec![String::new()]))
}

/// Returns the types of events that an outcome begins or continues to wait for. The transaction that commits it locks
/// them exclusively, so that no such event is published meanwhile (rule 14.6).
pub fn awaited_types(outcome: &Outcome) -> BTreeSet<&Name> {
    match outcome.last() {
        Outcome::Wait(wait) => wait.events.iter().map(|event| &event.event_type).collect(),
        Outcome::Workflow(turn) => {
            let parked: &[(u32, EventWait)] = match &turn.then {
                Then::Park(park) => &park.events,
                Then::GoOn { .. } => &[],
                _ => return BTreeSet::new(),
            };
            let parked = parked.iter().map(|(_, event)| &event.event_type);
            let begun = workflow::begun(turn);
            parked.chain(begun.into_values()).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// Creates a condition from its parts, if they are valid.
pub fn condition(left: &str, op: Operator, right: Json) -> Result<Condition, Refusal> {
    Ok(Condition {
        left: Path::new(left)?,
        op,
        right,
    })
}

#[cfg(test)]
mod tests;
