//! Where values come from: flags, the environment, a file. What is in none of the lists is refused by name.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use super::keys::{KEYS, Key};
use super::{SettingError, hidden};

/// What the command line gives.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// The file to read, when it is named.
    pub config: Option<PathBuf>,
    /// Values by the name of their key, and the flag they came with.
    pub values: Vec<(String, String, &'static str)>,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// That flag.
    Flag(&'static str),
    /// That variable of the environment.
    Environment(String),
    /// That file.
    File(PathBuf),
    /// Nobody gave it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => write!(f, "default"),
        }
    }
}

/// A value as it was given.
#[derive(Clone, Debug)]
pub enum Given {
    /// Text, from a flag or the environment.
    Text(String),
    /// A value of the file.
    Toml(Value),
}

impl Given {
    /// The value as text, whatever it is.
    pub(super) fn plain(&self) -> String {
        match self {
            Self::Text(text) | Self::Toml(Value::String(text)) => text.trim().to_owned(),
            Self::Toml(value) => value.to_string(),
        }
    }

    pub(super) fn text(&self) -> Result<String, String> {
        let text = match self {
            Self::Text(text) | Self::Toml(Value::String(text)) => text.trim(),
            Self::Toml(_) => return Err("write it as text, in quotes".to_owned()),
        };
        if text.is_empty() {
            return Err("it is empty: leave it out, or write something".to_owned());
        }
        Ok(text.to_owned())
    }

    pub(super) fn count(&self, least: usize) -> Result<usize, String> {
        let count = match self {
            Self::Text(text) => text.trim().replace('_', "").parse().ok(),
            Self::Toml(Value::Integer(number)) => usize::try_from(*number).ok(),
            Self::Toml(_) => None,
        };
        count
            .filter(|count| *count >= least)
            .ok_or_else(|| format!("write a whole number, {least} at least"))
    }

    pub(super) fn millis(&self) -> Result<Duration, String> {
        // A day is longer than anything here may last.
        const MOST: usize = 24 * 3600 * 1000;
        match self.count(1) {
            Ok(count) if count <= MOST => Ok(Duration::from_millis(count as u64)),
            _ => Err(format!("write milliseconds, from 1 to {MOST}")),
        }
    }

    pub(super) fn table(&self) -> Result<&Value, String> {
        match self {
            Self::Toml(value) => Ok(value),
            Self::Text(_) => Err("write it in the file, as [[hooks]]".to_owned()),
        }
    }

    /// The value as an error may show it.
    pub(super) fn shown(&self, key: &Key) -> String {
        match key.name {
            "hooks" | "nats.password" | "nats.token" => "…".to_owned(),
            "store" | "otel_endpoint" | "nats.url" => format!("{:?}", hidden(&self.plain())),
            _ => format!("{:?}", self.plain()),
        }
    }
}

/// Variables that are no settings: what the client says, what names the file, and what the tests of abide go by.
const OTHER_VARIABLES: [&str; 2] = ["ABIDE_TOKEN", "ABIDE_CONFIG"];
const TEST_VARIABLES: &str = "ABIDE_TEST_";

type Found = Vec<(&'static Key, Given, Source)>;

/// All that was given, the weakest first.
pub(super) fn gather(
    flags: &Flags,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Found, SettingError> {
    let (mut variables, mut config) = (Vec::new(), flags.config.clone());
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with("ABIDE_")) else {
            continue;
        };
        let named = config.is_none() && name == "ABIDE_CONFIG" && !value.is_empty();
        if named {
            config = Some(PathBuf::from(&value));
        }
        if OTHER_VARIABLES.contains(&name) || name.starts_with(TEST_VARIABLES) {
            continue;
        }
        variables.push(from_variable(name, value)?);
    }
    let mut found = from_file(config)?;
    found.extend(variables);
    for (name, value, flag) in &flags.values {
        let key = known(name)
            .ok_or_else(|| unknown("key", name, KEYS.iter().map(|key| key.name.to_owned())))?;
        found.push((key, Given::Text(value.clone()), Source::Flag(flag)));
    }
    Ok(found)
}

fn from_variable(
    name: &str,
    value: OsString,
) -> Result<(&'static Key, Given, Source), SettingError> {
    let Some(key) = KEYS.iter().find(|key| key.variable() == name) else {
        let others = OTHER_VARIABLES.iter().map(|&other| other.to_owned());
        return Err(unknown(
            "variable",
            name,
            KEYS.iter().map(Key::variable).chain(others),
        ));
    };
    let value = value
        .into_string()
        .map_err(|_| SettingError(format!("{name} is no UTF-8 text")))?;
    Ok((
        key,
        Given::Text(value),
        Source::Environment(name.to_owned()),
    ))
}

/// The values of the file that is named, or of the user's own when there is one.
fn from_file(named: Option<PathBuf>) -> Result<Found, SettingError> {
    let path = match named {
        Some(path) => path,
        None => match super::place::default_config().filter(|path| path.is_file()) {
            Some(path) => path,
            None => return Ok(Vec::new()),
        },
    };
    let bad = |problem: String| SettingError(format!("{}: {problem}", path.display()));
    let text =
        std::fs::read_to_string(&path).map_err(|error| bad(format!("cannot be read: {error}")))?;
    let table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| bad(no_toml(&text, &error)))?;
    let mut found = Vec::new();
    for (name, value) in table {
        match value {
            Value::Table(inner)
                if KEYS
                    .iter()
                    .any(|key| key.name.starts_with(&format!("{name}."))) =>
            {
                for (last, value) in inner {
                    found.push(from_entry(&format!("{name}.{last}"), value, &path)?);
                }
            }
            value => found.push(from_entry(&name, value, &path)?),
        }
    }
    Ok(found)
}

fn from_entry(
    name: &str,
    value: Value,
    path: &Path,
) -> Result<(&'static Key, Given, Source), SettingError> {
    let key = known(name).ok_or_else(|| {
        let SettingError(problem) =
            unknown("key", name, KEYS.iter().map(|key| key.name.to_owned()));
        SettingError(format!("{}: {problem}", path.display()))
    })?;
    Ok((key, Given::Toml(value), Source::File(path.to_owned())))
}

fn known(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// That there is no such name, and the one that it is most like.
pub(crate) fn unknown(what: &str, name: &str, names: impl Iterator<Item = String>) -> SettingError {
    let nearest = names
        .min_by_key(|known| distance(name, known))
        .unwrap_or_default();
    SettingError(format!(
        "there is no {what} {name:?}; the nearest is {nearest}. `abide config` shows all of them"
    ))
}

/// How many letters must be changed, added or taken away to make one text of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.to_lowercase().chars().enumerate() {
        let mut last = i + 1;
        let mut next = vec![last];
        for (pair, b) in row.windows(2).zip(&other) {
            let (diagonal, above) = (
                pair.first().copied().unwrap_or(0),
                pair.last().copied().unwrap_or(0),
            );
            last = (diagonal + usize::from(a != *b))
                .min(above + 1)
                .min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

/// Where a text stops being TOML. The line itself is not shown: it may have a secret in it.
fn no_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.unwrap_or_default().matches('\n').count() + 1;
    format!("is no TOML: line {line}: {}", error.message())
}
