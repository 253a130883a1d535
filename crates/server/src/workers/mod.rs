//! Workers over HTTP: long polls for work, and what comes back of it.
//!
//! [`Hub`] owns the long polls; outcomes and heartbeats that come together share a transaction. Neither keeps anything that
//! a restart would lose: who holds what is in the database, and in the texts of claims ([`Hold`]).

mod hub;
pub mod outcome;
mod text;

use std::sync::Arc;
use std::time::Duration;

use abide::Store;
use abide_kernel::committer::{Commits, Committer, Extensions, Submit};

pub use hub::{Handed, Hub, Poll};
pub use text::{About, Hold, NoClaim};

/// How long outcomes and heartbeats wait for a database that is away.
const PATIENCE: Duration = Duration::from_secs(10);

/// What workers over HTTP are served by. Cheap to clone.
#[derive(Clone)]
pub struct Workers {
    /// Their long polls.
    pub hub: Hub,
    /// Their outcomes.
    pub commits: Submit<Commits>,
    /// Their heartbeats.
    pub heartbeats: Submit<Extensions>,
}

impl Workers {
    /// Begins to serve them.
    pub fn begin(store: &Arc<dyn Store>) -> Self {
        let committer = Committer::new(store.clone());
        Self {
            hub: Hub::begin(store.clone()),
            commits: Submit::begin(&committer, PATIENCE),
            heartbeats: Submit::begin(&committer, PATIENCE),
        }
    }
}
