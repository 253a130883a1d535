//! Times that a request gives, and schemas that no type of the model has.

use std::borrow::Cow;
use std::time::Duration;

use abide::model::Json;
use abide_kernel::model::DURATION_MS_MAX;
use serde::{Deserialize, Deserializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::http::Problem;

/// The longest that a request may wait for something.
pub const WAIT_MS_MAX: u64 = 60_000;

/// A time in milliseconds, of a hundred years at most.
#[derive(Clone, Copy, Debug)]
pub struct Millis(Duration);

impl Millis {
    /// The number of milliseconds.
    pub fn ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(DURATION_MS_MAX)
    }

    /// The time.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ms = u64::deserialize(from)?;
        if ms > DURATION_MS_MAX {
            return Err(serde::de::Error::custom(format_args!(
                "{ms} is not a time in milliseconds: at most {DURATION_MS_MAX}, a hundred years"
            )));
        }
        Ok(Self(Duration::from_millis(ms)))
    }
}

/// The time that a request asks to wait. Returns a problem if that is too long.
pub fn waited(wait_ms: Option<u64>) -> Result<Duration, Problem> {
    let ms = wait_ms.unwrap_or(0);
    if ms > WAIT_MS_MAX {
        let detail = format!(
            "wait_ms is {ms}, and {WAIT_MS_MAX} is the most: ask again when the time is up"
        );
        return Err(Problem::bad_request(detail)
            .over("wait_ms", WAIT_MS_MAX)
            .met(Some(ms)));
    }
    Ok(Duration::from_millis(ms))
}

/// Reads a field that may be absent or `null`, which differ: `null` is a value.
pub fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

/// Gives a type that is only a schema its name and its schema.
macro_rules! schema {
    ($(#[$doc:meta])* $name:ident as $shown:literal, $build:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::from($build))
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($shown)
            }
        }
    };
}

schema! {
    /// The schema of an idempotency key.
    IdempotencyKeyText as "IdempotencyKey",
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(257))
        .pattern(Some(r#"^"?[!#-~]+"?[ \t]*$"#))
        .description(Some(
            "A key of a request: 1 to 255 printable ASCII characters without spaces and quotes. It may be quoted.",
        ))
}
schema! {
    /// The schema of what is wrong with arguments.
    Problems as "ValidationErrors",
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(AdditionalProperties::RefOr(RefOr::T(Schema::from(
            ArrayBuilder::new().items(
                ObjectBuilder::new()
                    .schema_type(Type::Object)
                    .property("code", ObjectBuilder::new().schema_type(Type::String))
                    .property("message", ObjectBuilder::new().schema_type(Type::String))
                    .required("code")
                    .required("message"),
            ),
        )))))
        .description(Some("All problems of the arguments, by field: `{field: [{code, message}]}`."))
}
