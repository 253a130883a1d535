//! Parses `[[hooks]]` of the settings file.

use std::time::Duration;

use abide::model::{Name, Path};
use axum::http::HeaderName;
use serde::Deserialize;
use toml::{Table, Value};

use super::Hook;
use super::mapping::{Rule, Test, Text, What};
use super::scheme::{Encoding, Scheme, Secret};

/// Default limit, in seconds, for the difference between a signed time and the current time.
const TOLERANCE_S: u64 = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookEntry {
    source: String,
    scheme: SchemeName,
    secret: Option<String>,
    #[serde(default)]
    secrets: Vec<String>,
    tolerance_s: Option<u64>,
    header: Option<String>,
    encoding: Option<Encoding>,
    prefix: Option<String>,
    timestamp_header: Option<String>,
    #[serde(default)]
    rules: Vec<RuleEntry>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum SchemeName {
    Standard,
    Stripe,
    Github,
    Slack,
    Hmac,
    None,
}

/// A rule. A source with a single rule may have these fields without `rules`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    #[serde(default)]
    when: Tests,
    signal: Option<TextEntry>,
    target: Option<TextEntry>,
    dedup: Option<TextEntry>,
    hold_for_ms: Option<u64>,
    event: Option<TextEntry>,
    event_id: Option<TextEntry>,
    payload: Option<Path>,
}

const RULE_FIELDS: [&str; 8] = [
    "when",
    "signal",
    "target",
    "dedup",
    "hold_for_ms",
    "event",
    "event_id",
    "payload",
];

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "write when = {path = \"…\", equals = …}, or a list of such"
)]
enum Tests {
    One(TestEntry),
    Many(Vec<TestEntry>),
}

impl Default for Tests {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestEntry {
    path: Option<Path>,
    header: Option<String>,
    equals: Value,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "write a text, {from = \"dot.path\", prefix = \"…\"} or {header = \"name\"}"
)]
enum TextEntry {
    Constant(String),
    Found(FoundEntry),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FoundEntry {
    from: Option<Path>,
    header: Option<String>,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    id: bool,
}

/// Parses the sources. Secrets that are only named are not fetched here: only the serving process needs them, and other
/// commands may not have the permission to read them.
pub(crate) fn read(value: &Value) -> Result<Vec<Hook>, String> {
    let Value::Array(entries) = value else {
        return Err("write it as [[hooks]], one for each source".to_owned());
    };
    entries.iter().map(hook).collect()
}

/// Describes the sources without their secrets.
pub(crate) fn shown(hooks: &[Hook]) -> String {
    if hooks.is_empty() {
        return "none".to_owned();
    }
    let one = |hook: &Hook| format!("{} ({})", hook.source, hook.scheme.name());
    hooks.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn hook(value: &Value) -> Result<Hook, String> {
    let Value::Table(table) = value else {
        return Err("write it as [[hooks]], one for each source".to_owned());
    };
    let named = table
        .get("source")
        .and_then(Value::as_str)
        .unwrap_or("?")
        .to_owned();
    entry(table.clone()).map_err(|problem| format!("the source {named:?}: {problem}"))
}

fn entry(mut table: Table) -> Result<Hook, String> {
    let mut own = Table::new();
    for field in RULE_FIELDS {
        own.extend(table.remove_entry(field));
    }
    let entry: HookEntry = table.try_into().map_err(message)?;
    Name::new(&entry.source).map_err(|refusal| refusal.to_string())?;
    let mut rules: Vec<Rule> = entry
        .rules
        .into_iter()
        .map(rule)
        .collect::<Result<_, _>>()?;
    if !own.is_empty() {
        if !rules.is_empty() {
            return Err(
                "it has `rules` and fields of a rule beside them: put these into a rule".to_owned(),
            );
        }
        rules.push(rule(own.try_into().map_err(message)?)?);
    }
    if rules.is_empty() {
        return Err("it has no action: write signal and target, or event, or rules".to_owned());
    }
    let mut written = entry.secrets;
    written.extend(entry.secret);
    let is_hmac = entry.scheme == SchemeName::Hmac;
    let for_hmac = entry.header.is_some()
        || entry.encoding.is_some()
        || entry.prefix.is_some()
        || entry.timestamp_header.is_some();
    if !is_hmac && for_hmac {
        return Err(
            "header, encoding, prefix and timestamp_header are for the scheme hmac".to_owned(),
        );
    }
    let scheme = match entry.scheme {
        SchemeName::Standard => Scheme::Standard,
        SchemeName::Stripe => Scheme::Stripe,
        SchemeName::Github => Scheme::Github,
        SchemeName::Slack => Scheme::Slack,
        SchemeName::None => Scheme::None,
        SchemeName::Hmac => Scheme::Hmac {
            header: header(entry.header.as_deref().ok_or(
                "the scheme hmac needs `header`: the name of the one with the signature",
            )?)?,
            encoding: entry.encoding.unwrap_or(Encoding::Hex),
            prefix: entry.prefix.unwrap_or_default(),
            timestamp: entry.timestamp_header.as_deref().map(header).transpose()?,
        },
    };
    if (scheme == Scheme::None) != written.is_empty() {
        return Err(
            "give a `secret` (or `secrets`), or the scheme none, which asks for no proof"
                .to_owned(),
        );
    }
    let (elsewhere, here): (Vec<String>, Vec<String>) =
        written.into_iter().partition(|text| is_elsewhere(text));
    let secrets = here
        .iter()
        .map(|text| Secret::new(text.trim(), &scheme))
        .collect::<Result<_, _>>()?;
    let tolerance = Duration::from_secs(entry.tolerance_s.unwrap_or(TOLERANCE_S));
    Ok(Hook {
        source: entry.source,
        scheme,
        secrets,
        elsewhere,
        tolerance,
        rules,
    })
}

fn rule(entry: RuleEntry) -> Result<Rule, String> {
    let when = match entry.when {
        Tests::One(one) => vec![one],
        Tests::Many(many) => many,
    };
    let when = when.into_iter().map(test).collect::<Result<_, _>>()?;
    let what = match (entry.signal, entry.event) {
        (Some(signal), None) => What::Signal {
            name: text(signal, false)?,
            target: text(
                entry
                    .target
                    .ok_or("a signal needs `target`: the key or the id of an instance")?,
                true,
            )?,
            dedup: entry.dedup.map(|dedup| text(dedup, false)).transpose()?,
            hold_for: entry.hold_for_ms.map(Duration::from_millis),
        },
        (None, Some(event)) => {
            if entry.target.is_some() || entry.dedup.is_some() || entry.hold_for_ms.is_some() {
                return Err(
                    "target, dedup and hold_for_ms are for signals; an event has `event_id`"
                        .to_owned(),
                );
            }
            What::Event {
                event: text(event, false)?,
                id: entry.event_id.map(|id| text(id, false)).transpose()?,
            }
        }
        (Some(_), Some(_)) => return Err("a rule makes a signal or an event, not both".to_owned()),
        (None, None) => return Err("a rule needs `signal` and `target`, or `event`".to_owned()),
    };
    Ok(Rule {
        when,
        what,
        payload: entry.payload,
    })
}

fn test(entry: TestEntry) -> Result<Test, String> {
    let equals = serde_json::to_value(entry.equals).map_err(|error| error.to_string())?;
    match (entry.path, entry.header) {
        (Some(path), None) => Ok(Test::Body { path, equals }),
        (None, Some(name)) => match equals {
            serde_json::Value::String(equals) => Ok(Test::Header {
                name: header(&name)?,
                equals,
            }),
            _ => Err("a header equals a text".to_owned()),
        },
        _ => Err("`when` looks at a `path` of the body, or at a `header`".to_owned()),
    }
}

fn text(entry: TextEntry, may_be_id: bool) -> Result<Text, String> {
    match entry {
        TextEntry::Constant(text) => Ok(Text::Constant(text)),
        TextEntry::Found(FoundEntry { id: true, .. }) if !may_be_id => {
            Err("only a target can be an `id`".to_owned())
        }
        TextEntry::Found(FoundEntry {
            from: Some(path),
            header: None,
            prefix,
            id,
        }) => Ok(Text::Body { path, prefix, id }),
        TextEntry::Found(FoundEntry {
            from: None,
            header: Some(name),
            prefix,
            id,
        }) => Ok(Text::Header {
            name: header(&name)?,
            prefix,
            id,
        }),
        TextEntry::Found(_) => {
            Err("write `from`, a path of the body, or `header`, and one of them only".to_owned())
        }
    }
}

fn header(name: &str) -> Result<HeaderName, String> {
    name.to_ascii_lowercase()
        .parse()
        .map_err(|_| format!("{name:?} is not a header name"))
}

fn message(error: toml::de::Error) -> String {
    error.message().to_owned()
}

/// `true` if a secret is named, not given: `env:NAME` or `file:PATH`.
fn is_elsewhere(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

impl Hook {
    /// Fetches the named secrets from the environment or from files. Until then their signatures are not accepted.
    pub(crate) fn fetch(&mut self) -> Result<(), String> {
        for reference in &self.elsewhere {
            let secret = Secret::fetch(reference, &self.scheme)
                .map_err(|problem| format!("the source {:?}: {problem}", self.source))?;
            self.secrets.push(secret);
        }
        self.elsewhere.clear();
        Ok(())
    }
}

impl Secret {
    fn fetch(reference: &str, scheme: &Scheme) -> Result<Self, String> {
        let found = match reference.strip_prefix("file:") {
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                format!("its secret is in {path}, which cannot be read: {error}")
            })?,
            None => {
                let name = reference.strip_prefix("env:").unwrap_or(reference);
                std::env::var(name).map_err(|_| {
                    format!("its secret is in the variable {name}, which is not set")
                })?
            }
        };
        Self::new(found.trim(), scheme)
    }
}
