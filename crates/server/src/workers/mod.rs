//! Workers over HTTP: long polls for work, and what comes back of it.
//!
//! [`Hub`] owns the long polls, [`Fold`] the outcomes and heartbeats. Neither keeps anything that a restart would lose: who
//! holds what is in the database, and in the texts of claims ([`Hold`]).

mod fold;
mod hub;
pub mod outcome;
mod text;

use std::sync::Arc;

use abide::Store;

pub use fold::Fold;
pub use hub::{Handed, Hub, Poll};
pub use text::{About, Hold, NoClaim};

/// What workers over HTTP are served by. Cheap to clone.
#[derive(Clone)]
pub struct Workers {
    /// Their long polls.
    pub hub: Hub,
    /// Their outcomes and heartbeats.
    pub fold: Fold,
}

impl Workers {
    /// Begins to serve them.
    pub fn begin(store: &Arc<dyn Store>) -> Self {
        Self {
            hub: Hub::begin(store.clone()),
            fold: Fold::begin(store.clone()),
        }
    }
}
