//! The server itself: how it starts and ends, its settings, its access control, and its answers to bad requests.

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
