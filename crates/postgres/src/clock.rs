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
const SERVER: &str = "\
select current_setting('server_version_num')::bigint, version() like '%linux%'";

/// How often the server is asked for the time: when its clock is set, this one follows within a second (rule 6.9).
const EVERY: Duration = Duration::from_millis(900);

/// The oldest server that will do.
const VERSION_MIN: i64 = 14;

/// What a server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its version, as it counts: 170002 is 17.2.
    pub version: i64,
    /// Whether it runs on Linux.
    pub is_linux: bool,
}

impl Server {
    /// Whether it can bound how long a whole transaction takes.
    pub fn has_transaction_timeout(self) -> bool {
        self.version >= 170_000
    }
}

/// Asks a server what it is, and refuses one that is too old.
pub(crate) async fn check_server(client: &Client) -> Result<Server> {
    let rows = query(client, SERVER, Vec::new()).await?;
    let server = each(&rows, |cells| {
        let (version, is_linux) = (cells.next()?, cells.next()?);
        Ok(Server { version, is_linux })
    })?;
    let server = server.first().copied();
    let server =
        server.ok_or_else(|| Error::Broken("the server did not tell its version".into()))?;
    match server.version / 10_000 {
        version if version < VERSION_MIN => Err(Error::Broken(format!(
            "this is PostgreSQL {version}, and it must be {VERSION_MIN} or newer: upgrade the server"
        ))),
        _ => Ok(server),
    }
}

/// Sets the clock by the server's, so that all processes that use it agree.
pub(crate) async fn follow(clock: &SystemClock, client: &Client) -> Result<()> {
    clock.follow(|| time(client)).await
}

async fn time(client: &Client) -> Result<Timestamp> {
    let rows = query(client, CLOCK, Vec::new()).await?;
    let told = each(&rows, |cells| cells.next::<Timestamp>())?;
    told.into_iter()
        .next()
        .ok_or_else(|| Error::Broken("the server did not tell the time".into()))
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
            Ok(client) => {
                let look = || async {
                    match pool.lineage().recognise(&client).await? {
                        Some(now) => Ok(now),
                        None => time(&client).await,
                    }
                };
                client.bounded(clock.follow(look)).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            tracing::debug!(%error, "the server did not tell the time");
        }
    }
}
