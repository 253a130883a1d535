//! The parts of `abide demo`: sample machines, worker processes that run them, traffic, and an audit of the results.

pub mod album;
pub mod approval;
mod audit;
pub mod checkout;
mod death;
pub mod parcel;
mod processes;
mod scene;
mod traffic;
pub mod worker;

use std::time::Duration;

pub use audit::{Audit, called};
pub use processes::{AGAIN, Crew, WorkerChange};
pub use scene::{Event, Member, Scene, Shown, Summary};
pub use traffic::{Open, Sample, TICK, Traffic};

/// The argument with which the binary starts itself as a worker of the demo.
pub const WORKER: &str = "demo-worker";

/// The name under which a worker of the demo registers.
pub fn name_of(number: u32) -> String {
    format!("demo-{number}")
}

/// Simulates work that takes some time.
async fn work(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
