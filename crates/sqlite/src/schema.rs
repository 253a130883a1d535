//! The tables: numbered files that are applied in order, each in one transaction.

use abide_kernel::{Error, Result};
use rusqlite::{Connection, TransactionBehavior, params};

use crate::error::classed;

/// One step from a version of the tables to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The version the tables have after it.
    pub version: u32,
    /// What it brings.
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
];

/// What there must be before versions can be counted.
const FOUNDATION: &str = "create table if not exists abide_schema (
            version integer primary key,
            name text not null,
            applied_at integer not null
         ) strict";

/// The version that this release works with.
pub(crate) const VERSION: u32 = 2;

/// The tables as this release makes them, for who wants to read them or to apply them by other means.
///
/// ```
/// let migrations = abide_sqlite::migrations();
/// assert_eq!(migrations.first().map(|first| first.version), Some(1));
/// ```
pub const fn migrations() -> &'static [Migration] {
    MIGRATIONS
}

/// The statements that bring tables of that version to the newest, as a script for another tool; empty when they have it.
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

/// The version of the tables in a file, which is only looked at; 0 when it has none, or is not there.
///
/// Errors: as those of opening it; a version that this release does not know is [`Broken`](Error::Broken).
pub fn schema_version(path: impl AsRef<std::path::Path>) -> Result<u32> {
    let path = path.as_ref();
    match path.exists() {
        false => Ok(0),
        true => version(&crate::open::reader(path, &crate::Options::default())?),
    }
}

/// Brings the tables to the version that this release works with.
///
/// Each step is one transaction that looks at the version again once it may write, so that any number of processes may
/// open one file at the same time: one of them makes the step and the others find it made. A crash leaves a version,
/// never half of one. A file that a newer release has written to is refused and not touched.
pub(crate) fn migrate(conn: &mut Connection) -> Result<()> {
    while version(conn)? < VERSION {
        step(conn)?;
    }
    Ok(())
}

/// The version of the tables; 0 when there are none. Refuses one that this release does not know.
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
