//! The rules: pure functions over the model, and the only place where the engine's semantics are decided.
//!
//! A rule takes a [`Row`](crate::model::Row) that the kernel has locked, changes it, and returns what happened. It
//! never performs an effect.

pub mod block;
pub mod children;
pub mod claims;
pub mod commit;
pub mod contract;
pub mod contradiction;
pub mod deaths;
pub mod deliver;
pub mod doctor;
pub mod event;
#[cfg(test)]
mod fixture;
pub mod folding;
pub mod graph;
pub mod handing;
pub mod inbox;
pub mod keys;
pub mod leases;
pub mod liveness;
pub mod operate;
pub mod partition;
pub mod retention;
pub mod retry;
pub mod similar;
pub mod start;
pub mod timers;
pub mod workflow;
