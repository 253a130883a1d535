//! Which database this is: the one that was written to before, or one that has taken its place.
//!
//! A standby that takes over may lack the last commits of the server before it, and a database that is restored lacks
//! all since its backup. Their sequences then give out numbers again that others have been told of, and claims are granted
//! under epochs that somebody believes to hold. So the database remembers who it was, by the server's system identifier and
//! timeline, and whoever connects compares: where they differ, sequences are moved far ahead, leases end, and from then on
//! claims have epochs of another generation, before anything else is done (rule 1.6).

use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_core::model::{Epoch, Timestamp};
use abide_kernel::{Error, Result};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::cells::each;
use crate::error::{Fate, classify, describe};
use crate::param::Param;
use crate::read::query;

/// Who the server is, and what time it has. The timeline of the place that is written to: the control file tells of a new
/// one too late.
pub const IDENTITY: &str = "\
select s.system_identifier, \
    ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint, \
    clock_timestamp() \
from pg_control_system() s";

/// Whether commits are not waited for, though nobody has asked for that in the URL.
pub const COMMITS_ASYNC: &str = "\
select setting = 'off' and source <> 'client' from pg_settings where name = 'synchronous_commit'";

/// Remembers who the server is, when nobody has yet.
///
/// Index: `lineage_pkey`.
const REMEMBER: &str = "\
insert into abide.lineage (one, system_identifier, timeline, generation) values (true, $1, $2, 0) \
on conflict (one) do nothing";

/// Who the server was. Locks: the row; whoever comes next waits until it is settled.
const REMEMBERED: &str =
    "select system_identifier, timeline, generation from abide.lineage for update";

/// Moves all sequences far ahead of whatever was given out by the server before.
const MOVE_AHEAD: &str = "\
select setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + $1) \
from pg_sequences where schemaname = 'abide'";

/// Ends all leases: what workers hold is taken back, and they register anew.
const END_LEASES: &str = "\
update abide.workers set lease_until = least(lease_until, clock_timestamp() - interval '1 second')";

/// Remembers who the server is now.
const SUCCEED: &str = "\
update abide.lineage set system_identifier = $1, timeline = $2, generation = $3";

/// How far sequences are moved: more than a server gives out before its standby has heard of it.
const FAR: i64 = 1_000_000_000;

/// Who a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    system: i64,
    timeline: i64,
}

/// Which database this is, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Lineage(Mutex<Known>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Whether the tables are there.
    is_kept: bool,
    identity: Option<Identity>,
    generation: i64,
    /// Whether the server would not wait for commits, and has to be told to.
    commits_async: bool,
}

impl Lineage {
    /// From now on every new connection is looked at: the tables are there.
    pub fn keep(&self) {
        self.known().is_kept = true;
    }

    /// The last epoch of the generations before this one.
    pub fn epoch(&self) -> Epoch {
        Epoch::before(self.known().generation)
    }

    /// Whether the server has to be told to wait for commits.
    pub fn commits_async(&self) -> bool {
        self.known().commits_async
    }

    /// Looks at a new connection, before it is used.
    pub async fn meet(&self, client: &Client) -> Result<()> {
        if !self.known().is_kept {
            return Ok(());
        }
        let commits_async = each(&query(client, COMMITS_ASYNC, Vec::new()).await?, |cells| {
            cells.next::<bool>()
        })?;
        self.known().commits_async = commits_async.into_iter().any(|is| is);
        self.recognise(client).await?;
        Ok(())
    }

    /// Looks whether the database is still the one it was, and settles it when it is another; what time it had. None when
    /// it does not tell us who it is.
    pub async fn recognise(&self, client: &Client) -> Result<Option<Timestamp>> {
        let Some((identity, now)) = identity(client).await? else {
            return Ok(None);
        };
        if self.known().identity == Some(identity) {
            return Ok(Some(now));
        }
        let generation = match settle(client, identity).await {
            Ok(generation) => generation,
            Err(error) => {
                // Nobody is to find an open transaction.
                drop(client.batch_execute("rollback").await);
                return Err(error);
            }
        };
        let mut known = self.known();
        (known.identity, known.generation) = (Some(identity), generation);
        Ok(Some(now))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who the server is, and what time it has; none when it does not tell us.
async fn identity(client: &Client) -> Result<Option<(Identity, Timestamp)>> {
    let told = client.query_typed(IDENTITY, &[]).await;
    let rows = match told {
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
                tracing::debug!(%error, "the server does not tell who it is; a fail-over is not noticed");
                return Ok(None);
            }
            // A standby, or one that is about to be none.
            if error.code() == Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE) {
                return Err(Error::Unavailable(describe(&error)));
            }
            return Err(classify(&error, Fate::Open));
        }
    };
    let told = each(&rows, |cells| {
        let identity = Identity {
            system: cells.next()?,
            timeline: cells.next()?,
        };
        Ok((identity, cells.next()?))
    })?;
    Ok(told.into_iter().next())
}

/// Compares who the server is with who it was, and makes it safe to go on when it is another; the generation since then.
async fn settle(client: &Client, identity: Identity) -> Result<i64> {
    let Identity { system, timeline } = identity;
    let who = || vec![Param::one(system), Param::one(timeline)];
    let run = |error| classify(&error, Fate::Open);
    client
        .batch_execute("begin isolation level read committed")
        .await
        .map_err(run)?;
    query(client, REMEMBER, who()).await?;
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
        let mut params = who();
        params.push(Param::one(generation));
        query(client, SUCCEED, params).await?;
    }
    client.batch_execute("commit").await.map_err(run)?;
    Ok(generation)
}
