//! Deletes finished instances after their retention period.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_core::model::Timestamp;
use abide_kernel::{Result, SweepPass};

use super::builder::Shared;
use super::stats::add;

/// The retention period of finished instances and everything that belongs to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// This long after they finished.
    For(Duration),
    /// Until they are deleted explicitly.
    Forever,
}

impl Retention {
    /// Instances that finished before the returned time have expired.
    fn expired_at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::For(kept) => now - kept,
            Self::Forever => Timestamp::MIN,
        }
    }
}

impl Default for Retention {
    /// Seven days.
    fn default() -> Self {
        Self::For(Duration::from_secs(7 * 24 * 3600))
    }
}

/// The longest and the shortest pause between two passes.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The pause if instances are kept forever. Then only data with retention periods of hours and days expires.
const PAUSE_FOREVER: Duration = Duration::from_secs(3600);
/// The interval at which a pass starts from the beginning although many instances were kept there. One that was locked,
/// for example, was skipped.
const WHOLE_EVERY: Duration = Duration::from_secs(3600);
/// The longest pause between two batches.
const BREATH_MAX: Duration = Duration::from_secs(1);

/// Sweeps, pass after pass, until the engine stops (rule 16.2).
pub(super) async fn keep_swept(shared: Arc<Shared>) {
    // Data other than instances expires in any case: answered requests, dead workers, held signals.
    let kept = shared.settings.retention;
    let pause = match kept {
        Retention::For(kept) => (kept / 10).clamp(PAUSE_MIN, PAUSE_MAX),
        Retention::Forever => PAUSE_FOREVER,
    };
    let mut pass = SweepPass::new(kept.expired_at(shared.clock.now()), None);
    let mut whole_at = shared.clock.now();
    loop {
        if let Err(error) = sweep(&shared, &mut pass).await {
            pass.failed();
            tracing::warn!(%error, "finished instances could not be swept; trying again later");
        }
        if shared.pause(pause).await.is_break() {
            return;
        }
        let now = shared.clock.now();
        pass = pass.next(kept.expired_at(now), now >= whole_at + WHOLE_EVERY);
        if pass.is_whole() {
            whole_at = now;
        }
    }
}

async fn sweep(shared: &Shared, pass: &mut SweepPass) -> Result<()> {
    loop {
        let (begun, before) = (Instant::now(), pass.deleted());
        let answers = shared.store.run(Arc::from([pass.batch()])).await?;
        let took = begun.elapsed();
        let more = pass.note(&answers, took)?;
        add(&shared.counters.swept, pass.deleted() - before);
        if !more {
            return Ok(());
        }
        if !pass.rests() {
            continue;
        }
        tokio::select! {
            () = shared.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(took.min(BREATH_MAX)) => {}
        }
    }
}
