//! Releases blocked instances that other builds could not run and that this build may be able to run (rule 12.4).

use std::sync::Arc;

use abide_core::model::{AT_ONCE, InstanceId, Lane};
use abide_kernel::committer::Bulk;
use abide_kernel::{Answer, Listener, Op, Result};

use super::builder::Shared;

/// Releases blocked instances of lanes that this worker has just added. That includes instances that its own build
/// could not run before, because more than the build may have changed. If the database fails, the engine starts anyway,
/// and the release is tried again later.
pub(super) async fn release_at_start(shared: &Arc<Shared>, lanes: Vec<Lane>) {
    let Err(error) = release(shared, &lanes, true).await else {
        return;
    };
    tracing::warn!(%error, "blocked instances could not be released; trying again later");
    let shared = shared.clone();
    tokio::spawn(async move {
        while shared.pause(shared.settings.poll).await.is_continue() {
            if release(&shared, &lanes, true).await.is_ok() {
                return;
            }
        }
    });
}

/// Releases instances that workers of other builds could not run, as soon as a notification arrives, until the engine
/// stops. A slow poll covers lost notifications.
pub(super) async fn keep_releasing(shared: Arc<Shared>, mut notifications: Listener) {
    let every = shared.settings.poll;
    let mut due = shared.clock.now() + every;
    loop {
        let notified = tokio::select! {
            () = shared.stop.cancelled() => return,
            effects = notifications.next() => match effects {
                Some(effects) => effects.blocked || effects.anything,
                None => return,
            },
            () = shared.clock.sleep_until(due) => false,
        };
        let now = shared.clock.now();
        if !notified && now < due {
            continue;
        }
        due = now + every;
        if let Err(error) = release(&shared, &shared.lanes(), false).await {
            tracing::warn!(%error, "blocked instances could not be released; trying again later");
        }
    }
}

async fn release(shared: &Shared, lanes: &[Lane], fresh: bool) -> Result<()> {
    if lanes.is_empty() {
        return Ok(());
    }
    let mut after = InstanceId(0);
    let mut bulk = Bulk::new(AT_ONCE);
    loop {
        let release = |limit| Op::ReleaseBlocked {
            build: Some(shared.settings.build()),
            fresh,
            lanes: lanes.to_vec(),
            after,
            limit,
        };
        match bulk.run(&shared.store, release).await? {
            Answer::Released {
                next: Some(next), ..
            } => after = next,
            _ => return Ok(()),
        }
    }
}
