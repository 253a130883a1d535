//! The OpenAPI schemas of names, keys, targets, arguments and JSON, which have no structure to derive them from.

use std::borrow::Cow;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use super::{Arguments, Json, Key, Name, Target};

macro_rules! schema {
    ($name:ident, $build:expr) => {
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::from($build))
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }
        }
    };
}

schema! { Name, text(r"^[^\u0000-\u001f\u007f-\u009f]+$", "A name: 1 to 255 bytes without control characters.") }
schema! {
    Key,
    text(
        r"^(?![0-9]+$)[^\u0000-\u001f\u007f-\u009f]+$",
        "A key: 1 to 255 bytes without control characters, and not digits only, so that it is never taken for an id.",
    )
}
schema! {
    Target,
    text(r"^[^\u0000-\u001f\u007f-\u009f]+$", "An instance: an id when it is digits only, else a key, percent-encoded.")
}
schema! {
    Json,
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some("Any JSON value."))
}

schema! {
    Arguments,
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Object]))
        .description(Some("Arguments: a list by position, or an object by name."))
}

/// A text of 1 to 255 characters. Those that are not ASCII have more bytes, which the schema cannot say.
fn text(pattern: &str, description: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some(pattern))
        .description(Some(description))
}
