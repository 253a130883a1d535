//! Runs: an instance that continues as new, what is reserved, and what is restarted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod continuing;
mod reserving;
mod restarting;

use abide::model::Instance;
use abide::store::Filter;
use abide::{InstanceId, Signal};
use common::Lab;

pub const NOTE: Signal<u64> = Signal::new("note");
pub const GO: Signal<()> = Signal::new("go");

/// The runs of a chain, oldest first.
pub async fn runs(lab: &Lab, chain: InstanceId) -> Vec<Instance> {
    let filter = Filter {
        chain: Some(chain),
        ..Filter::default()
    };
    let mut page = lab.list(&filter, None, 1_000).await.unwrap();
    assert!(page.next.is_none());
    page.items.reverse();
    page.items
}
