//! The schema's versions: what they are, and how a database is brought to the newest.

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

/// One step of the schema's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The version that the schema has after it.
    pub version: i32,
    /// What it is about.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "instances",
        sql: include_str!("../migrations/0001_instances.sql"),
    },
    Migration {
        version: 2,
        name: "isolation",
        sql: include_str!("../migrations/0002_isolation.sql"),
    },
];

/// All migrations in order, for who wants to read them or to run them by other means.
///
/// ```
/// let newest = abide_postgres::migrations().last().map(|migration| migration.version);
/// assert!(newest >= Some(1));
/// ```
pub fn migrations() -> &'static [Migration] {
    MIGRATIONS
}

/// The lock of whoever changes the schema; any number that nobody else is likely to use.
const LOCK: &str = "select pg_advisory_xact_lock(4710327810593620481)";

/// What there must be before versions can be counted.
const FOUNDATION: &str = "\
create schema if not exists abide; \
create table if not exists abide.schema_version ( \
    version int primary key, name text not null, applied_at timestamptz not null default now())";

/// How often a migration is tried that waits for a lock, and how long others are let pass in between.
const TRIES_MAX: usize = 20;
const PAUSE: Duration = Duration::from_millis(500);

const IS_FOUNDED: &str = "select to_regclass('abide.schema_version') is not null";
const VERSION: &str = "select coalesce(max(version), 0)::bigint from abide.schema_version";
const NOTE: &str = "insert into abide.schema_version (version, name) values ($1, $2)";

/// The statements that bring a schema of that version to the newest, as a script for another tool; empty when it has it.
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

/// The version of a database's schema, which is only looked at; 0 when it has none.
///
/// Errors: as those of [connecting](crate::Postgres::connect).
pub async fn schema_version(url: &str, options: &Options) -> Result<i64> {
    let pool = Pool::new(Connector::new(url, options)?, 1);
    let client = pool.get().await?;
    version(&client).await
}

/// Brings the schema to the newest version, or, when it may not, checks that it has it.
///
/// Each migration is a transaction of its own. Any number of processes may do this at once: one does it and the others
/// wait for it. A database that a newer release has migrated is refused. While a migration waits for a lock on a table,
/// everybody else waits behind it: so it gives up soon, lets them pass, and tries again.
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
        return Err(Error::Broken(format!(
            "the schema abide of this database is at version {version} and must be at {newest}: \
             allow this program to migrate it, or run the migrations by other means"
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

/// Which version the schema has; 0 when there is none.
async fn version(client: &Client) -> Result<i64> {
    let founded = each(&query(client, IS_FOUNDED, Vec::new()).await?, |cells| {
        cells.next()
    })?;
    if founded.first() != Some(&true) {
        return Ok(0);
    }
    let version = each(&query(client, VERSION, Vec::new()).await?, |cells| {
        cells.next()
    })?;
    Ok(version.first().copied().unwrap_or(0))
}

/// Runs one migration, unless another process has done so meanwhile.
async fn apply(client: &Client, migration: &Migration, timeouts: &Timeouts) -> Result<()> {
    let run = async |sql: &str| {
        client
            .batch_execute(sql)
            .await
            .map_err(|error| classify(&error, Fate::Open))
    };
    // Another process that migrates is waited for, however long that takes it; tables are not.
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
