//! Names, keys and numeric ids, each checked when it is created.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Refusal;

/// The longest name or key, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The id of one run of an instance, which is one row.
    InstanceId(i64)
}
number! {
    /// The id of one worker process in the database.
    WorkerId(i64)
}
number! {
    /// The epoch of an instance: a counter that grows whenever a claim is granted or ends (claims, commits, reclaims).
    /// A claim with an older epoch is stale.
    Epoch(i64)
}
impl Epoch {
    /// Number of epochs of one instance in each generation of the database, as a power of two.
    const GENERATION_BITS: u32 = 32;

    /// Returns the last epoch before those of a generation. A database that replaces another, and may lack commits that
    /// the other had acknowledged, grants claims of a new generation, so no epoch is ever granted twice (rule 1.6).
    pub const fn before(generation: i64) -> Self {
        Self(generation << Self::GENERATION_BITS)
    }

    /// The generation of the database in which the epoch was granted.
    pub const fn generation(self) -> i64 {
        self.0 >> Self::GENERATION_BITS
    }
}

number! {
    /// The number of the parent's `spawn` that a child belongs to.
    BarrierNumber(i32)
}
number! {
    /// The id of a command's record, accepted or not.
    CommandId(i64)
}
number! {
    /// The position of a message in its chain: 1, 2, 3 … across the runs.
    Sequence(i64)
}
number! {
    /// The id of a row of the outbox, or of a refused request.
    OutboxId(i64)
}
number! {
    /// Priority: lower runs first.
    Priority(i16)
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
                into.serialize_str(&self.0)
            }
        }

        impl $name {
            /// Checks a text and wraps it.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Refusal> {
                let text = text.as_ref();
                $check(text)?;
                Ok(Self(text.into()))
            }

            /// Wraps a text that was checked when it was stored.
            pub fn stored(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Refusal;

            fn try_from(text: String) -> Result<Self, Refusal> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0.as_ref().into()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

text! {
    /// The name of a machine, a step, a queue, a worker or a signal: 1 to 255 bytes without control characters.
    Name, check_name
}
text! {
    /// The business name of an instance, or the key of a partition. It follows the rules for names, and must not
    /// consist of digits alone, so that it is never taken for an id.
    ///
    /// ```
    /// use abide_core::model::Key;
    ///
    /// assert!(Key::new("order:42").is_ok());
    /// assert!(Key::new("42").is_err());
    /// ```
    Key, check_key
}

text! {
    /// The id of one wait of an instance. The history events of signals that were received and applied under a wait,
    /// and of its opening, show this id.
    WaitId, check_name
}

fn check_name(text: &str) -> Result<(), Refusal> {
    match flaw(text) {
        None => Ok(()),
        Some(problem) => Err(Refusal::BadName {
            text: shown(text),
            problem: problem.into(),
        }),
    }
}

/// Checks the source that a caller claims, if any. It is stored and shown, so it follows the rules for names
/// (rule 7.3).
pub fn check_claimed_source(claimed: Option<&str>) -> Result<(), Refusal> {
    match claimed.and_then(|text| Some((text, flaw(text)?))) {
        None => Ok(()),
        Some((text, problem)) => Err(Refusal::BadSource {
            text: shown(text),
            problem: problem.into(),
        }),
    }
}

/// Returns the reason why a text is not a valid name, or `None` if it is valid.
fn flaw(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("it is empty")
    } else if text.len() > NAME_BYTES_MAX {
        Some("it is longer than 255 bytes")
    } else if text.chars().any(char::is_control) {
        Some("it has a control character in it")
    } else {
        None
    }
}

fn check_key(text: &str) -> Result<(), Refusal> {
    check_name(text)?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let problem =
            "it is digits only, which would read as an id: give it a prefix, like order:42";
        return Err(Refusal::BadName {
            text: shown(text),
            problem: problem.into(),
        });
    }
    Ok(())
}

/// Shortens a refused text for an error message.
fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A second identity, which cannot be used as an address: 1 to 255 bytes of any value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct UniqueKey(Vec<u8>);

/// One of the two keys that an instance can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnyKey {
    /// The key.
    Key(Key),
    /// The unique key.
    UniqueKey(UniqueKey),
}

impl fmt::Display for AnyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key {:?}", key.as_str()),
            Self::UniqueKey(key) => write!(f, "unique key \"{}\"", key.as_bytes().escape_ascii()),
        }
    }
}

impl TryFrom<Vec<u8>> for UniqueKey {
    type Error = Refusal;

    fn try_from(bytes: Vec<u8>) -> Result<Self, Refusal> {
        Self::new(bytes)
    }
}

impl From<UniqueKey> for Vec<u8> {
    fn from(key: UniqueKey) -> Self {
        key.0
    }
}

impl UniqueKey {
    /// Checks that there are 1 to 255 bytes and wraps them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, Refusal> {
        let bytes = bytes.into();
        let problem = match bytes.len() {
            0 => "it is empty",
            1..=NAME_BYTES_MAX => return Ok(Self(bytes)),
            _ => "it is longer than 255 bytes: hash it first",
        };
        Err(Refusal::BadName {
            text: shown(&String::from_utf8_lossy(&bytes)),
            problem: problem.into(),
        })
    }

    /// Wraps bytes that were checked when they were stored.
    pub fn stored(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_short_clean_and_no_number() {
        // rule 2.2
        for good in ["order:42", "ключ", "a", "42a", &"x".repeat(255), "٣٤"] {
            assert!(Key::new(good).is_ok(), "{good}");
        }
        for bad in ["", "42", "0", "a\nb", "a\u{0}", "\u{7f}", &"x".repeat(256)] {
            assert!(Key::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_may_be_a_number() {
        assert!(Name::new("42").is_ok());
        assert!(serde_json::from_str::<Name>("\"\"").is_err());
    }

    #[test]
    fn the_refusal_shows_the_text_and_the_cure() {
        let error = Key::new("42").unwrap_err().to_string();
        assert!(
            error.contains("42") && error.contains("order:42"),
            "{error}"
        );
        let error = Key::new("é".repeat(200)).unwrap_err().to_string();
        assert!(error.len() < 300, "{error}");
    }

    #[test]
    fn a_unique_key_is_any_bytes_but_not_none() {
        assert!(UniqueKey::new([0u8, 255]).is_ok());
        assert!(UniqueKey::new([]).is_err() && UniqueKey::new([1; 256]).is_err());
    }
}
