//! What `abide demo` is made of: sample machines, worker processes that run them, traffic, and an audit of what became of it.

pub mod album;
pub mod approval;
mod audit;
pub mod checkout;
mod crew;
mod death;
pub mod parcel;
mod scene;
mod traffic;
pub mod worker;

use std::time::Duration;

pub use audit::{Audit, called};
pub use crew::{AGAIN, Crew, News};
pub use scene::{Event, Member, Scene, Shown, Summary};
pub use traffic::{Open, Sample, TICK, Traffic};

/// What the binary calls itself with to be a worker of the demo.
pub const WORKER: &str = "demo-worker";

/// The name that a worker of the demo is registered under.
pub fn name_of(number: u32) -> String {
    format!("demo-{number}")
}

/// What takes a little time.
async fn work(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
