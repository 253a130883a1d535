//! The arguments of a signal or an update, as its sender gives them.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::{Json, NotJson};

/// The arguments of a signal or an update. As JSON: `{"payload": …}` or `{"arguments": […] or {…}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// One value. If there are parameters, an object counts as named arguments.
    Payload(Json),
    /// Positional arguments.
    Positional(Vec<Json>),
    /// Named arguments.
    Named(Vec<(String, Json)>),
}

impl Arguments {
    /// Converts a JSON list to positional arguments and an object to named arguments; anything else is an error.
    pub fn from_json(json: &Json) -> Result<Self, NotJson> {
        Ok(json.to::<Given>()?.0)
    }

    /// Their size in bytes of JSON, as limits count it.
    pub fn size(&self) -> usize {
        match self {
            Self::Payload(value) => value.size(),
            Self::Positional(values) => values.iter().map(Json::size).sum(),
            Self::Named(values) => values
                .iter()
                .map(|(name, value)| name.len() + value.size())
                .sum(),
        }
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Self::Positional(Vec::new())
    }
}

impl From<Vec<Json>> for Arguments {
    fn from(values: Vec<Json>) -> Self {
        Self::Positional(values)
    }
}

impl From<Vec<(String, Json)>> for Arguments {
    fn from(values: Vec<(String, Json)>) -> Self {
        Self::Named(values)
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Payload(value) => to.collect_map([("payload", value)]),
            Self::Positional(values) => to.collect_map([("arguments", values)]),
            Self::Named(values) => to.collect_map([("arguments", ByName(values))]),
        }
    }
}

/// Writes pairs as an object, in their order.
struct ByName<'a>(&'a [(String, Json)]);

impl Serialize for ByName<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wire {
            // A payload of null is a payload.
            #[serde(default, deserialize_with = "given")]
            payload: Option<Json>,
            arguments: Option<Given>,
        }
        match Wire::deserialize(from)? {
            Wire {
                payload: Some(_),
                arguments: Some(_),
            } => Err(D::Error::custom("give a payload or arguments, not both")),
            Wire {
                payload: Some(value),
                ..
            } => Ok(Self::Payload(value)),
            Wire { arguments, .. } => Ok(arguments.map(|Given(found)| found).unwrap_or_default()),
        }
    }
}

fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

/// A list or an object, parsed one level deep, in order.
struct Given(Arguments);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ListOrObject)
    }
}

struct ListOrObject;

impl<'de> Visitor<'de> for ListOrObject {
    type Value = Given;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of arguments, or an object of arguments by name")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Given, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Given(Arguments::Positional(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Given, A::Error> {
        let mut values = Vec::new();
        while let Some(entry) = object.next_entry()? {
            values.push(entry);
        }
        Ok(Given(Arguments::Named(values)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.into()).unwrap()
    }

    #[test]
    fn arguments_are_read_as_a_payload_a_list_or_an_object() {
        // rule 8.3
        let read = |text: &str| serde_json::from_str::<Arguments>(text);
        assert_eq!(read("{}").unwrap(), Arguments::default());
        assert_eq!(
            read(r#"{"payload":null}"#).unwrap(),
            Arguments::Payload(Json::null())
        );
        assert_eq!(
            read(r#"{"arguments":[1.50,{"a" : 1}]}"#).unwrap(),
            Arguments::from(vec![json("1.50"), json(r#"{"a" : 1}"#)])
        );
        let named = Arguments::from(vec![("b".into(), json("1e3")), ("a".into(), json("[]"))]);
        assert_eq!(read(r#"{"arguments":{"b":1e3,"a":[]}}"#).unwrap(), named);
        for odd in [
            r#"{"arguments":3}"#,
            r#"{"payload":1,"arguments":[]}"#,
            r#"{"argument":[]}"#,
            "[1]",
        ] {
            assert!(read(odd).is_err(), "{odd}");
        }
        for arguments in [named, Arguments::default(), Arguments::Payload(json("[1]"))] {
            let text = serde_json::to_string(&arguments).unwrap();
            assert_eq!(read(&text).unwrap(), arguments);
        }
    }

    #[test]
    fn neither_depth_nor_length_overflows_anything() {
        let deep = format!("[{}{}]", "[".repeat(200_000), "]".repeat(200_000));
        let Arguments::Positional(values) = Arguments::from_json(&json(&deep)).unwrap() else {
            panic!("a list");
        };
        assert_eq!(values.len(), 1);
        assert!(Arguments::from_json(&json("3")).is_err());
        assert!(Arguments::from_json(&json(r#"{"\ud800":1}"#)).is_err());
    }
}
