//! The sources of values: flags, the environment, a file. Unknown names are refused.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use abide_kernel::rules::similar::distance;
use toml::{Table, Value};

use super::keys::{KEYS, SettingKey};
use super::{SettingError, hidden};

/// The values from the command line.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// The path of the settings file, if given.
    pub config: Option<PathBuf>,
    /// Values: the name of the key, the value, and the flag that gave it.
    pub values: Vec<(String, String, &'static str)>,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag.
    Flag(&'static str),
    /// An environment variable.
    Environment(String),
    /// A file.
    File(PathBuf),
    /// The default, because no source gave the value.
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
    /// Text from a flag or the environment.
    Text(String),
    /// A value of the file.
    Toml(Value),
}

impl Given {
    /// The value as text, of any type.
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

    /// Parses a whole number that is not below `LEAST`.
    pub(super) fn count<const LEAST: usize>(&self) -> Result<usize, String> {
        let count = match self {
            Self::Text(text) => text.trim().replace('_', "").parse().ok(),
            Self::Toml(Value::Integer(number)) => usize::try_from(*number).ok(),
            Self::Toml(_) => None,
        };
        count
            .filter(|count| *count >= LEAST)
            .ok_or_else(|| format!("write a whole number, {LEAST} at least"))
    }

    pub(super) fn millis(&self) -> Result<Duration, String> {
        self.millis_from::<1>()
    }

    /// Parses milliseconds, where 0 means that the time is not used.
    pub(super) fn millis_or_none(&self) -> Result<Duration, String> {
        self.millis_from::<0>()
    }

    fn millis_from<const LEAST: usize>(&self) -> Result<Duration, String> {
        // One day is more than any of these times needs.
        const MOST: usize = 24 * 3600 * 1000;
        match self.count::<LEAST>() {
            Ok(count) if count <= MOST => Ok(Duration::from_millis(count as u64)),
            _ => Err(format!("write milliseconds, from {LEAST} to {MOST}")),
        }
    }

    pub(super) fn table(&self) -> Result<&Value, String> {
        match self {
            Self::Toml(value) => Ok(value),
            Self::Text(_) => Err("write it in the file, as [[hooks]]".to_owned()),
        }
    }

    /// The value as error messages may show it.
    pub(super) fn shown(&self, key: &SettingKey) -> String {
        match key.name {
            // For `tls.key`, the key itself may have been given instead of the path of its file.
            "hooks" | "nats.password" | "nats.token" | "bootstrap_token" | "tls.key" => {
                "…".to_owned()
            }
            "store" | "otel_endpoint" | "nats.url" => format!("{:?}", hidden(&self.plain())),
            _ => format!("{:?}", self.plain()),
        }
    }
}

/// Variables that are not settings: those of the client, the one that names the file, and those of abide's own tests.
const OTHER_VARIABLES: [&str; 3] = ["ABIDE_TOKEN", "ABIDE_TOKEN_FILE", "ABIDE_CONFIG"];
const TEST_VARIABLES: &str = "ABIDE_TEST_";

/// Maximum number of characters by which a variable may differ from a setting's to count as misspelled.
const NEAR_MISS: usize = 2;

type Found = Vec<(&'static SettingKey, Given, Source)>;

/// Collects all given values, those with the lowest precedence first, and the names of variables that are not settings.
///
/// A variable that is nearly a setting is an error. Others may belong to the platform: Kubernetes sets
/// `ABIDE_SERVICE_HOST` and `ABIDE_PORT` for a service that is named `abide`.
pub(super) fn gather(
    flags: &Flags,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(Found, Vec<String>), SettingError> {
    let (mut variables, mut config) = (Vec::new(), flags.config.clone());
    let mut ignored = Vec::new();
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
        match from_variable(name, value)? {
            Some(variable) => variables.push(variable),
            None => ignored.push(name.to_owned()),
        }
    }
    ignored.sort_unstable();
    let mut found = from_file(config)?;
    found.extend(variables);
    for (name, value, flag) in &flags.values {
        let key = known(name)
            .ok_or_else(|| unknown("key", name, KEYS.iter().map(|key| key.name.to_owned())))?;
        found.push((key, Given::Text(value.clone()), Source::Flag(flag)));
    }
    Ok((found, ignored))
}

/// Reads the setting that a variable gives. Returns `None` if it is neither a setting nor nearly one.
fn from_variable(
    name: &str,
    value: OsString,
) -> Result<Option<(&'static SettingKey, Given, Source)>, SettingError> {
    let Some(key) = KEYS.iter().find(|key| key.variable() == name) else {
        if let Some(key) = in_file(name) {
            let source = Source::Environment(name.to_owned());
            return Ok(Some((key, read_secret(name, &value)?, source)));
        }
        let others = OTHER_VARIABLES.iter().map(|&other| other.to_owned());
        let known = KEYS.iter().map(SettingKey::variable).chain(others);
        let known: Vec<String> = known.collect();
        let is_near = |known: &String| distance(name, known) <= NEAR_MISS;
        return match known.iter().any(is_near) {
            true => Err(unknown("variable", name, known.into_iter())),
            false => Ok(None),
        };
    };
    let value = value
        .into_string()
        .map_err(|_| SettingError(format!("{name} is not UTF-8 text")))?;
    let source = Source::Environment(name.to_owned());
    Ok(Some((key, Given::Text(value), source)))
}

/// Suffix of a variable that names a file with the value in it, as secrets are mounted.
const IN_FILE: &str = "_FILE";

/// Returns the setting whose value is in the file that a variable names.
fn in_file(name: &str) -> Option<&'static SettingKey> {
    let variable = name.strip_suffix(IN_FILE)?;
    KEYS.iter().find(|key| key.variable() == variable)
}

/// Maximum size of such a file, in bytes.
const SECRET_BYTES: u64 = 64 << 10;

fn read_secret(name: &str, path: &std::ffi::OsStr) -> Result<Given, SettingError> {
    use std::io::Read as _;
    let path = Path::new(path);
    let bad = |problem: String| SettingError(format!("{name} = {}: {problem}", path.display()));
    let mut text = String::new();
    let file =
        std::fs::File::open(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
    let read = file.take(SECRET_BYTES + 1).read_to_string(&mut text);
    match read {
        Ok(read) if read as u64 > SECRET_BYTES => {
            Err(bad(format!("is over the limit of {SECRET_BYTES} bytes")))
        }
        Ok(_) => Ok(Given::Text(text.trim_end_matches(['\r', '\n']).to_owned())),
        Err(error) => Err(bad(format!("cannot be read: {error}"))),
    }
}

/// Reads the values of the given file, or of the user's settings file if it exists.
fn from_file(named: Option<PathBuf>) -> Result<Found, SettingError> {
    let path = match named {
        Some(path) => path,
        None => match super::paths::default_config().filter(|path| path.is_file()) {
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
) -> Result<(&'static SettingKey, Given, Source), SettingError> {
    let key = known(name).ok_or_else(|| {
        let SettingError(problem) =
            unknown("key", name, KEYS.iter().map(|key| key.name.to_owned()));
        SettingError(format!("{}: {problem}", path.display()))
    })?;
    Ok((key, Given::Toml(value), Source::File(path.to_owned())))
}

fn known(name: &str) -> Option<&'static SettingKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// The error for an unknown name, with the most similar known name.
pub(crate) fn unknown(what: &str, name: &str, names: impl Iterator<Item = String>) -> SettingError {
    let nearest = names
        .min_by_key(|known| distance(name, known))
        .unwrap_or_default();
    SettingError(format!(
        "unknown {what} {name:?}; the nearest is {nearest}. `abide config` shows all of them"
    ))
}

/// Describes where a text is not valid TOML. The line itself is not shown, because it may contain a secret.
fn no_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.unwrap_or_default().matches('\n').count() + 1;
    format!("is not valid TOML: line {line}: {}", error.message())
}
