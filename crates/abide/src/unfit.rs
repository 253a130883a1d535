//! Explains why JSON does not match a type, for the person who wrote it: where the problem is, what is there, and what
//! is expected.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// Reads JSON as a `T`. The error explains what does not match.
pub fn fit<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| why::<T>(json.as_bytes(), &error))
}

/// Returns the field that prevents an object from being read as a `T`.
pub fn field<T: DeserializeOwned>(value: &Value) -> Option<String> {
    match refused::<T>(value)?.0.into_iter().next()? {
        Leg::Field(name) => Some(name),
        Leg::Index(_) => None,
    }
}

/// The longest JSON that is parsed a second time, in bytes. As values it needs many times the memory.
const REPARSED_MAX: usize = 1 << 20;

/// Explains why a parser rejected JSON with that error. Parses the JSON once more, slowly, to find the path to the
/// problem.
pub fn why<T: DeserializeOwned>(json: &[u8], error: &serde_json::Error) -> String {
    let slowly = match json.len() <= REPARSED_MAX {
        true => serde_json::from_slice::<Value>(json).ok(),
        false => None,
    };
    let Some(mut value) = slowly else {
        let (line, column) = (error.line(), error.column());
        let message = in_words("", &error.to_string(), None);
        return format!("at line {line}, column {column}: {message}");
    };
    let Some((way, message)) = refused::<T>(&value) else {
        // A duplicate field: the parsed value has it only once.
        return in_words("", &error.to_string(), None);
    };
    let mut way = way.as_slice();
    if let (Some((Leg::Field(variant), before)), Some(found)) = (way.split_last(), at(&value, way))
    {
        // A string where an object with one field of that name is possible too.
        if found.as_str() == Some(variant) {
            way = before;
        }
    }
    let found = at(&value, way).map(short);
    let known = match message.ends_with(", expected string or map") {
        true => valid_strings::<T>(&mut value, way),
        false => None,
    };
    let message = match known {
        Some(known) => format!("invalid type: that, expected {known}"),
        None => message,
    };
    in_words(&written(way), &message, found.as_deref())
}

/// One segment of the path to a value.
enum Leg {
    Field(String),
    Index(usize),
}

/// Returns the path at which a value cannot be read as a `T`, and the error there.
fn refused<T: DeserializeOwned>(value: &Value) -> Option<(Vec<Leg>, String)> {
    let error = serde_path_to_error::deserialize::<_, T>(value).err()?;
    let way = legs(error.path());
    Some((way, error.into_inner().to_string()))
}

fn legs(path: &Path) -> Vec<Leg> {
    let leg = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(Leg::Index(*index)),
        Segment::Map { key } => Some(Leg::Field(key.clone())),
        Segment::Enum { variant } => Some(Leg::Field(variant.clone())),
        Segment::Unknown => None,
    };
    path.iter().map_while(leg).collect()
}

/// Returns the value at a path. A string that equals a field name counts as the value of that field.
fn at<'v>(value: &'v Value, way: &[Leg]) -> Option<&'v Value> {
    way.iter().try_fold(value, |value, leg| match leg {
        // The string stands for an object that would have this field.
        Leg::Field(name) if value.as_str() == Some(name) => Some(value),
        Leg::Field(name) => value.get(name),
        Leg::Index(index) => value.get(index),
    })
}

/// Returns the strings that are valid at a path, taken from the error for a string that is not.
fn valid_strings<T: DeserializeOwned>(value: &mut Value, way: &[Leg]) -> Option<String> {
    let slot = way.iter().try_fold(&mut *value, |value, leg| match leg {
        Leg::Field(name) => value.get_mut(name),
        Leg::Index(index) => value.get_mut(index),
    })?;
    *slot = Value::from("\u{0}");
    let (_, message) = refused::<T>(value)?;
    let (_, strings) = message.split_once("`, expected ")?;
    message
        .starts_with("unknown variant")
        .then(|| strings.to_owned())
}

/// Formats a path as it would be written in a program.
fn written(way: &[Leg]) -> String {
    let mut text = String::new();
    for leg in way {
        // Writing to a `String` cannot fail.
        let _ = match leg {
            Leg::Index(index) => write!(text, "[{index}]"),
            Leg::Field(name) if text.is_empty() => write!(text, "{name}"),
            Leg::Field(name) => write!(text, ".{name}"),
        };
    }
    text
}

/// The most characters of a text that are shown.
const SHOWN: usize = 60;

/// Formats JSON in short form.
pub fn shown(json: &str) -> String {
    serde_json::from_str(json).map_or_else(|_| quoted(json), |value| short(&value))
}

/// Formats a value in short form.
fn short(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// Returns the beginning of a text.
pub fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(SHOWN);
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Quotes a text in short form.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// Rewords a parser's message about the value at `path`, for the person who wrote that value.
pub fn in_words(path: &str, message: &str, found: Option<&str>) -> String {
    let message = without_lines(message);
    let below = |field: &str| match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    };
    let is = |found: &str| match path {
        "" => format!("it is {found}"),
        path => format!("`{path}` is {found}"),
    };
    if let Some(field) = between(message, "missing field `", "`") {
        return format!("`{}` is missing", below(field));
    }
    if let Some(field) = between(message, "duplicate field `", "`") {
        let field = if path == field {
            path.to_owned()
        } else {
            below(field)
        };
        return format!("`{field}` is given twice");
    }
    if let Some((field, rest)) = split(message, "unknown field `", "`, ") {
        let path = if path.is_empty() { field } else { path };
        return match rest.strip_prefix("expected ") {
            Some(known) => format!("unknown field `{path}`: expected {known}"),
            None => format!("unknown field `{path}`: expected none"),
        };
    }
    if let Some((variant, known)) = split(message, "unknown variant `", "`, expected ") {
        return format!("{}: expected {known}", is(&quoted(variant)));
    }
    if let Some((_, rest)) = split(message, "invalid length ", ", expected ") {
        return format!(
            "{}: expected {}",
            is(found.unwrap_or("a list")),
            expected(rest)
        );
    }
    for begin in ["invalid type: ", "invalid value: "] {
        if let Some((met, rest)) = split(message, begin, ", expected ") {
            let met = found.map_or_else(|| met_as_json(met), str::to_owned);
            return format!("{}: expected {}", is(&met), expected(rest));
        }
    }
    match path {
        "" => message.to_owned(),
        path => format!("`{path}`: {message}"),
    }
}

/// Removes the lines and columns at the end of a message. They do not help: JSON that is read line by line is written
/// by programs.
fn without_lines(mut message: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    while let Some((rest, position)) = message.rsplit_once(" at line ")
        && let Some((line, column)) = position.split_once(" column ")
        && is_number(line)
        && is_number(column)
    {
        message = rest;
    }
    message
}

fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    text.strip_prefix(begin)?.strip_suffix(end)
}

fn split<'t>(text: &'t str, begin: &str, middle: &str) -> Option<(&'t str, &'t str)> {
    text.strip_prefix(begin)?.split_once(middle)
}

/// Converts what a parser found to the terms of JSON.
fn met_as_json(what: &str) -> String {
    let number = |kind: &str| between(what, kind, "`");
    let value = number("integer `").or_else(|| number("floating point `"));
    match (what, value.or_else(|| number("boolean `"))) {
        (_, Some(value)) => value.to_owned(),
        ("map", None) => "an object".to_owned(),
        ("sequence", None) => "a list".to_owned(),
        (other, None) => other.to_owned(),
    }
}

/// Converts what a parser expected to the terms of JSON.
fn expected(what: &str) -> String {
    let range = |least: &str, most: &str| format!("a whole number from {least} to {most}");
    match what {
        "a string" | "a borrowed string" => "a string".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "u8" => range("0", "255"),
        "u16" => range("0", "65535"),
        "u32" => range("0", "4294967295"),
        "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "i16" => range("-32768", "32767"),
        "i32" => range("-2147483648", "2147483647"),
        "i64" => "a whole number".to_owned(),
        "f64" | "f32" => "a number".to_owned(),
        "struct variant" => "an object with one field, which has that name".to_owned(),
        "map with a single key" | "string or map" => {
            "an object with one field, which names what it is".to_owned()
        }
        "unit" | "unit variant" => "the name alone, as a string".to_owned(),
        "a map" => "an object".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is never read")]
    struct Order {
        count: u32,
        items: Vec<String>,
    }

    #[test]
    fn a_problem_in_short_json_is_located_by_its_path_and_in_long_json_by_its_line() {
        let order = |item: &str| format!("{{\"count\": 1,\n\"items\": [\"a\", {item}]}}");
        let message = fit::<Order>(&order("[7]")).unwrap_err();
        assert_eq!(message, "`items[1]` is a list: expected a string");
        let long = format!("\"{}\", 7", "x".repeat(REPARSED_MAX));
        let message = fit::<Order>(&order(&long)).unwrap_err();
        assert!(message.starts_with("at line 2, column "), "{message}");
        assert!(
            message.ends_with(": it is 7: expected a string"),
            "{message}"
        );
    }

    #[test]
    fn a_message_of_our_own_is_passed_on() {
        let message = in_words(
            "a.b",
            "7 is not a time at line 1 column 3 at line 4 column 5",
            None,
        );
        assert_eq!(message, "`a.b`: 7 is not a time");
        assert_eq!(
            in_words("", "at line 1 of the log", None),
            "at line 1 of the log"
        );
    }
}
