//! Random small workflows are run without faults and with crashes, and come to the same, with the same history.

mod kit;
mod plan;
mod program;
mod rng;
mod snapshot;
mod stores;
