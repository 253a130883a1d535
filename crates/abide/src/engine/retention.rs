//! Deletes finished instances when their time is over.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::{Answer, Op, SweepRequest};

use super::builder::Shared;
use super::stats::add;

/// How long finished instances are kept, with all that belongs to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// That long after they finished.
    For(Duration),
    /// Until somebody deletes them.
    Forever,
}

impl Default for Retention {
    /// Seven days.
    fn default() -> Self {
        Self::For(Duration::from_secs(7 * 24 * 3600))
    }
}

/// The rows deleted in one transaction.
const BATCH: usize = 500;
/// The longest and the shortest pause between two passes.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Sweeps, pass after pass, until the engine stops (rule 16.2).
pub(super) async fn keep_swept(shared: Arc<Shared>) {
    let Retention::For(kept) = shared.settings.retention else {
        return;
    };
    let pause = (kept / 10).clamp(PAUSE_MIN, PAUSE_MAX);
    loop {
        if let Err(error) = sweep(&shared, kept).await {
            tracing::warn!(%error, "finished instances could not be swept; trying again later");
        }
        if shared.pause(pause).await.is_break() {
            return;
        }
    }
}

async fn sweep(shared: &Shared, kept: Duration) -> abide_kernel::Result<()> {
    let before = shared.clock.now() - kept;
    let mut after = None;
    loop {
        let ops = Arc::from([Op::Sweep(SweepRequest {
            before,
            after,
            limit: BATCH,
        })]);
        let answers = shared.store.run(ops).await?;
        let Some(Answer::Swept { deleted, next }) = answers.into_iter().next() else {
            return Ok(());
        };
        add(&shared.counters.swept, deleted);
        after = next;
        if after.is_none() || shared.stop.is_cancelled() {
            return Ok(());
        }
    }
}
