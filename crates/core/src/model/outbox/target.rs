//! The target of a request as JSON: a number is an id, and so is a text of digits only; any other text is a key.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserializer, Serialize, Serializer};

use crate::model::{InstanceId, Key, Target};

pub fn serialize<S: Serializer>(target: &Target, to: S) -> Result<S::Ok, S::Error> {
    match target {
        Target::Id(id) => id.serialize(to),
        Target::Key(key) => key.serialize(to),
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
    from.deserialize_any(IdOrKey)
}

struct IdOrKey;

impl Visitor<'_> for IdOrKey {
    type Value = Target;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key of an instance, or its id")
    }

    fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<Target, E> {
        Ok(Target::Id(InstanceId(id)))
    }

    fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<Target, E> {
        let id = i64::try_from(id).map_err(|_| too_large(id))?;
        self.visit_i64(id)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Target, E> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits {
            let id = text.parse::<i64>().map_err(|_| too_large(text))?;
            return self.visit_i64(id);
        }
        Key::new(text).map(Target::Key).map_err(E::custom)
    }
}

fn too_large<E: serde::de::Error>(id: impl fmt::Display) -> E {
    E::custom(format_args!("no id is as large as {id}"))
}
