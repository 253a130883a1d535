//! Contracts: the signals and updates that a machine accepts, each with its parameters.

mod arguments;
mod canonical;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Json, Name};
pub use arguments::Arguments;
pub(crate) use canonical::{Decimal, Parsed, Shape, canonical, is_whole};

/// The id of a contract in the database: a positive number that is derived from its content. So equal contracts are
/// stored once, and none is ever changed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ContractId(pub i64);

impl fmt::Display for ContractId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The signals and updates that a machine declares.
///
/// A machine that declares no signals accepts any signal. It accepts only the updates that it declares.
///
/// ```
/// use abide_core::model::{Accepts, Contract, Name, Parameter};
///
/// let paid = Accepts {
///     name: Name::new("paid")?,
///     parameters: Some(vec![Parameter::new("amount", "int"), Parameter::new("note", "string").nullable()]),
/// };
/// let contract = Contract { signals: vec![paid], ..Contract::default() };
/// assert_eq!(
///     contract.to_json().as_str(),
///     r#"{"signals":[{"name":"paid","parameters":[{"name":"amount","type":"int"},{"name":"note","type":"string","nullable":true}]}]}"#,
/// );
/// # Ok::<(), abide_core::model::Refusal>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contract {
    /// The signals that it accepts; if empty, any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Accepts>,
    /// The updates that it accepts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<Accepts>,
}

impl Contract {
    /// Computes its id: the first 63 bits of the SHA-256 of its canonical JSON, in which the keys of objects are sorted
    /// and there is no whitespace between the tokens.
    pub fn id(&self) -> ContractId {
        let digest = Sha256::digest(canonical(&self.to_json()));
        let bits = digest
            .iter()
            .take(8)
            .fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        // One of 2^63 contracts would have the id 0, which is not positive.
        ContractId(i64::try_from(bits >> 1).unwrap_or_default().max(1))
    }

    /// `true` if it declares nothing.
    pub fn is_empty(&self) -> bool {
        self.signals.is_empty() && self.updates.is_empty()
    }

    /// Returns it as JSON, the form in which it is stored and shown.
    pub fn to_json(&self) -> Json {
        // It consists of names, texts and JSON values, so writing it cannot fail.
        Json::of(self).unwrap_or_default()
    }
}

/// One signal or update that a machine accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Accepts {
    /// Its name.
    pub name: Name,
    /// Its parameters, in order. If omitted, any arguments are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Vec<Parameter>>,
}

/// One parameter of a signal or an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    pub name: String,
    /// Its type: `string`, `int`, `float`, `bool`, `array`, `object`, `any`, a union of them like `int|string`, or a
    /// fragment of JSON Schema; `any` if omitted.
    #[cfg_attr(feature = "openapi", schema(value_type = Json, required = false))]
    #[serde(rename = "type", default)]
    pub type_: TypeSpec,
    /// `true` if it also accepts `null`, and may then be omitted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub nullable: bool,
    /// The value that it has if it is omitted.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Json, required = false))]
    pub default: Option<Json>,
    /// `true` if it takes all remaining arguments, as a list. Only the last parameter may.
    #[serde(default, skip_serializing_if = "is_false")]
    pub variadic: bool,
}

impl Parameter {
    /// Creates a required parameter.
    pub fn new(name: impl Into<String>, type_: impl Into<TypeSpec>) -> Self {
        Self {
            name: name.into(),
            type_: type_.into(),
            nullable: false,
            default: None,
            variadic: false,
        }
    }

    /// Returns the parameter, which now also accepts `null` and may be omitted.
    pub fn nullable(self) -> Self {
        Self {
            nullable: true,
            ..self
        }
    }

    /// Returns the parameter with a default value.
    pub fn default_to(self, default: impl Into<Json>) -> Self {
        Self {
            default: Some(default.into()),
            ..self
        }
    }

    /// Returns the parameter, which now takes all remaining arguments.
    pub fn variadic(self) -> Self {
        Self {
            variadic: true,
            ..self
        }
    }
}

/// The type of a parameter's values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TypeSpec {
    /// A short form: `string`, `int`, `float`, `bool`, `array`, `object`, `any`, or a union of them, like `int|string`.
    Short(String),
    /// A fragment of JSON Schema: an object or a boolean.
    Schema(Value),
}

impl Default for TypeSpec {
    fn default() -> Self {
        Self::Short("any".into())
    }
}

impl From<&str> for TypeSpec {
    fn from(short: &str) -> Self {
        Self::Short(short.into())
    }
}

impl From<Value> for TypeSpec {
    fn from(schema: Value) -> Self {
        match schema {
            Value::String(short) => Self::Short(short),
            schema => Self::Schema(schema),
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Deserializes a value that is present, including `null`. It is read as a value, not as raw text, because a contract
/// is also read from inside a history event, where the raw text is not available.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    let value = Value::deserialize(from)?;
    Json::of(&value).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = r#"{"signals":[{"name":"оплата","parameters":[
        {"name":"amount","type":"int|float"},
        {"name":"note","type":{"type":"string","maxLength":9},"nullable":true,"default":null},
        {"name":"rest","variadic":true}]},{"name":"stop"}],"updates":[{"name":"add","parameters":[]}]}"#;

    #[test]
    fn a_contract_is_read_as_written_by_hand_and_written_without_what_is_plain() {
        // rule 8.1
        let contract: Contract = serde_json::from_str(WRITTEN).unwrap();
        let parameters = contract.signals[0].parameters.as_ref().unwrap();
        assert!(!parameters[0].nullable && parameters[0].default.is_none());
        assert_eq!(parameters[1].default, Some(Json::null()));
        assert_eq!(parameters[2].type_, TypeSpec::default());
        assert_eq!(contract.signals[1].parameters, None);
        assert_eq!(contract.updates[0].parameters, Some(vec![]));
        assert_eq!(contract.to_json().to::<Contract>().unwrap(), contract);
        assert_eq!(Contract::default().to_json().as_str(), "{}");
        for odd in [
            r#"{"signal":[]}"#,
            r#"{"signals":[{"name":"a","params":[]}]}"#,
            r#"{"signals":[{"name":"a","parameters":[{"name":"x","nulable":true}]}]}"#,
            r#"{"signals":[{"name":""}]}"#,
        ] {
            assert!(serde_json::from_str::<Contract>(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_contract_can_be_read_from_inside_something_that_was_read_ahead() {
        #[derive(Serialize, Deserialize, PartialEq, Debug)]
        struct Outer {
            #[serde(flatten)]
            contract: Contract,
        }
        let contract: Contract = serde_json::from_str(WRITTEN).unwrap();
        let outer = Outer { contract };
        let text = serde_json::to_string(&outer).unwrap();
        assert_eq!(serde_json::from_str::<Outer>(&text).unwrap(), outer);
    }

    #[test]
    fn the_id_is_made_from_what_the_contract_says() {
        let id = |text: &str| serde_json::from_str::<Contract>(text).unwrap().id();
        let one = r#"{"signals":[{"name":"a","parameters":[{"name":"x","type":{"a":1,"b":{}}}]}]}"#;
        let turned = r#"{"signals":[{"parameters":[{"type":{"b":{},"a":1.0},"name":"x"}],"name":"a"}],"updates":[]}"#;
        assert_eq!(id(one), id(turned));
        assert_ne!(id(one), id("{}"));
        // Stored in databases: it may never change. `printf '{}' | sha256sum`, without its last bit.
        assert_eq!(id("{}"), ContractId(0x4413_6fa3_55b3_678a >> 1));
        assert!(id(one).0 > 0);
    }
}
