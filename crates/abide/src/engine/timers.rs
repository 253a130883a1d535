//! Meets due times and deadlines: knows the next one and sleeps until it.

use std::sync::Arc;

use abide_core::model::Timestamp;
use abide_kernel::{Answer, Backoff, Listener, Op, Result};

use super::builder::Shared;

/// The rows fired in one transaction.
const BATCH: usize = 500;

/// Fires what is due until the engine stops. Between due times it asks the store nothing: what is armed meanwhile
/// comes over the bus, and a look every poll interval is the floor under that (rules 6.5, 6.6).
pub(super) async fn keep_time(shared: Arc<Shared>, mut news: Listener) {
    let mut backoff = Backoff::away();
    loop {
        let next = match fire(&shared).await {
            Ok(next) => next,
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

/// Fires all that is due, and answers when something is next.
async fn fire(shared: &Shared) -> Result<Option<Timestamp>> {
    loop {
        let next = shared.store.next_due().await?;
        if next.is_none_or(|due| due > shared.clock.now()) {
            return Ok(next);
        }
        loop {
            let answers = shared
                .store
                .run(Arc::from([Op::Fire { limit: BATCH }]))
                .await?;
            if !matches!(answers.first(), Some(Answer::Touched { more: true, .. })) {
                break;
            }
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
