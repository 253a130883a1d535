//! Follows the server's clock.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::wire::{Reply, Request};
use abide_kernel::{Error, Result, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;

/// Interval between reads of the server's time. The server decides by its own clock; here only sleeps depend on it.
const EVERY: Duration = Duration::from_secs(5);

/// Sets the clock to the server's time, so that all processes that use the server agree.
pub(crate) async fn follow(clock: &SystemClock, caller: &Caller) -> Result<()> {
    let read = || async {
        match caller.ask(&Request::Now).await? {
            Reply::Now(theirs) => Ok(theirs),
            _ => Err(Error::unexpected_answer()),
        }
    };
    clock.follow(read).await
}

/// Sets the clock to the server's time at intervals, until stopped.
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
            tracing::debug!(%error, "the server did not report the time");
        }
    }
}
