//! JSON as text: checked once on input, then passed on and stored unchanged.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

/// A JSON document, kept as the text in which it was written.
///
/// States and results pass through the engine without being parsed, so nothing is parsed before it is needed, and a
/// clone is cheap.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

/// An error: a text that is not JSON, a value that cannot be written as JSON, or JSON that is not of the requested
/// type; with the cause.
#[derive(thiserror::Error)]
#[error("{problem}{error}")]
pub struct NotJson {
    problem: &'static str,
    #[source]
    error: serde_json::Error,
}

crate::debug_is_display!(NotJson);

/// An error while reading: a value of the wrong type is still JSON.
impl From<serde_json::Error> for NotJson {
    fn from(error: serde_json::Error) -> Self {
        let problem = match error.classify() {
            Category::Data => "",
            Category::Io | Category::Syntax | Category::Eof => "not JSON: ",
        };
        Self { problem, error }
    }
}

impl Json {
    /// The JSON `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }

    /// Writes a value as JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, NotJson> {
        let unwritten = |error| NotJson {
            problem: "cannot be written as JSON: ",
            error,
        };
        let written = serde_json::value::to_raw_value(value).map_err(unwritten)?;
        Ok(Self(written.into()))
    }

    /// Checks that a text is JSON and wraps it.
    pub fn parse(text: String) -> Result<Self, NotJson> {
        Ok(Self(RawValue::from_string(text)?.into()))
    }

    /// Deserializes it as the requested type.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, NotJson> {
        Ok(serde_json::from_str(self.0.get())?)
    }

    /// Returns its canonical text, the same however it was written: sorted keys, no whitespace between the tokens.
    pub fn canonical(&self) -> String {
        super::contract::canonical(self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns the number of levels of arrays and objects; the content of the innermost counts as one: `1` has one
    /// level, `[1]` has two.
    pub fn depth(&self) -> usize {
        let (mut deepest, mut depth) = (1, 1);
        let mut bytes = self.0.get().bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'[' | b'{' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b']' | b'}' => depth -= 1,
                b'"' => {
                    // To the end of the string; the character after a backslash never ends it.
                    while let Some(byte) = bytes.next() {
                        match byte {
                            b'\\' => drop(bytes.next()),
                            b'"' => break,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        deepest
    }

    /// Its size in bytes, as limits count it.
    pub fn size(&self) -> usize {
        self.0.get().len()
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(from)?.into()))
    }
}

/// Deserializes a field that may be omitted or `null`; these differ, because `null` is a value.
pub(crate) fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        // A value that was parsed from JSON can be written as JSON.
        Self::of(&value).unwrap_or_default()
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Implements serde for a type whose `result` is `null` both if there is none and if the result itself is null. The
/// given condition says which of the two it is.
macro_rules! null_is_a_result {
    ($type:ident, |$one:ident| $has_one:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let mut $one = Self::deserialize(from)?;
                if $one.result.is_none() && $has_one {
                    $one.result = Some($crate::model::Json::null());
                }
                Ok($one)
            }
        }
    };
}
pub(crate) use null_is_a_result;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_checked_and_kept_as_written() {
        let json = Json::parse("{\"b\":1,  \"a\":\"\\u0000é\"}".into()).unwrap();
        assert_eq!(json.as_str(), "{\"b\":1,  \"a\":\"\\u0000é\"}");
        assert!(Json::parse("{".into()).is_err());
        assert_eq!(Json::of(&[1, 2]).unwrap().to::<Vec<u8>>().unwrap(), [1, 2]);
    }

    #[test]
    fn levels_are_counted_outside_of_texts() {
        for (text, depth) in [
            ("1", 1),
            ("[]", 2),
            ("[[1],[[2]],3]", 4),
            (r#"{"a[[[":"]]\"[{","b":{"c\\":[0]}}"#, 4),
            (r#"["\\","[[\"[["]"#, 2),
        ] {
            assert_eq!(Json::parse(text.into()).unwrap().depth(), depth, "{text}");
        }
        // What is allowed is what a reader with the usual limit can read.
        let nested = |levels: usize| {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            Json::parse(text).unwrap()
        };
        assert!(nested(127).to::<serde_json::Value>().is_ok() && nested(127).depth() == 128);
        assert!(nested(128).to::<serde_json::Value>().is_err());
    }
}
