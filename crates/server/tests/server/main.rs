//! The server itself: how it starts and ends, its settings, its access control, and its answers to bad requests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what cannot be set up must fail the test"
)]

#[path = "../common/mod.rs"]
mod common;
mod connections;
mod ending;
mod hooks;
mod killed;
mod limits;
mod many_ids;
mod measuring;
#[cfg(feature = "nats")]
mod nats;
mod once;
mod paused;
mod raw;
mod readiness;
mod remote;
mod settings;
mod slow;
mod starting;
mod strange;
mod test_clock;
mod tls;
mod tokens;
#[cfg(feature = "otel")]
mod traces;
mod unread;
