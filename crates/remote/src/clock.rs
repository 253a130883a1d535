//! What time the server has.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::wire::{Reply, Request};
use abide_kernel::{Result, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::store::unexpected;

/// How often the server is asked for the time at once.
const ASKED: usize = 3;
/// How often the clock is set right.
const EVERY: Duration = Duration::from_secs(60);

/// Sets the clock by the server's, so that all that use it agree. It is asked a few times, and the quickest answer
/// counts: the others are off by as long as they were under way.
pub(crate) async fn follow(clock: &SystemClock, caller: &Caller) -> Result<()> {
    let mut answers = Vec::with_capacity(ASKED);
    for _ in 0..ASKED {
        let before = SystemClock::here();
        let Reply::Now(theirs) = caller.ask(&Request::Now).await? else {
            return Err(unexpected());
        };
        answers.push((before, theirs, SystemClock::here()));
    }
    let quickest = answers
        .into_iter()
        .min_by_key(|(before, _, after)| after.since(*before));
    if let Some((before, theirs, after)) = quickest {
        clock.follow(before, theirs, after);
    }
    Ok(())
}

/// Sets the clock by the server's once in a while, until it is stopped.
pub(crate) async fn keep_following(
    clock: Arc<SystemClock>,
    caller: Arc<Caller>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stop.cancelled() => return,
        }
        let followed = tokio::select! {
            followed = follow(&clock, &caller) => followed,
            () = stop.cancelled() => return,
        };
        if let Err(error) = followed {
            tracing::debug!(%error, "the server did not tell the time");
        }
    }
}
