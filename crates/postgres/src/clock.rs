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

/// How often the server is asked for the time: when its clock is set, this one follows within a second (rule 6.9).
const EVERY: Duration = Duration::from_millis(750);

/// The oldest server that will do.
const VERSION_MIN: i64 = 14;

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

/// Sets the clock by the server's, so that all processes that use it agree.
pub(crate) async fn follow(clock: &SystemClock, client: &Client) -> Result<()> {
    let look = || async {
        let rows = query(client, CLOCK, Vec::new()).await?;
        let told = each(&rows, |cells| cells.next::<Timestamp>())?;
        told.into_iter()
            .next()
            .ok_or_else(|| Error::Broken("the server did not tell the time".into()))
    };
    clock.follow(look).await
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
            // Behind a pooler the server may become another under a connection that stays.
            Ok(client) => match pool.lineage().recognise(&client).await {
                Ok(()) => follow(&clock, &client).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            tracing::debug!(%error, "the server did not tell the time");
        }
    }
}
