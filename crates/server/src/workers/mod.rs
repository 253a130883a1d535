//! Workers over HTTP: long polls for work, outcomes and heartbeats.
//!
//! [`Hub`] owns the long polls. Outcomes and heartbeats that arrive together share a transaction. Neither keeps state
//! that a restart would lose: the database and the claim tokens ([`ClaimToken`]) say which worker holds which claim.

mod claim_token;
mod hub;
pub mod outcome;
mod seal;

use std::sync::Arc;
use std::time::Duration;

use abide::store::Store;
use abide_kernel::committer::{Commits, Committer, Extensions, Submit};

pub use claim_token::{ClaimToken, ClaimedStep, InvalidToken};
pub use hub::{Handed, Hub, Poll};
pub use seal::{Sealer, Seals};

/// How long outcomes and heartbeats wait for a database that is unavailable.
const PATIENCE: Duration = Duration::from_secs(10);

/// The services for workers over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct Workers {
    /// The long polls.
    pub hub: Hub,
    /// The outcomes.
    pub commits: Submit<Commits>,
    /// The heartbeats.
    pub heartbeats: Submit<Extensions>,
    /// The keys that seal the claim tokens.
    pub seals: Arc<Seals>,
}

impl Workers {
    /// Decodes claim tokens, in order. If a token has a seal that no known key made, reads the keys again first,
    /// because another server may have added one.
    pub async fn decode(
        &self,
        tokens: &[&str],
    ) -> Result<Vec<Result<ClaimToken, InvalidToken>>, abide::Error> {
        let sealer = self.seals.sealer().await?;
        let read = |sealer: &Sealer| -> Vec<Result<ClaimToken, InvalidToken>> {
            let each = tokens.iter().map(|token| ClaimToken::decode(token, sealer));
            each.collect()
        };
        let decoded = read(&sealer);
        match decoded.iter().any(Result::is_err) {
            true => Ok(read(&self.seals.reread().await?)),
            false => Ok(decoded),
        }
    }

    /// Starts the services.
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
