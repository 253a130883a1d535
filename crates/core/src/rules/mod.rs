//! What follows from what: pure functions over the model, and the only place where the engine's semantics are decided.
//!
//! A rule takes a [`Row`](crate::model::Row) that the kernel has locked, changes it, and tells what happened; it never
//! performs anything.

pub mod children;
pub mod claims;
pub mod commit;
pub mod contract;
pub mod event;
pub mod graph;
pub mod inbox;
pub mod keys;
pub mod liveness;
pub mod operate;
pub mod partition;
pub mod retention;
pub mod retry;
pub mod start;
pub mod timers;
pub mod workflow;
