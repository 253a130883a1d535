//! Values on the command line: `name=value` pairs, or JSON.

use std::io::Read;

use abide::message::Arguments;
use abide::model::Json;

use super::failure::{Failure, Result};

/// The values that were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// Nothing.
    Nothing,
    /// An object, made of pairs.
    Object(Json),
    /// One JSON document.
    One(Json),
    /// Several JSON documents.
    Several(Vec<Json>),
}

impl Given {
    /// Parses the arguments after the name.
    pub fn read(words: &[String]) -> Result<Self> {
        if words.is_empty() {
            return Ok(Self::Nothing);
        }
        let mut pairs: Vec<(String, Json)> = Vec::new();
        let mut documents = Vec::new();
        for word in words {
            match pair(word)? {
                Some((name, _)) if pairs.iter().any(|(known, _)| *known == name) => {
                    return Err(Failure::usage(format!("{name} is given twice"))
                        .next(format!("the same with one {name}=…")));
                }
                Some(pair) => pairs.push(pair),
                None => documents.push(document(word)?),
            }
        }
        match (pairs.is_empty(), documents.len()) {
            (false, 0) => Ok(Self::Object(object(&pairs)?)),
            (true, 1) => Ok(documents.pop().map_or(Self::Nothing, Self::One)),
            (true, _) => Ok(Self::Several(documents)),
            _ => Err(
                Failure::usage("there are name=value pairs and JSON together: give either")
                    .next("the same with all of it in one JSON object, or all of it in pairs"),
            ),
        }
    }

    /// Converts the values to the arguments of a signal or an update.
    pub fn arguments(self) -> Arguments {
        match self {
            Self::Nothing => Arguments::default(),
            Self::Object(json) | Self::One(json) => Arguments::Payload(json),
            Self::Several(values) => Arguments::Positional(values),
        }
    }

    /// Converts the values to one document. Returns `None` if none were given.
    pub fn one(self) -> Result<Option<Json>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Object(json) | Self::One(json) => Ok(Some(json)),
            Self::Several(_) => Err(Failure::usage(
                "there are several JSON documents: give one, or name=value pairs",
            )
            .next("the same with one JSON list: '[1, 2]'")),
        }
    }
}

/// Reads a document: JSON, `@file`, or `-` for standard input.
pub fn document(word: &str) -> Result<Json> {
    let (text, from) = match word.strip_prefix('@') {
        Some(path) => {
            let read = std::fs::read_to_string(path).map_err(|error| {
                Failure::usage(format!("{path} cannot be read: {error}"))
                    .next(format!("ls -l {}", super::failure::shell_quoted(path)))
            })?;
            (read, path)
        }
        None if word == "-" => {
            let mut read = String::new();
            std::io::stdin()
                .read_to_string(&mut read)
                .map_err(|error| {
                    Failure::usage(format!("standard input cannot be read: {error}"))
                        .next("the same with the JSON as an argument")
                })?;
            (read, "standard input")
        }
        None => (word.to_owned(), word),
    };
    Json::parse(text.trim().to_owned()).map_err(|error| {
        let shown = super::text::cut(from, 60);
        Failure::usage(format!("{shown:?} is neither name=value nor JSON: {error}"))
            .next("the same with name=value, or with quotes around JSON: '{\"amount\": 1}'")
    })
}

/// Parses a pair. Returns `None` if the argument is not a pair.
fn pair(word: &str) -> Result<Option<(String, Json)>> {
    // JSON may contain `=` in its strings, and a file in its name.
    if word.starts_with(['{', '[', '"', '@']) {
        return Ok(None);
    }
    let Some((name, value)) = word.split_once('=') else {
        return Ok(None);
    };
    let (name, value) = if let Some(name) = name.strip_suffix(':') {
        let json = Json::parse(value.to_owned()).map_err(|error| {
            Failure::usage(format!(
                "{name}:= takes JSON, and {value:?} is none: {error}"
            ))
            .next(format!("the same with {name}=={value}, for a text"))
        })?;
        (name, json)
    } else if let Some(text) = value.strip_prefix('=') {
        (name, text_of(text)?)
    } else {
        match Json::parse(value.to_owned()) {
            Ok(json) => (name, json),
            Err(_) => (name, text_of(value)?),
        }
    };
    match name.is_empty() {
        true => Err(Failure::usage(format!("{word:?} has no name before the ="))
            .next("the same with name=value")),
        false => Ok(Some((name.to_owned(), value))),
    }
}

fn text_of(text: &str) -> Result<Json> {
    Json::of(text).map_err(|error| Failure::usage(error.to_string()))
}

/// Joins the pairs to one object. Values stay as they are written.
fn object(pairs: &[(String, Json)]) -> Result<Json> {
    let mut text = String::from("{");
    for (index, (name, value)) in pairs.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(text_of(name)?.as_str());
        text.push(':');
        text.push_str(value.as_str());
    }
    text.push('}');
    Json::parse(text).map_err(|error| Failure::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Given> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Given::read(&words)
    }

    #[test]
    fn a_value_is_json_when_it_reads_as_json_and_else_a_text() {
        let given = read(&[
            "n=1.50", "t=Ada", "b=true", "z=null", "q=\"7\"", "l=[1]", "x==7", "j:={}", "e=",
            "u=ü=b",
        ]);
        let Ok(Given::Object(json)) = given else {
            panic!("{given:?}");
        };
        let expected = r#"{"n":1.50,"t":"Ada","b":true,"z":null,"q":"7","l":[1],"x":"7","j":{},"e":"","u":"ü=b"}"#;
        assert_eq!(json.as_str(), expected);
    }

    #[test]
    fn json_is_taken_whole_and_several_values_are_arguments_by_position() {
        assert_eq!(
            read(&[r#"{"a":"b=c"}"#]).ok(),
            Json::parse(r#"{"a":"b=c"}"#.into()).ok().map(Given::One)
        );
        assert!(matches!(read(&["1", "\"two\""]), Ok(Given::Several(values)) if values.len() == 2));
        assert!(matches!(read(&[]), Ok(Given::Nothing)));
    }

    #[test]
    fn what_cannot_be_read_is_wrong_usage() {
        for wrong in [
            vec!["hello"],
            vec!["a:=hello"],
            vec!["=1"],
            vec!["a=1", "a=2"],
            vec!["a=1", "{}"],
            vec!["@/no/such/file"],
        ] {
            let failure = read(&wrong).map(drop).unwrap_err();
            assert_eq!(
                failure.exit,
                super::super::failure::Exit::Usage,
                "{wrong:?}"
            );
            assert!(failure.next.is_some(), "{wrong:?}");
        }
    }
}
