//! The server itself: how it starts and ends, what it is told, whom it lets in, and what it does with bad requests.

#[path = "../common/mod.rs"]
mod common;
mod ending;
mod hooks;
mod limits;
mod measuring;
mod raw;
mod remote;
mod settings;
mod starting;
mod strange;
mod tokens;
