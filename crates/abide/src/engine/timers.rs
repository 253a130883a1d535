//! Meets due times and deadlines: knows the next one and sleeps until it.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Timestamp;
use abide_kernel::committer::Bulk;
use abide_kernel::{Answer, Backoff, Listener, Op, Result};

use super::builder::Shared;

/// The rows fired in one transaction.
const BATCH: usize = 500;
/// How often to look for what is due while something is passed over.
const AROUND: Duration = Duration::from_millis(250);
/// How soon due rows that another transaction has locked are looked at again, at first and at last (rule 6.8).
const LOCKED: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Fires what is due until the engine stops. Between due times it asks the store nothing: what is armed meanwhile
/// comes over the bus, and a look every poll interval is the floor under that (rules 6.5, 6.6).
pub(super) async fn keep_time(shared: Arc<Shared>, mut news: Listener) {
    let mut backoff = Backoff::away();
    let mut bulk = Bulk::new(BATCH);
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
        let look = shared.clock.now() + shared.settings.poll;
        if wait(&shared, &mut news, next, look).await.is_none() {
            return;
        }
    }
}

/// What was fired, and when something is due next.
enum Fired {
    /// All that was due.
    All { next: Option<Timestamp> },
    /// All but what another transaction has locked.
    AllButLocked { next: Option<Timestamp> },
}

/// Fires all that is due and that nobody has locked, around what cannot be fired (rule 1.4).
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
            // What is passed over stays due, and hides what is due next.
            let next = Some(shared.clock.now() + AROUND);
            return Ok(Fired::All { next });
        }
    }
}

/// Waits until the next due time, which may come closer meanwhile; `None` when the engine stops.
async fn wait(
    shared: &Shared,
    news: &mut Listener,
    next: Option<Timestamp>,
    look: Timestamp,
) -> Option<()> {
    let mut next = next.unwrap_or(look).min(look);
    loop {
        if shared.clock.now() >= next {
            return Some(());
        }
        tokio::select! {
            () = shared.stop.cancelled() => return None,
            () = shared.clock.sleep_until(next) => {}
            effects = news.next() => match effects {
                Some(effects) if effects.anything => return Some(()),
                Some(effects) => next = effects.due.map_or(next, |due| due.min(next)),
                None => return None,
            },
        }
    }
}
