//! Workers over HTTP: long polls for work, and what comes back of it.
//!
//! [`Hub`] owns the long polls; outcomes and heartbeats that come together share a transaction. Neither keeps anything that
//! a restart would lose: who holds what is in the database, and in the texts of claims ([`Hold`]).

mod hub;
pub mod outcome;
mod seal;
mod text;

use std::sync::Arc;
use std::time::Duration;

use abide::Store;
use abide_kernel::committer::{Commits, Committer, Extensions, Submit};

pub use hub::{Handed, Hub, Poll};
pub use seal::{Sealer, Seals};
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
    /// What their claim tokens are sealed with.
    pub seals: Arc<Seals>,
}

impl Workers {
    /// Reads claim tokens, in order. When one of them has a seal that is not known here, the keys are read again first: another
    /// server may have made one.
    pub async fn holds(&self, tokens: &[&str]) -> Result<Vec<Result<Hold, NoClaim>>, abide::Error> {
        let sealer = self.seals.sealer().await?;
        let read = |sealer: &Sealer| -> Vec<Result<Hold, NoClaim>> {
            let each = tokens.iter().map(|token| Hold::from_text(token, sealer));
            each.collect()
        };
        let holds = read(&sealer);
        match holds.iter().any(Result::is_err) {
            true => Ok(read(&self.seals.reread().await?)),
            false => Ok(holds),
        }
    }

    /// Begins to serve them.
    pub fn begin(store: &Arc<dyn Store>) -> Self {
        let committer = Committer::new(store.clone());
        Self {
            hub: Hub::begin(store.clone()),
            commits: Submit::begin(&committer, PATIENCE),
            heartbeats: Submit::begin(&committer, PATIENCE),
            seals: Arc::new(Seals::new(store.clone())),
        }
    }
}
