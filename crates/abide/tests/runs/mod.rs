//! Runs: an instance that continues as new, what is reserved, and what is restarted.

mod continuing;
mod reserving;
mod restarting;

use crate::common::Lab;
use abide::model::Instance;
use abide::store::Filter;
use abide::{InstanceId, Signal};

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
