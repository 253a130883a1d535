//! The server: whether it is new enough, and what time it has.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Timestamp;
use abide_kernel::{Error, Result, SystemClock};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::cells::each;
use crate::pool::Pool;
use crate::read::query;

/// What time the server has.
const CLOCK: &str = "select clock_timestamp()";
const SERVER_VERSION: &str = "select current_setting('server_version_num')::bigint";

/// The oldest server that will do.
const VERSION_MIN: i64 = 14;
/// How often the server is asked for the time at once.
const ASKED: usize = 3;
/// How often the clock is set right.
const EVERY: Duration = Duration::from_secs(60);

/// Refuses a server that is too old.
pub(crate) async fn check_server(client: &Client) -> Result<()> {
    let version = each(&query(client, SERVER_VERSION, Vec::new()).await?, |cells| {
        cells.next()
    })?;
    match version.first().map(|number: &i64| number / 10_000) {
        Some(version) if version < VERSION_MIN => Err(Error::Broken(format!(
            "this is PostgreSQL {version}, and it must be {VERSION_MIN} or newer: upgrade the server"
        ))),
        _ => Ok(()),
    }
}

/// Sets the clock by the server's, so that all processes that use it agree. It is asked a few times, and the quickest
/// answer counts: the others are off by as long as they were under way.
pub(crate) async fn follow(clock: &SystemClock, client: &Client) -> Result<()> {
    let mut answers = Vec::with_capacity(ASKED);
    for _ in 0..ASKED {
        let before = SystemClock::here();
        let rows = query(client, CLOCK, Vec::new()).await?;
        let after = SystemClock::here();
        for theirs in each(&rows, |cells| cells.next::<Timestamp>())? {
            answers.push((before, theirs, after));
        }
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
    pool: Arc<Pool>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stop.cancelled() => return,
        }
        let followed = match pool.get().await {
            Ok(client) => follow(&clock, &client).await,
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            tracing::debug!(%error, "the server did not tell the time");
        }
    }
}
