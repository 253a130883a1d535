//! Signature schemes: HMAC-SHA256 over the unchanged body, in the formats of common senders.

use std::fmt;

use axum::http::{HeaderMap, HeaderName};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;

/// The signature scheme of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    Standard,
    /// Stripe: `stripe-signature`.
    Stripe,
    /// GitHub: `x-hub-signature-256`. It does not sign a time.
    Github,
    /// Slack: `x-slack-request-timestamp`, `x-slack-signature`.
    Slack,
    /// Any header with a signature over the body, or over `<timestamp>.<body>`.
    Hmac {
        /// The header with the signature.
        header: HeaderName,
        /// The encoding of the signature.
        encoding: Encoding,
        /// The text before the signature.
        prefix: String,
        /// The header with the time, in seconds since 1970, if the time is signed too.
        timestamp: Option<HeaderName>,
    },
    /// No signature: only for a server on loopback.
    None,
}

/// The encoding of the bytes of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// In hexadecimal.
    Hex,
    /// In base64.
    Base64,
}

/// Reason why the signature of a request is not accepted.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// A header is missing, or occurs twice.
    #[error("the header {0} is missing or occurs twice")]
    Missing(String),
    /// A header is malformed.
    #[error("the header {0} is malformed")]
    Unreadable(String),
    /// The signed time differs too much from the current time.
    #[error(
        "its time differs from now by {0} s, more than `tolerance_s`: it is old, or a clock is wrong"
    )]
    Old(i64),
    /// No secret of the source makes this signature for this body.
    #[error("the signature does not match the body and the secret")]
    Wrong,
}

abide_kernel::debug_is_display!(Unproven);

/// A secret, as the key of an HMAC.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    pub(super) fn new(text: &str, scheme: &Scheme) -> Result<Self, String> {
        let key = match scheme {
            Scheme::Standard => STANDARD
                .decode(text.strip_prefix("whsec_").unwrap_or(text))
                .map_err(|_| "a secret of the scheme standard is whsec_ and base64".to_owned())?,
            _ => text.as_bytes().to_owned(),
        };
        match key.is_empty() {
            true => Err("its secret is empty".to_owned()),
            false => Ok(Self(key)),
        }
    }

    /// `true` if this is the signature of these bytes. Compares in constant time.
    fn signs(&self, parts: &[&[u8]], signature: &[u8]) -> bool {
        // HMAC accepts a key of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            return false;
        };
        parts.iter().for_each(|part| mac.update(part));
        mac.verify_slice(signature).is_ok()
    }
}

impl Scheme {
    /// Its name in the settings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Stripe => "stripe",
            Self::Github => "github",
            Self::Slack => "slack",
            Self::Hmac { .. } => "hmac",
            Self::None => "none",
        }
    }

    pub(super) fn verify(
        &self,
        secrets: &[Secret],
        headers: &HeaderMap,
        body: &[u8],
        now_s: i64,
        tolerance_s: i64,
    ) -> Result<(), Unproven> {
        let lately = |name: &str, text: &str| {
            let at: i64 = text
                .parse()
                .map_err(|_| Unproven::Unreadable(name.to_owned()))?;
            let away = now_s.saturating_sub(at).saturating_abs();
            if away > tolerance_s {
                Err(Unproven::Old(away))
            } else {
                Ok(())
            }
        };
        let signed = |parts: &[&[u8]], signatures: &[Vec<u8>]| {
            let fits = |secret: &Secret| {
                signatures
                    .iter()
                    .any(|signature| secret.signs(parts, signature))
            };
            if secrets.iter().any(fits) {
                Ok(())
            } else {
                Err(Unproven::Wrong)
            }
        };
        match self {
            Self::None => Ok(()),
            Self::Standard => {
                let (id, at) = (
                    one(headers, "webhook-id")?,
                    one(headers, "webhook-timestamp")?,
                );
                let written = one(headers, "webhook-signature")?;
                lately("webhook-timestamp", at)?;
                let versions = written
                    .split(' ')
                    .filter_map(|signature| signature.strip_prefix("v1,"));
                let signatures: Vec<Vec<u8>> = versions
                    .filter_map(|text| STANDARD.decode(text).ok())
                    .collect();
                signed(
                    &[id.as_bytes(), b".", at.as_bytes(), b".", body],
                    &signatures,
                )
            }
            Self::Stripe => {
                let written = one(headers, "stripe-signature")?;
                let fields = |name: &'static str| {
                    written
                        .split(',')
                        .filter_map(move |field| field.trim().strip_prefix(name)?.strip_prefix('='))
                };
                let at = fields("t")
                    .next()
                    .ok_or_else(|| Unproven::Unreadable("stripe-signature".to_owned()))?;
                lately("stripe-signature", at)?;
                let signatures: Vec<Vec<u8>> = fields("v1").filter_map(unhex).collect();
                signed(&[at.as_bytes(), b".", body], &signatures)
            }
            Self::Github => {
                let written = one(headers, "x-hub-signature-256")?;
                let signature = written.strip_prefix("sha256=").and_then(unhex);
                let signature = signature
                    .ok_or_else(|| Unproven::Unreadable("x-hub-signature-256".to_owned()))?;
                signed(&[body], &[signature])
            }
            Self::Slack => {
                let at = one(headers, "x-slack-request-timestamp")?;
                let written = one(headers, "x-slack-signature")?;
                lately("x-slack-request-timestamp", at)?;
                let signature = written.strip_prefix("v0=").and_then(unhex);
                let signature = signature
                    .ok_or_else(|| Unproven::Unreadable("x-slack-signature".to_owned()))?;
                signed(&[b"v0:", at.as_bytes(), b":", body], &[signature])
            }
            Self::Hmac {
                header,
                encoding,
                prefix,
                timestamp,
            } => {
                let written = one(headers, header.as_str())?;
                let signature = written
                    .strip_prefix(prefix.as_str())
                    .and_then(|text| encoding.decode(text));
                let signature =
                    signature.ok_or_else(|| Unproven::Unreadable(header.to_string()))?;
                let Some(timestamp) = timestamp else {
                    return signed(&[body], &[signature]);
                };
                let at = one(headers, timestamp.as_str())?;
                lately(timestamp.as_str(), at)?;
                signed(&[at.as_bytes(), b".", body], &[signature])
            }
        }
    }
}

impl Encoding {
    fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => unhex(text),
            Self::Base64 => STANDARD.decode(text).ok(),
        }
    }
}

/// Returns the value of a header that must occur exactly once.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Unproven> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value
            .to_str()
            .map_err(|_| Unproven::Unreadable(name.to_owned())),
        _ => Err(Unproven::Missing(name.to_owned())),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok())
        .collect()
}
