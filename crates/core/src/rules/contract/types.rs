//! Checks the types of values. No value is ever converted.

use serde_json::Value;

use super::meter::Steps;
use super::schema::Schema;
use super::unfit::Problem;
use crate::model::{Json, TypeSpec, is_whole};

/// A compiled type.
pub(super) enum Type {
    Any,
    /// One of these.
    OneOf(Vec<Short>),
    Schema(Box<Schema>),
}

/// The short forms, except `any`.
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
    /// Compiles a type, or returns its problem.
    pub(super) fn new(spec: &TypeSpec) -> Result<Self, String> {
        match spec {
            TypeSpec::Short(text) => Self::short(text),
            TypeSpec::Schema(Value::Bool(true)) => Ok(Self::Any),
            TypeSpec::Schema(schema @ (Value::Object(_) | Value::Bool(false))) => {
                Schema::new(schema).map(|schema| Self::Schema(Box::new(schema)))
            }
            TypeSpec::Schema(_) => Err(
                "a type is a short form or a JSON Schema, which is an object, true or false".into(),
            ),
        }
    }

    fn short(text: &str) -> Result<Self, String> {
        let mut forms = Vec::new();
        let mut is_any = false;
        for name in text.split('|').map(str::trim) {
            match Short::ALL.iter().find(|(known, _)| *known == name) {
                Some((_, form)) => forms.push(*form),
                None if name == "any" => is_any = true,
                None => {
                    return Err(format!(
                        "{name:?} is not a type: use string, int, float, bool, array, object, any, a union of them like \
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

    /// Returns the problems of a value; none if it matches, or if the steps are spent and that is not known. Nullable
    /// parameters are not handled here: a type accepts null only if it says so itself.
    pub(super) fn problems(&self, value: &Json, steps: &mut Steps) -> Vec<Problem> {
        let found = Found::in_text(value.as_str());
        match self {
            Self::Any => Vec::new(),
            Self::OneOf(forms) if forms.iter().any(|form| found.is(*form)) => Vec::new(),
            Self::OneOf(_) if found == Found::Null => vec![null_not_allowed()],
            Self::OneOf(forms) => {
                let wanted: Vec<&str> = forms.iter().map(|form| form.name()).collect();
                let message = format!(
                    "must be {}, not {}",
                    wanted.join(" or "),
                    found.description()
                );
                vec![Problem::new("wrong_type", message)]
            }
            // Parsing costs steps too.
            Self::Schema(_) if !steps.take(value.size() as u64) => Vec::new(),
            Self::Schema(schema) => match value.to::<Value>() {
                Err(error) => vec![Problem::new(
                    "unreadable",
                    format!("cannot be checked: {error}"),
                )],
                Ok(value) => match schema.problems(&value, steps) {
                    wrong if !wrong.is_empty() && value.is_null() => vec![null_not_allowed()],
                    problems => problems,
                },
            },
        }
    }
}

fn null_not_allowed() -> Problem {
    Problem::new("null_not_allowed", "must not be null")
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

    fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, form)| *form == self);
        found.map_or("any", |(name, _)| name)
    }
}

/// The type of a JSON text, from its first character; for a number also whether it is whole.
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
        // rule 8.1: a float accepts an int.
        self == Self::Is(form) || (form == Short::Float && self == Self::Is(Short::Int))
    }

    fn description(self) -> &'static str {
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
