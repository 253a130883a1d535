//! The tables: numbered migrations that are applied in order, each in one transaction.

use abide_kernel::{Error, Result};
use rusqlite::{Connection, TransactionBehavior, params};

use crate::error::classed;

/// One migration from a version of the tables to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The version of the tables after it.
    pub version: u32,
    /// A short name.
    pub name: &'static str,
    /// Its statements.
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
    Migration {
        version: 3,
        name: "commands",
        sql: include_str!("../migrations/0003_commands.sql"),
    },
    Migration {
        version: 4,
        name: "policy",
        sql: include_str!("../migrations/0004_policy.sql"),
    },
    Migration {
        version: 5,
        name: "deploys",
        sql: include_str!("../migrations/0005_deploys.sql"),
    },
];

/// The objects that must exist before versions can be recorded.
const FOUNDATION: &str = "create table if not exists abide_schema (
            version integer primary key,
            name text not null,
            applied_at integer not null
         ) strict";

/// The version that this release works with.
pub(crate) const VERSION: u32 = 5;

/// Returns the migrations of this release, to read them or to apply them with another tool.
///
/// ```
/// let migrations = abide_sqlite::migrations();
/// assert_eq!(migrations.first().map(|first| first.version), Some(1));
/// ```
pub const fn migrations() -> &'static [Migration] {
    MIGRATIONS
}

/// Returns the statements that migrate tables from that version to the newest, as a script for another tool; empty if
/// they have the newest version.
///
/// ```
/// assert!(abide_sqlite::plan(0).contains("create table abide_instances"));
/// assert!(abide_sqlite::plan(u32::MAX).is_empty());
/// ```
pub fn plan(version: u32) -> String {
    let steps = MIGRATIONS.iter().filter(|step| step.version > version);
    let script = steps.map(|step| {
        let Migration { version, name, sql } = step;
        format!(
            "-- version {version}: {name}\nbegin immediate;\n{FOUNDATION};\n{sql}\ninsert into abide_schema (version, name, applied_at) \
             values ({version}, '{name}', cast(unixepoch('subsec') * 1000000 as integer));\ncommit;\n"
        )
    });
    script.collect()
}

/// Reads the version of the tables in a file without changing anything; 0 if it has none, or does not exist.
///
/// Errors: the same as for opening it; a version that this release does not know is [`Broken`](Error::Broken).
pub fn schema_version(path: impl AsRef<std::path::Path>) -> Result<u32> {
    let path = path.as_ref();
    match path.exists() {
        false => Ok(0),
        true => version(&crate::open::reader(path, &crate::Options::default())?),
    }
}

/// Migrates the tables to the version of this release.
///
/// Each migration is one transaction that reads the version again once it may write, so any number of processes may
/// open one file at the same time: one of them migrates, and the others find it done. A crash leaves a complete
/// version, never half of one. A file that a newer release has written to is refused and not changed.
pub(crate) fn migrate(conn: &mut Connection) -> Result<()> {
    while version(conn)? < VERSION {
        step(conn)?;
    }
    Ok(())
}

/// Refuses tables of another version than that of this release, and a file without tables.
pub(crate) fn check(conn: &Connection) -> Result<()> {
    match version(conn)? {
        VERSION => Ok(()),
        0 => Err(Error::NotSetUp(
            "it has no tables of abide: name another file, or let `abide migrate` create them"
                .into(),
        )),
        found => Err(Error::NotSetUp(format!(
            "its tables are at version {found} and must be at {VERSION}: run `abide migrate`, or start a program of this \
             release that may migrate them"
        ))),
    }
}

/// The version of the tables; 0 if there are none. Refuses a version that this release does not know.
pub(crate) fn version(conn: &Connection) -> Result<u32> {
    let found = stored_version(conn).map_err(classed)?;
    if found > VERSION {
        return Err(Error::Broken(format!(
            "the tables in this database have version {found}, and this release of abide knows versions up to \
             {VERSION}: use the newer release that made them, or another file"
        )));
    }
    Ok(found)
}

fn stored_version(conn: &Connection) -> rusqlite::Result<u32> {
    let there = "select 1 from sqlite_schema where type = 'table' and name = 'abide_schema'";
    if !conn.prepare_cached(there)?.exists([])? {
        return Ok(0);
    }
    let newest = "select coalesce(max(version), 0) from abide_schema";
    conn.prepare_cached(newest)?.query_row([], |row| row.get(0))
}

fn step(conn: &mut Connection) -> Result<()> {
    let txn = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(classed)?;
    let found = version(&txn)?;
    let Some(next) = MIGRATIONS.iter().find(|step| step.version > found) else {
        return Ok(());
    };
    apply(&txn, next).map_err(classed)?;
    txn.commit().map_err(classed)?;
    tracing::info!(
        version = next.version,
        name = next.name,
        "migrated the tables"
    );
    Ok(())
}

fn apply(conn: &Connection, step: &Migration) -> rusqlite::Result<()> {
    conn.execute_batch(FOUNDATION)?;
    conn.execute_batch(step.sql)?;
    conn.execute(
        "insert into abide_schema (version, name, applied_at)
         values (?1, ?2, cast(unixepoch('subsec') * 1000000 as integer))",
        params![step.version, step.name],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_count_up_from_one() {
        let versions: Vec<u32> = MIGRATIONS.iter().map(|step| step.version).collect();
        assert_eq!(versions, (1..=VERSION).collect::<Vec<_>>());
    }
}
