//! Detects that another server has replaced the database.
//!
//! A standby that takes over may lack the last commits of the previous server, and a restored database lacks all
//! commits since its backup. Its sequences then issue numbers that were issued before, and its claims get epochs that
//! other workers may believe to hold. So the database stores its identity: the server's system identifier and timeline.
//! Every new connection compares them. If they differ, then before anything else is done, sequences are moved far
//! ahead, leases end, and claims get epochs of a new generation from then on (rule 1.6).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use abide_core::model::{Epoch, Timestamp};
use abide_kernel::{Error, Result};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::begin::{Begin, COMMIT};
use crate::cells::each;
use crate::error::{Fate, classify, describe};
use crate::param::Param;
use crate::read::query;

/// Reads the server's identity and time, and whether the outbox has rows, so that no other statement has to poll for
/// them. The timeline is that of the current write position: the control file shows a new timeline too late.
///
/// Index: `outbox_pkey`.
pub const IDENTITY: &str = "\
select s.system_identifier, \
    ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint, \
    clock_timestamp(), (select o.id from abide.outbox o order by o.id limit 1) is not null, \
    current_setting('synchronous_commit') = 'off' \
from pg_control_system() s";

/// Reads whether commits are asynchronous, and whether the URL itself asks for that.
pub const COMMITS_ASYNC: &str = "\
select setting = 'off', source = 'client' from pg_settings where name = 'synchronous_commit'";

/// Stores the server's identity if none is stored yet.
///
/// Index: `lineage_pkey`.
const REMEMBER: &str = "\
insert into abide.lineage (one, system_identifier, timeline, generation) values (true, $1, $2, 0) \
on conflict (one) do nothing";

/// Reads the stored identity. Locks: the row; the next transaction waits until the change is complete.
const REMEMBERED: &str =
    "select system_identifier, timeline, generation from abide.lineage for update";

/// Moves all sequences far ahead of all numbers that the previous server has issued.
const MOVE_AHEAD: &str = "\
select setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + $1) \
from pg_sequences where schemaname = 'abide'";

/// Ends all leases: claims of workers are taken back, and workers register again.
const END_LEASES: &str = "\
update abide.workers set lease_until = least(lease_until, clock_timestamp() - interval '1 second')";

/// Stores the server's new identity.
const SUCCEED: &str = "\
update abide.lineage set system_identifier = $1, timeline = $2, generation = $3";

/// Distance by which sequences are moved: more than a server issues before its standby has received it.
const FAR: i64 = 1_000_000_000;

/// Identity of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    system: i64,
    timeline: i64,
}

/// The data that a server reports with its identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerStatus {
    /// Its time.
    pub now: Timestamp,
    /// `true` if the outbox has rows.
    pub has_outbox: bool,
    /// `true` if it acknowledges commits before they are durable.
    commits_async: bool,
}

/// The identity of the database, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    known: Mutex<Known>,
    /// Begins the transaction that handles a change of servers; set once the tables exist. The transaction locks the
    /// only row of `lineage`, so it has the time limits of every transaction (rule 6.8).
    begin: OnceLock<String>,
    /// `true` if the log already has the warning that fail-overs are not detected.
    has_warned: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    identity: Option<Identity>,
    generation: i64,
    /// `true` if transactions must ask the server to make commits durable before it acknowledges them.
    commits_async: bool,
    /// `true` if the URL itself says that commits need not be durable (rule 1.6); `None` until a connection was asked.
    allows_async: Option<bool>,
}

impl Lineage {
    /// Enables the check of every new connection; called once the tables exist. Its own transactions begin with the
    /// given text.
    pub fn keep(&self, begin: &Begin) {
        let _ = self.begin.set(begin.durable.clone());
    }

    /// The last epoch of the earlier generations.
    pub fn epoch(&self) -> Epoch {
        Epoch::before(self.known().generation)
    }

    /// `true` if transactions must ask the server to wait until commits are durable.
    pub fn commits_async(&self) -> bool {
        self.known().commits_async
    }

    /// Checks a new connection before it is used.
    pub async fn meet(&self, client: &Client) -> Result<()> {
        if self.begin.get().is_none() {
            return Ok(());
        }
        let is_first = self.known().allows_async.is_none();
        if is_first {
            self.read_commits_async(client).await?;
        }
        // The identity includes whether commits are asynchronous now, if the role may read it.
        if self.recognise(client).await?.is_none() && !is_first {
            self.read_commits_async(client).await?;
        }
        Ok(())
    }

    /// Reads if commits are asynchronous, and if the URL asks for that. The view lists all settings of the server, which
    /// takes it a millisecond.
    async fn read_commits_async(&self, client: &Client) -> Result<()> {
        let rows = query(client, COMMITS_ASYNC, Vec::new()).await?;
        let settings = each(&rows, |cells| Ok((cells.next()?, cells.next()?)))?;
        if let Some((is_off, by_url)) = settings.first() {
            let mut known = self.known();
            known.allows_async = Some(*by_url);
            known.commits_async = *is_off && !*by_url;
        }
        Ok(())
    }

    /// Checks that the database is still the same, and handles the change if it is not; returns what else the server
    /// reported. Returns `None` if the role may not read the server's identity.
    pub async fn recognise(&self, client: &Client) -> Result<Option<ServerStatus>> {
        let Some((identity, status)) = identity(client).await? else {
            if !self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "fail-overs are not noticed: the role may not read the identity of the server; \
                     grant it execute on the function pg_control_system()"
                );
            }
            return Ok(None);
        };
        {
            // The setting can be changed while connections are open.
            let mut known = self.known();
            known.commits_async = status.commits_async && known.allows_async != Some(true);
        }
        if self.known().identity == Some(identity) {
            return Ok(Some(status));
        }
        let Some(begin) = self.begin.get() else {
            return Ok(Some(status));
        };
        let generation = match settle(client, begin, identity).await {
            Ok(generation) => generation,
            Err(error) => {
                // No open transaction may be left on the connection.
                drop(client.batch_execute("rollback").await);
                return Err(error);
            }
        };
        let mut known = self.known();
        (known.identity, known.generation) = (Some(identity), generation);
        Ok(Some(status))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the server's identity, and what else it reports. Returns `None` if the role may not read it.
async fn identity(client: &Client) -> Result<Option<(Identity, ServerStatus)>> {
    let queried = client.query_typed(IDENTITY, &[]).await;
    let rows = match queried {
        Ok(rows) => rows,
        Err(error) => {
            let refused = error.code().is_some_and(|code| {
                [
                    &SqlState::INSUFFICIENT_PRIVILEGE,
                    &SqlState::UNDEFINED_FUNCTION,
                    &SqlState::FEATURE_NOT_SUPPORTED,
                ]
                .contains(&code)
            });
            if refused {
                return Ok(None);
            }
            // A standby, or a server that is being promoted.
            if error.code() == Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE) {
                return Err(Error::Unavailable(describe(&error)));
            }
            return Err(classify(&error, Fate::Open));
        }
    };
    let reports = each(&rows, |cells| {
        let identity = Identity {
            system: cells.next()?,
            timeline: cells.next()?,
        };
        let status = ServerStatus {
            now: cells.next()?,
            has_outbox: cells.next()?,
            commits_async: cells.next()?,
        };
        Ok((identity, status))
    })?;
    Ok(reports.into_iter().next())
}

/// Compares the server's identity with the stored one, and makes it safe to continue if they differ; returns the
/// current generation.
async fn settle(client: &Client, begin: &str, identity: Identity) -> Result<i64> {
    let Identity { system, timeline } = identity;
    let identity_params = || vec![Param::one(system), Param::one(timeline)];
    let run = |error| classify(&error, Fate::Open);
    client.batch_execute(begin).await.map_err(run)?;
    query(client, REMEMBER, identity_params()).await?;
    let rows = query(client, REMEMBERED, Vec::new()).await?;
    let was = each(&rows, |cells| {
        let was = Identity {
            system: cells.next()?,
            timeline: cells.next()?,
        };
        Ok((was, cells.next::<i64>()?))
    })?;
    let (was, mut generation) = *was.first().ok_or_else(|| {
        Error::Broken("the table abide.lineage is empty: restore its row, or the database".into())
    })?;
    if was != identity {
        generation += 1;
        tracing::warn!(
            ?was, is = ?identity, generation,
            "another database server has taken over: sequences are moved ahead, and claims are granted anew"
        );
        query(client, MOVE_AHEAD, vec![Param::one(FAR)]).await?;
        query(client, END_LEASES, Vec::new()).await?;
        let mut params = identity_params();
        params.push(Param::one(generation));
        query(client, SUCCEED, params).await?;
    }
    client.batch_execute(COMMIT).await.map_err(run)?;
    Ok(generation)
}
