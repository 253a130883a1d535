//! The versions of the schema, and the migration of a database to the newest one.

use std::time::Duration;

use abide_kernel::{Error, Result};
use tokio_postgres::Client;

use crate::begin;
use crate::cells::each;
use crate::connect::Connector;
use crate::error::{Fate, classify};
use crate::param::Param;
use crate::pool::Pool;
use crate::read::query;
use crate::{Options, Timeouts};

/// One migration of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The version of the schema after it.
    pub version: i32,
    /// A short name.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "first release",
    sql: include_str!("../migrations/0001_instances.sql"),
}];

/// Returns all migrations in order, to read them or to run them with another tool.
///
/// ```
/// let newest = abide_postgres::migrations().last().map(|migration| migration.version);
/// assert!(newest >= Some(1));
/// ```
pub fn migrations() -> &'static [Migration] {
    MIGRATIONS
}

/// Serializes changes of the schema; an arbitrary number that other programs are unlikely to use.
const LOCK: &str = "select pg_advisory_xact_lock(4710327810593620481)";

/// The objects that must exist before versions can be recorded.
const FOUNDATION: &str = "\
create schema if not exists abide; \
create table if not exists abide.schema_version ( \
    version int primary key, name text not null, applied_at timestamptz not null default now())";

/// Maximum number of attempts of a migration that waits for a lock, and the pause between attempts, in which others
/// proceed.
const TRIES_MAX: usize = 20;
const PAUSE: Duration = Duration::from_millis(500);

const IS_FOUNDED: &str = "select to_regclass('abide.schema_version') is not null";
const VERSION: &str = "\
select coalesce(max(version), 0)::bigint, coalesce(bool_or(version = 1 and name = $1), false) from abide.schema_version";
/// The name of version 1 in databases of development versions. Their tables differ, and no migration leads to a release.
const DEVELOPMENT: &str = "instances";
const NOTE: &str = "insert into abide.schema_version (version, name) values ($1, $2)";

/// Returns the statements that migrate a schema from that version to the newest, as a script for another tool; empty if
/// it has the newest version.
///
/// ```
/// assert!(abide_postgres::plan(0).contains("create schema if not exists abide"));
/// assert!(abide_postgres::plan(i64::MAX).is_empty());
/// ```
pub fn plan(version: i64) -> String {
    let steps = MIGRATIONS
        .iter()
        .filter(|one| i64::from(one.version) > version);
    let script = steps.map(|step| {
        let Migration { version, name, sql } = step;
        format!(
            "-- version {version}: {name}\nbegin;\n{LOCK};\n{FOUNDATION};\n{sql}\n\
             insert into abide.schema_version (version, name) values ({version}, '{name}');\ncommit;\n"
        )
    });
    script.collect()
}

/// Reads the version of a database's schema without changing anything; 0 if it has none.
///
/// Errors: the same as for [connecting](crate::Postgres::connect).
pub async fn schema_version(url: &str, options: &Options) -> Result<i64> {
    let pool = Pool::new(Connector::new(url, options)?, 1);
    let client = pool.get().await?;
    version(&client).await
}

/// Migrates the schema to the newest version or, if that is not allowed, checks that it has it.
///
/// Each migration is a transaction of its own. Any number of processes may do this at the same time: one migrates, and
/// the others wait for it. A database that a newer release has migrated is refused. While a migration waits for a table
/// lock, all other transactions wait behind it, so it gives up soon, lets them proceed, and tries again.
pub(crate) async fn migrate(client: &Client, allowed: bool, timeouts: &Timeouts) -> Result<()> {
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let version = version(client).await?;
    if version > i64::from(newest) {
        return Err(Error::Broken(format!(
            "the schema abide of this database is at version {version}, and this program knows \
             versions up to {newest}: run a newer release of abide, or use another database"
        )));
    }
    if version < i64::from(newest) && !allowed {
        return Err(Error::NotSetUp(format!(
            "the schema abide of this database is at version {version} and must be at {newest}: \
             run `abide migrate`, or start a program of this release that may migrate it"
        )));
    }
    for migration in MIGRATIONS
        .iter()
        .filter(|one| i64::from(one.version) > version)
    {
        let mut tries = 1;
        while let Err(error) = apply(client, migration, timeouts).await {
            let _ = client.batch_execute("rollback").await;
            if !matches!(error, Error::Conflict(_)) || tries >= TRIES_MAX {
                return Err(error);
            }
            tracing::info!(%error, version = migration.version, "the schema is in use; trying to migrate it again");
            tries += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// The version of the schema; 0 if there is none. Refuses the schema of a development version.
async fn version(client: &Client) -> Result<i64> {
    let founded = each(&query(client, IS_FOUNDED, Vec::new()).await?, |cells| {
        cells.next()
    })?;
    if founded.first() != Some(&true) {
        return Ok(0);
    }
    let found = query(client, VERSION, vec![Param::one(DEVELOPMENT)]).await?;
    let found: Vec<(i64, bool)> = each(&found, |cells| Ok((cells.next()?, cells.next()?)))?;
    match found.first() {
        Some((_, true)) => Err(Error::Broken(
            "a development version of abide made the schema abide of this database, and no release can read or migrate it: \
             use another database, or drop the schema if nothing in it is needed"
                .into(),
        )),
        found => Ok(found.map_or(0, |(version, _)| *version)),
    }
}

/// Runs one migration, unless another process has done so meanwhile.
async fn apply(client: &Client, migration: &Migration, timeouts: &Timeouts) -> Result<()> {
    let run = async |sql: &str| {
        client
            .batch_execute(sql)
            .await
            .map_err(|error| classify(&error, Fate::Open))
    };
    // Waits for another process that migrates, as long as that takes; the wait for tables is limited.
    run(&begin::migration(timeouts)).await?;
    run(LOCK).await?;
    run(&begin::migration_locks(timeouts)).await?;
    run(FOUNDATION).await?;
    if version(client).await? < i64::from(migration.version) {
        run(migration.sql).await?;
        let note = vec![Param::one(migration.version), Param::one(migration.name)];
        query(client, NOTE, note).await?;
        tracing::info!(
            version = migration.version,
            name = migration.name,
            "migrated the schema"
        );
    }
    run("commit").await
}
