//! Webhooks: their sources, the verification of their signatures, and the signals or events that they become.

mod config;
mod mapping;
mod scheme;
#[cfg(test)]
mod tests;

pub(crate) use config::{read, shown};
pub use mapping::{Action, Unmapped};
pub use scheme::{Scheme, Unproven};

use std::time::Duration;

use axum::http::HeaderMap;

use mapping::Rule;
use scheme::Secret;

/// A source of webhooks.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Its name, the last segment of the path.
    pub source: String,
    /// The signature scheme.
    pub scheme: Scheme,
    secrets: Vec<Secret>,
    /// References to secrets that were not fetched yet.
    elsewhere: Vec<String>,
    tolerance: Duration,
    rules: Vec<Rule>,
}

impl Hook {
    /// Verifies that a request was signed with one of the secrets, and recently. `now_s` is the time in seconds since
    /// 1970.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8], now_s: i64) -> Result<(), Unproven> {
        let tolerance_s = i64::try_from(self.tolerance.as_secs()).unwrap_or(i64::MAX);
        self.scheme
            .verify(&self.secrets, headers, body, now_s, tolerance_s)
    }

    /// Returns the action for a verified request, or `None` if no rule matches it.
    pub fn action(&self, headers: &HeaderMap, body: &str) -> Result<Option<Action>, Unmapped> {
        mapping::action(&self.rules, &self.scheme, headers, body)
    }
}
