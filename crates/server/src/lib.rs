//! The HTTP server of abide, and its command line.
//!
//! [`http`] contains the API under `/v1`, [`cli`] the commands of the binary `abide`. Both only translate: the kernel
//! decides what a request means, as it does for a program that embeds the library.

pub mod auth;
mod background_read;
pub mod cli;
#[cfg(feature = "demo")]
pub mod demo;
pub mod graphs;
pub mod hooks;
pub mod http;
mod log;
pub mod metrics;
pub mod nats;
pub mod serve;
pub mod settings;
pub mod telemetry;
pub mod workers;
