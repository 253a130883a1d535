//! Conversion of a value to arguments, and back.

use abide_core::model::{Arguments, Json, NotJson};
use abide_core::rules::contract::{free, yields};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shape::{Field, Shape};

/// Returns the arguments that a value is sent as: a struct by the names of its fields, `()` with nothing, any other type
/// as one argument.
pub(crate) fn arguments_of<T: Serialize + JsonSchema + 'static>(
    value: &T,
) -> Result<Arguments, NotJson> {
    let shape = Shape::of::<T>();
    if let Shape::Nothing = *shape {
        return Ok(Arguments::default());
    }
    let json = Json::of(value)?;
    let Shape::Fields(fields) = &*shape else {
        return Ok(vec![json].into());
    };
    Ok(match Arguments::from_json(&json) {
        Ok(Arguments::Named(mut values)) => {
            // A field that the type writes and does not read is not a parameter.
            values.retain(|(name, _)| fields.iter().any(|field| field.parameter.name == *name));
            values.into()
        }
        _ => vec![json].into(),
    })
}

/// Reads a value from normalised arguments: an object by parameter names if a contract was in force, otherwise a list.
///
/// The contract may have been written by hand, or the arguments sent without one. Arguments by position are then read as
/// the fields in their order, or as the list or the object that the type is written as.
pub(crate) fn read<T: DeserializeOwned + JsonSchema + 'static>(
    normalised: &Json,
) -> Result<T, NotJson> {
    match &*Shape::of::<T>() {
        Shape::Nothing => Json::null().to(),
        Shape::Fields(fields) => read_fields(fields, normalised),
        Shape::Whole(_) => read_whole(normalised),
    }
}

fn read_fields<T: DeserializeOwned>(fields: &[Field], normalised: &Json) -> Result<T, NotJson> {
    let values = match Arguments::from_json(normalised)? {
        Arguments::Positional(values) => values,
        Arguments::Named(values) => return read_named(fields, values),
        Arguments::Payload(_) => return normalised.to(),
    };
    if values.len() > fields.len().max(1) {
        return normalised.to();
    }
    let in_order = || {
        let names = fields.iter().map(|field| field.parameter.name.clone());
        read_named(fields, names.zip(values.clone()).collect())
    };
    match values.as_slice() {
        // One object is the struct itself, or else its only or first field.
        [one] => match Arguments::from_json(one) {
            Ok(Arguments::Named(members)) => {
                read_named(fields, members).or_else(|error| in_order().map_err(|_| error))
            }
            _ => in_order(),
        },
        _ => in_order(),
    }
}

/// Reads a struct from its fields.
fn read_named<T: DeserializeOwned>(
    fields: &[Field],
    mut values: Vec<(String, Json)>,
) -> Result<T, NotJson> {
    values.retain(|(name, value)| {
        let is_absent = |field: &Field| field.null_is_absent && field.parameter.name == *name;
        !(value.as_str().trim() == "null" && fields.iter().any(is_absent))
    });
    // As one value among free arguments, they are written as an object.
    yields(&free(&values.into())).to()
}

fn read_whole<T: DeserializeOwned>(normalised: &Json) -> Result<T, NotJson> {
    // rule 8.4
    let error = match yields(normalised).to() {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let other = match Arguments::from_json(normalised) {
        Ok(Arguments::Positional(values)) if values.is_empty() => Json::null(),
        Ok(Arguments::Named(values)) if values.is_empty() => Json::null(),
        Ok(Arguments::Named(values)) if values.len() > 1 => normalised.clone(),
        _ => return Err(error),
    };
    other.to().map_err(|_| error)
}
