//! A compiled JSON Schema that checks values in a bounded number of steps (rule 8.5).
//!
//! The cost of a value is counted while it is walked over ([`Steps`]). Two costs are outside of that count, and are
//! bounded here when the schema is declared: the time that matching a pattern takes for each byte, and the number of
//! subschemas that apply to one value at once.

use std::collections::{HashMap, HashSet};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value, json};

use super::meter::{MeteredJson, Rates, Steps};
use super::unfit::Problem;

/// Maximum nesting of a schema.
const SCHEMA_DEPTH_MAX: usize = 100;
/// Maximum number of subschemas that apply to one value, in total over all values of the schema.
const APPLIED_MAX: usize = 100_000;
/// Maximum nesting of such subschemas: for each level of a value, that many calls are on the stack.
const APPLIED_DEPTH_MAX: usize = 20;
/// The sizes in bytes with which compiling a pattern is tried. A pattern that exceeds the largest is refused.
const PATTERN_BYTES: [usize; 6] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
/// Maximum total size of all compiled patterns.
const PATTERNS_BYTES_MAX: usize = 4 << 20;
/// Bytes of a compiled pattern for each state: in the worst case each byte of a text visits all states.
const BYTES_PER_STATE: usize = 32;
/// Maximum number of problems that are reported for one value.
const PROBLEMS_MAX: usize = 10;
/// The steps for finding the problems of a value; the cost of an item then, because each may be a problem and is
/// stored; and the divisor for the cost of a text, which is not stored.
const PROBLEMS_STEPS: u64 = 300_000;
const PROBLEMS_ITEM: u64 = 10;
const PROBLEMS_TEXT: u64 = 16;

/// A compiled schema.
pub(super) struct Schema {
    validator: Validator<MeteredJson>,
    rates: Rates,
}

impl Schema {
    /// Compiles a schema, or returns its problem.
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        if is_deeper_than(schema, SCHEMA_DEPTH_MAX) {
            return Err(format!(
                "its schema is nested more than {SCHEMA_DEPTH_MAX} deep"
            ));
        }
        if applies_more_than(schema, APPLIED_MAX) {
            return Err(format!(
                "its schema applies more than {APPLIED_MAX} subschemas to one value, or more than {APPLIED_DEPTH_MAX} \
                 inside one another; use fewer references inside allOf, anyOf, oneOf, not and if"
            ));
        }
        // Done first, so that a problem of the schema is reported before a problem of a pattern in it.
        jsonschema::options()
            .offline()
            .build(schema)
            .map_err(|error| format!("its schema is not valid: {error}"))?;
        let rates = rates(schema)?;
        let validator = jsonschema::options_for::<MeteredJson>()
            .with_pattern_options(patterns(
                PATTERN_BYTES.into_iter().max().unwrap_or_default(),
            ))
            .offline()
            .build(schema)
            .map_err(|error| format!("its schema is not valid: {error}"))?;
        Ok(Self { validator, rates })
    }

    /// Returns the problems of a value. They are not known if the steps are [spent](Steps::are_spent).
    pub(super) fn problems(&self, value: &Value, steps: &mut Steps) -> Vec<Problem> {
        let is_valid = |node| self.validator.is_valid(node);
        if steps.examine(self.rates, value, is_valid) || steps.are_spent() {
            return Vec::new();
        }
        let rates = Rates {
            text_byte: (self.rates.text_byte / PROBLEMS_TEXT).max(1),
            item: PROBLEMS_ITEM,
            ..self.rates
        };
        let mut few = Steps::new(PROBLEMS_STEPS);
        let all = few.examine(rates, value, |node| {
            let errors = self.validator.iter_errors(node).take(PROBLEMS_MAX);
            errors.map(|error| problem_of(&error)).collect::<Vec<_>>()
        });
        if !few.are_spent() && !all.is_empty() {
            return all;
        }
        // The value is too large to report all problems.
        let mut few = Steps::new(PROBLEMS_STEPS);
        let first = few.examine(rates, value, |node| {
            let validated = self.validator.validate(node);
            validated.map_err(|error| problem_of(&error))
        });
        match first {
            Err(first) if !few.are_spent() => vec![first],
            _ => vec![Problem::new("invalid_value", "does not match its schema")],
        }
    }
}

/// Converts an error of the validator. The value itself, which may be large or secret, is not repeated.
fn problem_of(error: &jsonschema::ValidationError<'_>) -> Problem {
    let path = error.instance_path().as_str();
    let is_type = matches!(error.kind(), ValidationErrorKind::Type { .. });
    let code = if is_type && path.is_empty() {
        "wrong_type"
    } else {
        "invalid_value"
    };
    let message = match path {
        "" => format!("is invalid: {}", error.masked()),
        path => format!("is invalid at {path}: {}", error.masked()),
    };
    Problem::new(code, message)
}

/// Selects the regex engine whose time is linear in the text. It has neither look-around nor back-references.
fn patterns(bytes: usize) -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(bytes)
}

/// Returns the costs of matching with the patterns of a schema, or the pattern that cannot be matched in bounded time.
fn rates(schema: &Value) -> Result<Rates, String> {
    let mut sizes: HashMap<&str, usize> = HashMap::new();
    let mut text = 0;
    let mut names = 0;
    for_each_object(schema, &mut |members| {
        if let Some(Value::String(pattern)) = members.get("pattern") {
            text = text.max(size(pattern, &mut sizes)?);
        }
        if let Some(Value::Object(properties)) = members.get("patternProperties") {
            for pattern in properties.keys() {
                // Each name is matched with all patterns, and again to find which other names are allowed.
                names += 2 * size(pattern, &mut sizes)?;
            }
        }
        Ok::<(), String>(())
    })?;
    let all: usize = sizes.values().sum();
    if all > PATTERNS_BYTES_MAX {
        return Err(format!(
            "its patterns are too large: {all} bytes when compiled, and {PATTERNS_BYTES_MAX} are allowed"
        ));
    }
    let steps = |bytes: usize| (bytes / BYTES_PER_STATE).max(1) as u64;
    Ok(Rates {
        text_byte: steps(text),
        name_byte: steps(names),
        ..Rates::FREE
    })
}

/// Returns the smallest of the sizes that a pattern fits into.
fn size<'s>(pattern: &'s str, sizes: &mut HashMap<&'s str, usize>) -> Result<usize, String> {
    if let Some(size) = sizes.get(pattern) {
        return Ok(*size);
    }
    let fits = |bytes: &usize| {
        let options = jsonschema::options().with_pattern_options(patterns(*bytes));
        options.build(&json!({ "pattern": pattern })).is_ok()
    };
    let size = PATTERN_BYTES.into_iter().find(fits).ok_or_else(|| {
        format!(
            "its pattern {pattern:?} cannot be matched in bounded time; use no look-around and no back-references, \
             and shorter repetitions"
        )
    })?;
    sizes.insert(pattern, size);
    Ok(size)
}

/// Calls a function for each object in a value, at any depth, that could be a subschema.
fn for_each_object<'v, E>(
    value: &'v Value,
    call: &mut impl FnMut(&'v Map<String, Value>) -> Result<(), E>,
) -> Result<(), E> {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(members) => {
                call(members)?;
                left.extend(members.values());
            }
            _ => {}
        }
    }
    Ok(())
}

/// `true` if more than `most` subschemas apply to the values of a schema, each counted as often as it is evaluated:
/// nested references double with each level. The value that they apply to does not get smaller on the way, so the step
/// count could not end such a walk.
fn applies_more_than(schema: &Value, most: usize) -> bool {
    let mut named: HashMap<&str, Vec<&Value>> = HashMap::new();
    let mut all = Vec::new();
    let mut left = vec![schema];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(members) => {
                for name in ["$id", "$anchor", "$dynamicAnchor"] {
                    if let Some(Value::String(name)) = members.get(name) {
                        named.entry(anchor(name)).or_default().push(value);
                    }
                }
                all.push(value);
                left.extend(members.values());
            }
            _ => {}
        }
    }
    let mut applied = Applied {
        root: schema,
        named,
        open: HashSet::new(),
        left: most,
    };
    all.into_iter().any(|value| applied.count(value).is_none())
}

/// A walk over the subschemas that apply to one value.
struct Applied<'v> {
    root: &'v Value,
    named: HashMap<&'v str, Vec<&'v Value>>,
    /// The subschemas that are being evaluated; they are not evaluated again for the same value.
    open: HashSet<*const Value>,
    left: usize,
}

impl<'v> Applied<'v> {
    /// Counts a subschema and those that it applies to the same value. Returns `None` if there are too many.
    fn count(&mut self, schema: &'v Value) -> Option<()> {
        let Value::Object(members) = schema else {
            return Some(());
        };
        self.left = self.left.checked_sub(1)?;
        if self.open.len() >= APPLIED_DEPTH_MAX {
            return None;
        }
        if !self.open.insert(std::ptr::from_ref(schema)) {
            return Some(());
        }
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                ("not" | "if" | "then" | "else", value) => self.count(value)?,
                ("allOf" | "anyOf" | "oneOf", Value::Array(each)) => {
                    each.iter().try_for_each(|one| self.count(one))?;
                }
                ("dependentSchemas" | "dependencies", Value::Object(each)) => {
                    each.values().try_for_each(|one| self.count(one))?;
                }
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => {
                    for target in self.targets(to) {
                        self.count(target)?;
                    }
                }
                _ => {}
            }
        }
        self.open.remove(&std::ptr::from_ref(schema));
        Some(())
    }

    /// Returns the possible targets of a reference.
    fn targets(&self, to: &str) -> Vec<&'v Value> {
        let pointer = match to.split_once('#') {
            Some((_, pointer)) if pointer.is_empty() || pointer.starts_with('/') => pointer,
            _ => return self.named.get(anchor(to)).cloned().unwrap_or_default(),
        };
        let pointer = pointer.replace("%25", "%").replace("%22", "\"");
        let bases = self.named.values().flatten().copied();
        std::iter::once(self.root)
            .chain(bases)
            .filter_map(|base| base.pointer(&pointer))
            .collect()
    }
}

/// Returns the last part of a name, by which it can be referenced.
fn anchor(name: &str) -> &str {
    name.rsplit(['/', '#'])
        .find(|part| !part.is_empty())
        .unwrap_or(name)
}

/// `true` if a value is nested more deeply than allowed. A value that was built in memory may be nested at will, so
/// this uses no recursion.
fn is_deeper_than(value: &Value, most: usize) -> bool {
    let mut left = vec![(value, 0)];
    while let Some((value, depth)) = left.pop() {
        if depth > most {
            return true;
        }
        match value {
            Value::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => left.extend(members.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    false
}
