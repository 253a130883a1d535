//! Whether a value is of a type. No value is ever changed to fit.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::unfit::Problem;
use crate::model::{Json, TypeSpec, is_whole};

/// How deeply a schema may be nested.
const SCHEMA_DEPTH_MAX: usize = 100;
/// The most problems that are told of one value.
const PROBLEMS_MAX: usize = 10;
/// How often a pattern may try again before a value is taken not to match.
const BACKTRACKS_MAX: usize = 100_000;

/// A type, made ready to check values.
pub(super) enum Type {
    Any,
    /// One of these.
    OneOf(Vec<Short>),
    Schema(Box<Validator>),
}

/// The short forms but `any`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Short {
    String,
    Int,
    Float,
    Bool,
    Array,
    Object,
}

impl Type {
    /// Makes a type ready, or tells what is wrong with it.
    pub(super) fn new(spec: &TypeSpec) -> Result<Self, String> {
        match spec {
            TypeSpec::Short(text) => Self::short(text),
            TypeSpec::Schema(Value::Bool(true)) => Ok(Self::Any),
            TypeSpec::Schema(schema @ (Value::Object(_) | Value::Bool(false))) => {
                Self::schema(schema)
            }
            TypeSpec::Schema(_) => Err(
                "a type is a short form or a JSON Schema, which is an object, true or false".into(),
            ),
        }
    }

    fn short(text: &str) -> Result<Self, String> {
        let mut forms = Vec::new();
        let mut is_any = false;
        for word in text.split('|').map(str::trim) {
            match Short::ALL.iter().find(|(known, _)| *known == word) {
                Some((_, form)) => forms.push(*form),
                None if word == "any" => is_any = true,
                None => {
                    return Err(format!(
                        "{word:?} is no type: use string, int, float, bool, array, object, any, a union of them like \
                         int|string, or a JSON Schema; what may be null is nullable"
                    ));
                }
            }
        }
        Ok(if is_any {
            Self::Any
        } else {
            Self::OneOf(forms)
        })
    }

    fn schema(schema: &Value) -> Result<Self, String> {
        if is_deeper_than(schema, SCHEMA_DEPTH_MAX) {
            return Err(format!(
                "its schema is nested more than {SCHEMA_DEPTH_MAX} deep"
            ));
        }
        let validator = jsonschema::options()
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS_MAX))
            .offline()
            .build(schema)
            .map_err(|error| format!("its schema is not valid: {error}"))?;
        Ok(Self::Schema(Box::new(validator)))
    }

    /// What is wrong with a value; nothing when it fits. Whether a parameter is nullable is not known here: a type takes
    /// null when it says so itself.
    pub(super) fn problems(&self, value: &Json) -> Vec<Problem> {
        let found = Found::in_text(value.as_str());
        match self {
            Self::Any => Vec::new(),
            Self::OneOf(forms) if forms.iter().any(|form| found.is(*form)) => Vec::new(),
            Self::OneOf(_) if found == Found::Null => vec![null_not_allowed()],
            Self::OneOf(forms) => {
                let wanted: Vec<&str> = forms.iter().map(|form| form.word()).collect();
                let message = format!("must be {}, not {}", wanted.join(" or "), found.words());
                vec![Problem::new("wrong_type", message)]
            }
            Self::Schema(validator) => match value.to::<Value>() {
                Err(error) => vec![Problem::new(
                    "unreadable",
                    format!("cannot be checked: {error}"),
                )],
                Ok(value) if validator.is_valid(&value) => Vec::new(),
                Ok(Value::Null) => vec![null_not_allowed()],
                Ok(value) => validator
                    .iter_errors(&value)
                    .take(PROBLEMS_MAX)
                    .map(|error| told(&error))
                    .collect(),
            },
        }
    }
}

fn null_not_allowed() -> Problem {
    Problem::new("null_not_allowed", "must not be null")
}

/// An error of the validator in our words; the value itself, which may be large or secret, is not repeated.
fn told(error: &jsonschema::ValidationError<'_>) -> Problem {
    let place = error.instance_path().as_str();
    let is_type = matches!(error.kind(), ValidationErrorKind::Type { .. });
    let code = if is_type && place.is_empty() {
        "wrong_type"
    } else {
        "invalid_value"
    };
    let message = match place {
        "" => format!("does not fit: {}", error.masked()),
        place => format!("does not fit at {place}: {}", error.masked()),
    };
    Problem::new(code, message)
}

impl Short {
    const ALL: &[(&'static str, Self)] = &[
        ("string", Self::String),
        ("int", Self::Int),
        ("float", Self::Float),
        ("bool", Self::Bool),
        ("array", Self::Array),
        ("object", Self::Object),
    ];

    fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, form)| *form == self);
        found.map_or("any", |(word, _)| word)
    }
}

/// What a JSON text is, from its first character; of a number also whether it is whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Null,
    Is(Short),
}

impl Found {
    fn in_text(text: &str) -> Self {
        let text = text.trim_start();
        Self::Is(match text.as_bytes().first() {
            Some(b'"') => Short::String,
            Some(b'{') => Short::Object,
            Some(b'[') => Short::Array,
            Some(b't' | b'f') => Short::Bool,
            Some(b'n') | None => return Self::Null,
            // rule 8.1: 1.0 is an int, as in JSON Schema.
            Some(_) if is_whole(text.trim_end()) => Short::Int,
            Some(_) => Short::Float,
        })
    }

    fn is(self, form: Short) -> bool {
        // rule 8.1: a float takes an int.
        self == Self::Is(form) || (form == Short::Float && self == Self::Is(Short::Int))
    }

    fn words(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Is(Short::String) => "a string",
            Self::Is(Short::Int) => "an int",
            Self::Is(Short::Float) => "a float",
            Self::Is(Short::Bool) => "a bool",
            Self::Is(Short::Array) => "an array",
            Self::Is(Short::Object) => "an object",
        }
    }
}

/// Whether a value is nested more deeply than allowed. Whoever made it in memory may have nested it at will, so this
/// uses no recursion.
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
