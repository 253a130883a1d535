//! Metrics that the server itself records.

use std::time::Duration;

use abide_kernel::label;
use axum::http::{Method, StatusCode};
use metrics::{counter, gauge, histogram};

/// Records that a request was answered.
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

/// Records that a long poll began (`1.0`) or ended (`-1.0`).
pub fn long_poll(change: f64) {
    gauge!("abide_http_long_polls").increment(change);
}

/// Records the end of a step that a remote worker held for the time `took`.
pub fn step(machine: &str, step: &str, took: Duration, failed: bool) {
    let machine = label("machine", machine);
    let labels = [machine.clone(), label("step", step)];
    histogram!("abide_step_seconds", labels.iter()).record(took);
    let labels = [machine];
    counter!("abide_step_attempts_total", labels.iter()).increment(1);
    if failed {
        counter!("abide_step_failures_total", labels.iter()).increment(1);
    }
}

/// Records that an outcome of this kind was committed for a remote worker.
pub fn outcome(name: &'static str) {
    counter!("abide_outcomes_total", "outcome" => name).increment(1);
}
