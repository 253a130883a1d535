//! The runtime: claims what is runnable, has it run, commits what it answers; keeps time, leases and retention.
//!
//! It knows a [`Runner`], not what is behind it. One task, the dispatcher, owns what this worker holds; others keep
//! the timers, the lease and the retention, and tell it nothing: what they change in the store wakes it like anybody's
//! commit.

mod batch;
mod builder;
mod dispatch;
mod lease;
mod retention;
mod runner;
mod settings;
mod span;
mod stats;
mod timers;

pub use builder::{Engine, EngineBuilder};
pub use retention::Retention;
pub(crate) use runner::{Follow, Ran, Runner, Task};
pub(crate) use settings::{Crash, CrashPoint, Settings};
pub use stats::Stats;
