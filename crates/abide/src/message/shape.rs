//! The parameters that a type is sent as. They follow from the type's JSON Schema, and are computed once.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use abide_core::model::{Json, Name, Parameter, TypeSpec};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The name of the parameter of a type that is sent as one argument.
const WHOLE: &str = "value";

/// The field in which a schema keeps the schemas that it refers to.
const DEFINITIONS: &str = "$defs";

/// The keywords that the schema of a plain struct may have. A type whose schema has others is sent as one value.
const OF_A_STRUCT: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "unevaluatedProperties",
    "title",
    "description",
    "examples",
    "default",
    "deprecated",
    "$comment",
];

/// The form in which a type is sent.
pub(super) enum Shape {
    /// With no argument: `()`.
    Nothing,
    /// One argument for each field.
    Fields(Vec<Field>),
    /// As one argument.
    Whole(Parameter),
}

/// A field of a struct.
pub(super) struct Field {
    pub(super) parameter: Parameter,
    /// `true` if `null` represents a field that is left out: it has a default that only serde knows.
    pub(super) null_is_absent: bool,
}

impl Shape {
    /// Returns the shape of a type. It is cached after the first time.
    pub(super) fn of<T: JsonSchema + 'static>() -> Arc<Self> {
        static KNOWN: LazyLock<RwLock<HashMap<TypeId, Arc<Shape>>>> =
            LazyLock::new(RwLock::default);
        let id = TypeId::of::<T>();
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(shape) = known.get(&id) {
            return shape.clone();
        }
        drop(known);
        // Outside the lock: a schema is the user's code.
        let shape = Arc::new(Self::worked_out::<T>());
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(id).or_insert(shape).clone()
    }

    /// Returns its parameters in a contract.
    pub(super) fn parameters(&self) -> Vec<Parameter> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Fields(fields) => fields.iter().map(|field| field.parameter.clone()).collect(),
            Self::Whole(parameter) => vec![parameter.clone()],
        }
    }

    fn worked_out<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::draft2020_12().for_deserialize();
        let mut generator = settings.into_generator();
        let mut schema = generator.subschema_for::<T>().to_value();
        let definitions = Definitions(generator.take_definitions(true));
        // A chain of references is at most as long as the number of definitions, unless it is a cycle.
        for _ in 0..=definitions.0.len() {
            match definitions.referred(&schema) {
                Some(found) => schema = found.clone(),
                None => break,
            }
        }
        if schema.get("type").and_then(Value::as_str) == Some("null") {
            return Self::Nothing;
        }
        if let Some(fields) = fields(&schema, &definitions) {
            return Self::Fields(fields);
        }
        let schema = definitions.standing_alone(schema);
        let is_nullable = !is_any(&schema) && is_valid(&schema, &Value::Null);
        let parameter = Parameter::new(WHOLE, type_of(schema, is_nullable));
        Self::Whole(Parameter {
            nullable: is_nullable,
            ..parameter
        })
    }
}

/// Returns the fields of a plain struct in their order; `None` if the schema is that of another type.
fn fields(schema: &Value, definitions: &Definitions) -> Option<Vec<Field>> {
    let schema = schema.as_object()?;
    let is_closed = |key| schema.get(key).is_none_or(|it| it == &Value::Bool(false));
    let is_struct = schema.get("type")?.as_str() == Some("object")
        && schema.keys().all(|key| OF_A_STRUCT.contains(&key.as_str()))
        && is_closed("additionalProperties")
        && is_closed("unevaluatedProperties");
    let properties = schema.get("properties")?.as_object()?;
    // A name that is not valid for a parameter is still a key of a value.
    if !is_struct || properties.keys().any(|name| Name::new(name).is_err()) {
        return None;
    }
    let required = schema.get("required").and_then(Value::as_array);
    let required: HashSet<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let fields = properties.iter().map(|(name, schema)| {
        field(
            name,
            definitions.standing_alone(schema.clone()),
            required.contains(name.as_str()),
        )
    });
    Some(fields.collect())
}

fn field(name: &str, mut schema: Value, is_required: bool) -> Field {
    let default = schema
        .as_object_mut()
        .and_then(|schema| schema.shift_remove("default"))
        .filter(|default| !is_required && is_valid(&schema, default));
    let takes_null = is_valid(&schema, &Value::Null);
    let null_is_absent = !is_required && !takes_null && default.is_none();
    let is_nullable = !is_required && (takes_null || null_is_absent);
    let parameter = Parameter {
        nullable: is_nullable,
        default: default.and_then(|default| Json::of(&default).ok()),
        ..Parameter::new(name, type_of(schema, is_nullable))
    };
    Field {
        parameter,
        null_is_absent,
    }
}

/// Converts a schema to a type, in its short form if it has one.
fn type_of(schema: Value, is_nullable: bool) -> TypeSpec {
    if is_any(&schema) {
        return TypeSpec::default();
    }
    let keyword = |key| schema.get(key);
    let is_plain = match schema.as_object().map(Map::len) {
        Some(1) => true,
        // The format of a number is only a remark.
        Some(2) => keyword("format").is_some(),
        _ => false,
    };
    let type_ = match keyword("type") {
        Some(Value::String(one)) => Some(one.as_str()),
        Some(Value::Array(several)) if is_nullable => match several.as_slice() {
            [one, null] if null == "null" => one.as_str(),
            _ => None,
        },
        _ => None,
    };
    let short = match type_.filter(|_| is_plain) {
        Some("integer") => "int",
        Some("number") => "float",
        Some("string") if keyword("format").is_none() => "string",
        Some("boolean") => "bool",
        Some("array") => "array",
        Some("object") => "object",
        _ => return TypeSpec::from(schema),
    };
    TypeSpec::from(short)
}

fn is_any(schema: &Value) -> bool {
    schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    let validator = jsonschema::options().offline().build(schema);
    validator.is_ok_and(|validator| validator.is_valid(value))
}

/// The schemas that others refer to, by name.
struct Definitions(Map<String, Value>);

impl Definitions {
    /// Returns the schema that another one refers to, if it is only a reference.
    fn referred(&self, schema: &Value) -> Option<&Value> {
        let schema = schema.as_object().filter(|schema| schema.len() == 1)?;
        self.named(schema.get("$ref")?.as_str()?)
            .map(|(_, found)| found)
    }

    /// Returns a schema that contains everything it refers to.
    fn standing_alone(&self, mut schema: Value) -> Value {
        let mut needed = Map::new();
        let mut left = references(&schema);
        while let Some(reference) = left.pop() {
            if let Some((name, found)) = self.named(&reference)
                && !needed.contains_key(name)
            {
                left.extend(references(found));
                needed.insert(name.clone(), found.clone());
            }
        }
        if let (Some(schema), false) = (schema.as_object_mut(), needed.is_empty()) {
            schema.insert(DEFINITIONS.into(), Value::Object(needed));
        }
        schema
    }

    /// Returns the definition that a reference like `#/$defs/Name` means.
    fn named(&self, reference: &str) -> Option<(&String, &Value)> {
        let name = decoded(reference.strip_prefix("#/$defs/")?);
        self.0.get_key_value(&name)
    }
}

/// Decodes a name that is part of a reference: `%C3%A9` is é, `~1` a slash and `~0` a tilde.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(b'%'));
        let rest = if code.is_some() {
            part.get(2..)
        } else {
            Some(part)
        };
        bytes.extend(rest.unwrap_or_default().bytes());
    }
    String::from_utf8_lossy(&bytes)
        .replace("~1", "/")
        .replace("~0", "~")
}

/// Returns all references in a schema. Text that only looks like a reference does no harm.
fn references(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![schema];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(members) => {
                found.extend(
                    members
                        .get("$ref")
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                );
                left.extend(members.values());
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    found
}
