//! The identity of a request that may arrive more than once.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Name, Refusal};

/// The identity of a request that may arrive more than once (rule 1.5).
///
/// ```
/// use abide_core::model::{Fingerprint, Name, RequestId};
///
/// let id = RequestId::new("importer", Name::new("batch-7")?, Fingerprint::of(["POST", "/v1/instances", "{}"]));
/// assert_eq!(id.part, 0);
/// # Ok::<(), abide_core::model::Refusal>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestId {
    /// The caller. The keys of different callers are separate.
    pub caller: String,
    /// The key that the caller chose.
    pub key: Name,
    /// The number of this transaction of the request; a request that takes several counts them from 0.
    #[serde(default)]
    pub part: u32,
    /// A hash of the whole request: a different request with the same key is refused.
    pub fingerprint: Fingerprint,
}

impl RequestId {
    /// Creates the identity of the first transaction of a request.
    pub fn new(caller: impl Into<String>, key: Name, fingerprint: Fingerprint) -> Self {
        Self {
            caller: caller.into(),
            key,
            part: 0,
            fingerprint,
        }
    }
}

/// A hash of the whole request: SHA-256, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Hashes the parts of a request; the boundaries between the parts count too.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let bytes = hash.finalize();
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Wraps a text that was checked when it was stored.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 64 && text.bytes().all(is_hex) {
            return Ok(Self(text));
        }
        Err(Refusal::BadName {
            text: text.chars().take(80).collect(),
            problem: "a fingerprint is 64 hexadecimal digits".into(),
        })
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_where_parts_end() {
        // rule 1.5
        let one = Fingerprint::of(["ab", "c"]);
        assert_ne!(one, Fingerprint::of(["a", "bc"]));
        assert_eq!(one, Fingerprint::of(["ab", "c"]));
        let read: Fingerprint = one.as_str().to_owned().try_into().unwrap();
        assert_eq!(read, one);
        for bad in ["", "xyz", &"A".repeat(64), &"0".repeat(65)] {
            assert!(Fingerprint::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
