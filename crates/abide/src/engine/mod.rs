//! The engine: claims runnable instances, runs their steps and commits the outcomes; keeps timers, leases and retention.
//! [`Abide::engine`](crate::Abide::engine) returns an [`EngineBuilder`], which takes the code and the settings of one
//! worker, and starts the [`Engine`].

// The engine knows only a `Runner`, not the kind of code behind it. One task, the dispatcher, owns the instances that this
// worker holds. Other tasks keep the timers and the retention, and a thread renews the lease. They do not talk to the
// dispatcher: their changes to the store wake it, as any commit does.

mod build;
mod builder;
mod check;
mod dispatch;
mod heartbeat;
mod lease;
mod release;
mod retention;
mod runner;
mod settings;
mod span;
mod stats;
mod timers;
mod unserved;

pub use builder::{Engine, EngineBuilder};
pub use check::{Check, Unfit};
pub use retention::Retention;
pub(crate) use runner::{Follow, Ran, Runner, Task};
pub(crate) use settings::{Crash, CrashPoint, Settings};
pub use stats::Stats;
