//! Explains why JSON does not match a type, for the person who wrote it: where the problem is, what is there, and what
//! is expected.

mod read;

use std::fmt::{self, Write as _};

use serde::de::{self, DeserializeOwned, Expected, Unexpected};
use serde_json::Value;
use serde_json::value::RawValue;

/// Reads JSON as a `T`. The error explains what does not match.
pub fn fit<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| why::<T>(json.as_bytes(), &error))
}

/// Returns the field that prevents an object from being read as a `T`.
pub fn field<T: DeserializeOwned>(value: &Value) -> Option<String> {
    let unfit = read::json::<T>(&value.to_string()).err()?;
    match unfit.place?.legs.into_iter().next()? {
        Leg::Field(name) => Some(name),
        Leg::Index(_) => None,
    }
}

/// Explains why a parser rejected JSON with that error. Reads the JSON once more, slowly, to find the problem.
pub fn why<T: DeserializeOwned>(json: &[u8], error: &serde_json::Error) -> String {
    match serde_json::from_slice::<&RawValue>(json) {
        Ok(json) => match read::json::<T>(json.get()) {
            Ok(_) => error.to_string(),
            Err(unfit) => unfit.to_string(),
        },
        Err(error) => format!("not JSON: {error}"),
    }
}

/// Explains why the parameters of a query cannot be read as a `T`; `None` if they can.
pub fn query<T: DeserializeOwned>(pairs: &[(String, String)]) -> Option<String> {
    let unfit = read::query::<T>(pairs).err()?;
    Some(unfit.to_string())
}

/// An error of a reader: the problem with a value, and the value's place. The parts are kept as serde gives them, because
/// the texts of other parsers' errors differ and are not for the author of the value.
#[derive(Debug)]
struct Unfit {
    problem: Problem,
    /// Set by the innermost reader that knows it.
    place: Option<Place>,
}

#[derive(Debug)]
enum Problem {
    Missing(&'static str),
    GivenTwice(&'static str),
    UnknownField(String, &'static [&'static str]),
    UnknownVariant(String, &'static [&'static str]),
    /// The value is not what is expected, in the terms of JSON.
    Expected(String),
    Other(String),
}

/// The place of a value.
#[derive(Debug)]
struct Place {
    legs: Vec<Leg>,
    /// The value there, in short form.
    found: String,
}

/// One segment of the path to a value.
#[derive(Debug)]
enum Leg {
    Field(String),
    Index(usize),
}

impl Place {
    /// Returns the path to show with a problem.
    fn path_for(&self, problem: &Problem) -> &[Leg] {
        match (problem, self.legs.as_slice()) {
            // The name of a variant is the value itself, also if it is written as a field.
            (Problem::UnknownVariant(variant, _), [legs @ .., Leg::Field(last)])
                if last == variant =>
            {
                legs
            }
            (_, legs) => legs,
        }
    }
}

impl Unfit {
    fn expected(what: impl Into<String>) -> Self {
        Problem::Expected(what.into()).into()
    }

    /// Adds the place, if it is not known yet.
    fn at(mut self, place: impl FnOnce() -> Place) -> Self {
        self.place.get_or_insert_with(place);
        self
    }
}

impl From<Problem> for Unfit {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            place: None,
        }
    }
}

impl std::error::Error for Unfit {}

impl de::Error for Unfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::Other(message.to_string()).into()
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected(in_json(&expected.to_string()))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected(in_json(&expected.to_string()))
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::expected(in_json(&expected.to_string()))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Problem::UnknownVariant(variant.to_owned(), expected).into()
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Problem::UnknownField(field.to_owned(), expected).into()
    }

    fn missing_field(field: &'static str) -> Self {
        Problem::Missing(field).into()
    }

    fn duplicate_field(field: &'static str) -> Self {
        Problem::GivenTwice(field).into()
    }
}

/// Describes the problem for the person who wrote the value.
impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.as_ref();
        let legs = place.map_or(&[][..], |place| place.path_for(&self.problem));
        let path = written(legs);
        let below = |field: &str| match path.as_str() {
            "" => field.to_owned(),
            path => format!("{path}.{field}"),
        };
        let is = |found: &str| match path.as_str() {
            "" => format!("it is {found}"),
            path => format!("`{path}` is {found}"),
        };
        match &self.problem {
            Problem::Missing(field) => write!(f, "`{}` is missing", below(field)),
            Problem::GivenTwice(field) => write!(f, "`{}` is given twice", below(field)),
            Problem::UnknownField(field, known) => {
                // The place is that of the field, if the reader saw its name.
                let path = match legs.last() {
                    Some(Leg::Field(last)) if last == field => path,
                    _ => below(field),
                };
                write!(f, "unknown field `{path}`: expected {}", one_of(known))
            }
            Problem::UnknownVariant(variant, known) => {
                write!(f, "{}: expected {}", is(&quoted(variant)), one_of(known))
            }
            Problem::Expected(what) => {
                let found = place.map_or("unreadable", |place| &place.found);
                write!(f, "{}: expected {what}", is(found))
            }
            Problem::Other(message) if path.is_empty() => f.write_str(message),
            Problem::Other(message) => write!(f, "`{path}`: {message}"),
        }
    }
}

/// Formats a path as it would be written in a program.
fn written(legs: &[Leg]) -> String {
    let mut text = String::new();
    for leg in legs {
        // Writing to a `String` cannot fail.
        let _ = match leg {
            Leg::Index(index) => write!(text, "[{index}]"),
            Leg::Field(name) if text.is_empty() => write!(text, "{name}"),
            Leg::Field(name) => write!(text, ".{name}"),
        };
    }
    text
}

/// Lists the names that are known.
fn one_of(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => format!("`{one}`"),
        [one, other] => format!("`{one}` or `{other}`"),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("one of {}", names.join(", "))
        }
    }
}

/// The most characters of a text that are shown.
const SHOWN: usize = 60;

/// Formats JSON in short form.
pub fn shown(json: &str) -> String {
    match json.as_bytes().first() {
        Some(b'[') => "a list".to_owned(),
        Some(b'{') => "an object".to_owned(),
        Some(b'"') => match serde_json::from_str::<String>(json) {
            Ok(text) => quoted(&text),
            Err(_) => quoted(json),
        },
        _ => cut(json).to_owned(),
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

/// Converts what a Rust type expects to the terms of JSON.
fn in_json(what: &str) -> String {
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
        "unit" | "unit variant" => "the name alone, as a string".to_owned(),
        "newtype variant" | "tuple variant" | "struct variant" => {
            "an object with one field, which has that name".to_owned()
        }
        "enum" | "fewer elements in map" => {
            "an object with one field, which names what it is".to_owned()
        }
        "a map" => "an object".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is never read")]
    struct Order {
        count: u32,
        items: Vec<String>,
        #[serde(default)]
        counts: BTreeMap<u16, bool>,
        #[serde(default)]
        pair: Option<(u8, Box<RawValue>)>,
        #[serde(default)]
        way: Option<Way>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[expect(dead_code, reason = "it is never read")]
    enum Way {
        Walk,
        Drive(u8),
        Fly { from: String },
    }

    fn problem(rest: &str) -> String {
        let order = format!("{{\"count\": 1, \"items\": [], {rest}}}");
        fit::<Order>(&order).unwrap_err()
    }

    #[test]
    fn a_problem_is_located_by_its_path_also_in_long_json() {
        let order = |item: &str| format!("{{\"count\": 1,\n\"items\": [\"a\", {item}]}}");
        let message = fit::<Order>(&order("[7]")).unwrap_err();
        assert_eq!(message, "`items[1]` is a list: expected a string");
        let long = format!("\"{}\", 7", "x".repeat(1 << 20));
        let message = fit::<Order>(&order(&long)).unwrap_err();
        assert_eq!(message, "`items[2]` is 7: expected a string");
        let message = fit::<Order>("{\"count\": 1,").unwrap_err();
        assert!(message.starts_with("not JSON: "), "{message}");
    }

    #[test]
    fn every_kind_of_problem_names_the_field_and_what_is_expected() {
        for (rest, message) in [
            ("\"count\": 2", "`count` is given twice"),
            (
                "\"counts\": {\"1\": true, \"2\": 0}",
                "`counts.2` is 0: expected true or false",
            ),
            (
                "\"counts\": {\"1\": true, \"x\": true}",
                "`counts.x` is \"x\": expected a whole number",
            ),
            (
                "\"pair\": [1]",
                "`pair` is a list: expected a tuple of size 2",
            ),
            (
                "\"pair\": [1, {}, 3]",
                "`pair` is a list: expected fewer elements in array",
            ),
            (
                "\"pair\": [256, {}]",
                "`pair[0]` is 256: expected a whole number from 0 to 255",
            ),
            (
                "\"pair\": [1e999, {}]",
                "`pair[0]` is 1e999: expected a smaller number",
            ),
            (
                "\"way\": \"swim\"",
                "`way` is \"swim\": expected one of `walk`, `drive`, `fly`",
            ),
            (
                "\"way\": {\"swim\": 1}",
                "`way` is \"swim\": expected one of `walk`, `drive`, `fly`",
            ),
            (
                "\"way\": 5",
                "`way` is 5: expected one of `walk`, `drive`, `fly`",
            ),
            (
                "\"way\": {}",
                "`way` is an object: expected an object with one field, which names what it is",
            ),
            (
                "\"way\": {\"walk\": 1}",
                "`way.walk` is 1: expected the name alone, as a string",
            ),
            (
                "\"way\": \"drive\"",
                "`way` is \"drive\": expected an object with one field, which has that name",
            ),
            (
                "\"way\": {\"drive\": \"fast\"}",
                "`way.drive` is \"fast\": expected a whole number from 0 to 255",
            ),
            ("\"way\": {\"fly\": {}}", "`way.fly.from` is missing"),
            (
                "\"way\": {\"fly\": 3}",
                "`way.fly` is 3: expected an object",
            ),
            (
                "\"why\": 1",
                "unknown field `why`: expected one of `count`, `items`, `counts`, `pair`, `way`",
            ),
        ] {
            assert_eq!(problem(rest), message, "{rest}");
        }
    }

    #[test]
    fn what_fits_is_read_as_by_the_parser() {
        let text = "{\"count\": 1, \"items\": [\"\\u00e4\"], \"counts\": {\"7\": true}, \
                    \"pair\": [1, {\"a\" : [null]}], \"way\": {\"fly\": {\"from\": \"x\"}}}";
        let parsed: Order = serde_json::from_str(text).unwrap();
        let again: Order = read::json(text).unwrap();
        assert_eq!(format!("{again:?}"), format!("{parsed:?}"));
        let value: Value = read::json(text).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn json_that_is_nested_too_deeply_is_refused() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let message = read::json::<Value>(&deep).unwrap_err().to_string();
        assert!(
            message.ends_with("below too many levels of JSON"),
            "{message}"
        );
    }

    #[test]
    fn a_message_of_a_type_is_passed_on_with_the_path() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it is never read")]
        struct Due {
            at: abide_core::model::Timestamp,
        }
        let message = fit::<Due>("{\"at\": \"soon\"}").unwrap_err();
        assert!(
            message.starts_with("`at`: \"soon\" is not a time"),
            "{message}"
        );
    }
}
