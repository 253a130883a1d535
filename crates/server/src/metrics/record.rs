//! What the server itself measures. Labels are bounded: a name that data may make up counts as `other` after the first thousand.

use std::collections::BTreeSet;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use metrics::{counter, gauge, histogram};

/// The most names that labels may have, in all.
const NAMES: usize = 1_000;

/// A name as a label: itself, or `other` when there are too many.
pub(crate) fn label(name: &str) -> String {
    static KNOWN: LazyLock<RwLock<BTreeSet<String>>> = LazyLock::new(RwLock::default);
    let is_known = |known: &BTreeSet<String>| known.contains(name);
    if is_known(&KNOWN.read().unwrap_or_else(PoisonError::into_inner)) {
        return name.to_owned();
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= NAMES && !is_known(&known) {
        return "other".to_owned();
    }
    known.insert(name.to_owned());
    name.to_owned()
}

/// A request was answered.
pub fn request(method: &Method, route: &str, status: StatusCode, took: Duration) {
    let method = match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "PATCH" | "OPTIONS") => {
            known.to_owned()
        }
        _ => "other".to_owned(),
    };
    let route = route.to_owned();
    let status = status.as_u16().to_string();
    counter!("abide_http_requests_total", "method" => method, "route" => route.clone(), "status" => status).increment(1);
    histogram!("abide_http_request_seconds", "route" => route).record(took);
}

/// A long poll began (`1.0`) or ended (`-1.0`).
pub fn long_poll(change: f64) {
    gauge!("abide_http_long_polls").increment(change);
}

/// A remote worker answered for a step that it had held for that long.
pub fn step(machine: &str, step: &str, took: Duration) {
    histogram!("abide_step_seconds", "machine" => label(machine), "step" => label(step))
        .record(took);
}

/// An outcome of that kind was committed for a remote worker.
pub fn outcome(name: &'static str) {
    counter!("abide_outcomes_total", "outcome" => name).increment(1);
}
