//! Webhooks: who may send them, how that is proven, and what becomes of them.

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
    /// Its name, the last part of the path.
    pub source: String,
    /// How a sender proves who it is.
    pub scheme: Scheme,
    secrets: Vec<Secret>,
    /// Where the secrets are that are not fetched yet.
    elsewhere: Vec<String>,
    tolerance: Duration,
    rules: Vec<Rule>,
}

impl Hook {
    /// Whether a request was signed with one of the secrets, and lately. `now_s` is the time in seconds since 1970.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8], now_s: i64) -> Result<(), Unproven> {
        let tolerance_s = i64::try_from(self.tolerance.as_secs()).unwrap_or(i64::MAX);
        self.scheme
            .verify(&self.secrets, headers, body, now_s, tolerance_s)
    }

    /// What a request that was proven is to become; none when no rule is meant for it.
    pub fn action(&self, headers: &HeaderMap, body: &str) -> Result<Option<Action>, Unmapped> {
        mapping::action(&self.rules, &self.scheme, headers, body)
    }
}
