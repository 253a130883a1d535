//! abide over HTTP, and its command line.
//!
//! [`http`] is the face of `/v1`, [`cli`] the commands of the binary `abide`. Both translate: what a request means is
//! decided by the kernel, as it is for a program that has the library inside.

pub mod auth;
pub mod cli;
pub mod demo;
pub mod graphs;
pub mod hooks;
pub mod http;
mod lookout;
pub mod metrics;
pub mod nats;
pub mod serve;
pub mod settings;
pub mod telemetry;
pub mod workers;
