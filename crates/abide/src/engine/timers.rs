//! Fires due times and deadlines: knows the next one and sleeps until then.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{AT_ONCE, Timestamp};
use abide_kernel::committer::Bulk;
use abide_kernel::{Answer, Backoff, Listener, Op, Result};

use super::builder::Shared;

/// The interval between checks for due rows while some are skipped.
const AROUND: Duration = Duration::from_millis(250);
/// The first and the longest pause before due rows that another transaction has locked are checked again (rule 6.8).
const LOCKED: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Fires due rows until the engine stops. It sends no statement to the store between due times: notifications announce
/// due times that are set meanwhile, and a check every poll interval covers lost ones (rules 6.5, 6.6).
pub(super) async fn keep_time(shared: Arc<Shared>, mut notifications: Listener) {
    let mut backoff = Backoff::away();
    let mut bulk = Bulk::new(AT_ONCE);
    let (soonest, latest) = LOCKED;
    let mut pause = soonest;
    loop {
        let next = match fire(&shared, &mut bulk).await {
            Ok(Fired::All { next }) => {
                pause = soonest;
                next
            }
            Ok(Fired::AllButLocked { next }) => {
                let again = shared.clock.now() + pause;
                pause = (pause * 2).min(latest);
                Some(next.map_or(again, |next| next.min(again)))
            }
            Err(error) => {
                tracing::warn!(%error, "due instances could not be fired; trying again");
                let delay = backoff.failed().unwrap_or_default();
                if shared.pause(delay).await.is_break() {
                    return;
                }
                continue;
            }
        };
        backoff.reset();
        let poll_at = shared.clock.now() + shared.settings.poll;
        if wait(&shared, &mut notifications, next, poll_at)
            .await
            .is_none()
        {
            return;
        }
    }
}

/// The result of firing, with the next due time.
enum Fired {
    /// All due rows were fired.
    All { next: Option<Timestamp> },
    /// All were fired, except rows that another transaction has locked.
    AllButLocked { next: Option<Timestamp> },
}

/// Fires all due rows that are not locked, and skips those that cannot be fired (rule 1.4).
async fn fire(shared: &Shared, bulk: &mut Bulk) -> Result<Fired> {
    loop {
        let next = shared.store.next_due().await?;
        if next.is_none_or(|due| due > shared.clock.now()) {
            return Ok(Fired::All { next });
        }
        loop {
            match bulk.run(&shared.store, |limit| Op::Fire { limit }).await? {
                Answer::Fired { more: true, .. } => {}
                Answer::Fired {
                    locked: 1.., next, ..
                } => return Ok(Fired::AllButLocked { next }),
                _ => break,
            }
        }
        if bulk.is_incomplete() {
            // Skipped rows stay due, and hide the next due time.
            let next = Some(shared.clock.now() + AROUND);
            return Ok(Fired::All { next });
        }
    }
}

/// Waits until the next due time, which may become earlier meanwhile. Returns `None` if the engine stops.
async fn wait(
    shared: &Shared,
    notifications: &mut Listener,
    next: Option<Timestamp>,
    poll_at: Timestamp,
) -> Option<()> {
    let mut next = next.unwrap_or(poll_at).min(poll_at);
    loop {
        if shared.clock.now() >= next {
            return Some(());
        }
        tokio::select! {
            () = shared.stop.cancelled() => return None,
            () = shared.clock.sleep_until(next) => {}
            effects = notifications.next() => match effects {
                Some(effects) if effects.anything => return Some(()),
                Some(effects) => next = effects.due.map_or(next, |due| due.min(next)),
                None => return None,
            },
        }
    }
}
