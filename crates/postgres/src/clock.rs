//! The server's version and clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_core::model::Timestamp;
use abide_kernel::{Bus, Effects, Error, Result, SystemClock};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::cells::each;
use crate::pool::Pool;
use crate::read::query;

/// Reads the server's time.
const CLOCK: &str = "select clock_timestamp()";
const SERVER: &str = "\
select current_setting('server_version_num')::bigint, version() like '%linux%'";

/// Interval between reads of the server's time: if its clock is set, this one follows within a second (rule 6.9).
const EVERY: Duration = Duration::from_millis(900);

/// The oldest supported version of the server.
const VERSION_MIN: i64 = 14;

/// Properties of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its version number: 170002 is 17.2.
    pub version: i64,
    /// `true` if it runs on Linux.
    pub is_linux: bool,
}

impl Server {
    /// `true` if it can limit the duration of a whole transaction.
    pub fn has_transaction_timeout(self) -> bool {
        self.version >= 170_000
    }
}

/// Reads the properties of a server, and refuses one that is too old.
pub(crate) async fn check_server(client: &Client) -> Result<Server> {
    let rows = query(client, SERVER, Vec::new()).await?;
    let server = each(&rows, |cells| {
        let (version, is_linux) = (cells.next()?, cells.next()?);
        Ok(Server { version, is_linux })
    })?;
    let server = server.first().copied();
    let server =
        server.ok_or_else(|| Error::Broken("the server did not report its version".into()))?;
    match server.version / 10_000 {
        version if version < VERSION_MIN => Err(Error::Broken(format!(
            "this is PostgreSQL {version}, and it must be {VERSION_MIN} or newer: upgrade the server"
        ))),
        _ => Ok(server),
    }
}

/// Sets the clock to the server's time, so that all processes that use the server agree.
pub(crate) async fn follow(clock: &SystemClock, client: &Client) -> Result<()> {
    clock.follow(|| time(client)).await
}

async fn time(client: &Client) -> Result<Timestamp> {
    let rows = query(client, CLOCK, Vec::new()).await?;
    let times = each(&rows, |cells| cells.next::<Timestamp>())?;
    times
        .into_iter()
        .next()
        .ok_or_else(|| Error::Broken("the server did not report the time".into()))
}

/// Sets the clock to the server's time at intervals, until stopped, and notifies the bus of outbox rows that it sees in
/// the same statement. `checks` is `true` while that check works.
pub(crate) async fn keep_following(
    clock: Arc<SystemClock>,
    pool: Arc<Pool>,
    bus: Bus,
    checks: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stop.cancelled() => return,
        }
        let followed = match pool.get().await {
            // Behind a pooler, the server may change under an open connection.
            Ok(client) => {
                let read = || async {
                    let seen = pool.lineage().recognise(&client).await?;
                    checks.store(seen.is_some(), Ordering::Relaxed);
                    if seen.is_some_and(|seen| seen.has_outbox) {
                        bus.tell(Effects {
                            outbox: true,
                            ..Effects::default()
                        });
                    }
                    match seen {
                        Some(seen) => Ok(seen.now),
                        None => time(&client).await,
                    }
                };
                client.bounded(clock.follow(read)).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            checks.store(false, Ordering::Relaxed);
            tracing::debug!(%error, "the server did not report the time");
        }
    }
}
