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

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "first release",
    sql: include_str!("../migrations/0001_instances.sql"),
}];

/// The name of version 1 in files of development versions. Their tables differ, and no migration leads to a release.
const DEVELOPMENT: &str = "instances";

/// The objects that must exist before versions can be recorded.
const FOUNDATION: &str = "create table if not exists abide_schema (
            version integer primary key,
            name text not null,
            applied_at integer not null
         ) strict";

/// The version that this release works with.
pub(crate) const VERSION: u32 = 1;

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
    script(MIGRATIONS, version)
}

fn script(known: &[Migration], version: u32) -> String {
    let steps = known.iter().filter(|step| step.version > version);
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
/// Errors: the same as for opening it; a version that this release does not know, and the tables of a development
/// version, are [`Broken`](Error::Broken).
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
/// version, never half of one. A file that a newer release or a development version has written to is refused and not
/// changed.
pub(crate) fn migrate(conn: &mut Connection) -> Result<()> {
    migrate_by(conn, MIGRATIONS)
}

fn migrate_by(conn: &mut Connection, known: &[Migration]) -> Result<()> {
    while version_of(conn, known)? < newest(known) {
        step(conn, known)?;
    }
    Ok(())
}

/// Refuses tables of another version than that of this release, and a file without tables.
pub(crate) fn check(conn: &Connection) -> Result<()> {
    check_by(conn, MIGRATIONS)
}

fn check_by(conn: &Connection, known: &[Migration]) -> Result<()> {
    let needed = newest(known);
    match version_of(conn, known)? {
        found if found == needed => Ok(()),
        0 => Err(Error::NotSetUp(
            "it has no tables of abide: name another file, or let `abide migrate` create them"
                .into(),
        )),
        found => Err(Error::NotSetUp(format!(
            "its tables are at version {found} and must be at {needed}: run `abide migrate`, or start a program of this \
             release that may migrate them"
        ))),
    }
}

/// The version of the tables; 0 if there are none. Refuses a version that this release does not know, and the tables
/// of a development version.
pub(crate) fn version(conn: &Connection) -> Result<u32> {
    version_of(conn, MIGRATIONS)
}

fn version_of(conn: &Connection, known: &[Migration]) -> Result<u32> {
    let (found, is_development) = stored_version(conn).map_err(classed)?;
    if is_development {
        return Err(Error::Broken(
            "a development version of abide made the tables in this database, and no release can read or migrate them: \
             use another file, or move this one away"
                .into(),
        ));
    }
    let newest = newest(known);
    if found > newest {
        return Err(Error::Broken(format!(
            "the tables in this database have version {found}, and this release of abide knows versions up to \
             {newest}: use the newer release that made them, or another file"
        )));
    }
    Ok(found)
}

fn newest(known: &[Migration]) -> u32 {
    known.last().map_or(0, |last| last.version)
}

/// The version of the tables, and whether a development version made them.
fn stored_version(conn: &Connection) -> rusqlite::Result<(u32, bool)> {
    let there = "select 1 from sqlite_schema where type = 'table' and name = 'abide_schema'";
    if !conn.prepare_cached(there)?.exists([])? {
        return Ok((0, false));
    }
    let newest = "
        select coalesce(max(version), 0), coalesce(max(version = 1 and name = ?1), 0) from abide_schema";
    conn.prepare_cached(newest)?
        .query_row([DEVELOPMENT], |row| Ok((row.get(0)?, row.get(1)?)))
}

fn step(conn: &mut Connection, known: &[Migration]) -> Result<()> {
    let txn = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(classed)?;
    let found = version_of(&txn, known)?;
    let Some(next) = known.iter().find(|step| step.version > found) else {
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

    /// Migrations of a release with three versions.
    const LATER: &[Migration] = &[
        Migration {
            version: 1,
            name: "first release",
            sql: "create table notes (text text not null) strict; insert into notes values ('kept');",
        },
        Migration {
            version: 2,
            name: "numbers",
            sql: "alter table notes add column number integer not null default 7;",
        },
        Migration {
            version: 3,
            name: "more",
            sql: "create table more (id integer primary key) strict;",
        },
    ];

    fn versions(conn: &Connection) -> Vec<u32> {
        let mut statement = conn
            .prepare("select version from abide_schema order by version")
            .unwrap();
        let versions = statement.query_map([], |row| row.get(0)).unwrap();
        versions.collect::<rusqlite::Result<_>>().unwrap()
    }

    fn note(conn: &Connection) -> (String, u32) {
        let read = "select text, number from notes";
        conn.query_row(read, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }

    #[test]
    fn versions_count_up_from_one() {
        for known in [MIGRATIONS, LATER] {
            let versions: Vec<u32> = known.iter().map(|step| step.version).collect();
            assert_eq!(versions, (1..=newest(known)).collect::<Vec<_>>());
        }
        assert_eq!(newest(MIGRATIONS), VERSION);
    }

    #[test]
    fn the_tables_of_an_older_release_are_migrated_and_keep_their_rows() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_by(&mut conn, &LATER[..1]).unwrap();
        assert_eq!(versions(&conn), [1]);
        let refused = check_by(&conn, LATER).unwrap_err();
        let text = refused.to_string();
        assert!(
            matches!(refused, Error::NotSetUp(_))
                && text.contains("at version 1 and must be at 3")
                && text.contains("abide migrate"),
            "{text}"
        );
        assert_eq!(versions(&conn), [1]);
        migrate_by(&mut conn, LATER).unwrap();
        assert_eq!(versions(&conn), [1, 2, 3]);
        assert_eq!(note(&conn), ("kept".to_owned(), 7));
        check_by(&conn, LATER).unwrap();
        migrate_by(&mut conn, LATER).unwrap();
        assert_eq!(versions(&conn), [1, 2, 3]);
        // The older release then refuses it.
        let text = version_of(&conn, &LATER[..1]).unwrap_err().to_string();
        assert!(
            text.contains("have version 3") && text.contains("up to 1"),
            "{text}"
        );
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let broken = Migration {
            version: 3,
            name: "broken",
            sql: "create table half (id integer) strict; insert into missing values (1);",
        };
        let known = [LATER[0], LATER[1], broken];
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_by(&mut conn, &known).unwrap_err();
        assert_eq!(versions(&conn), [1, 2]);
        assert!(conn.prepare("select * from half").is_err());
        migrate_by(&mut conn, LATER).unwrap();
        assert_eq!(versions(&conn), [1, 2, 3]);
    }

    #[test]
    fn a_script_migrates_from_any_version_to_the_newest() {
        for from in 0..=LATER.len() {
            let mut conn = Connection::open_in_memory().unwrap();
            migrate_by(&mut conn, &LATER[..from]).unwrap();
            let script = script(LATER, u32::try_from(from).unwrap());
            assert_eq!(script.is_empty(), from == LATER.len());
            conn.execute_batch(&script).unwrap();
            check_by(&conn, LATER).unwrap();
            assert_eq!(versions(&conn), [1, 2, 3]);
            assert_eq!(note(&conn), ("kept".to_owned(), 7));
        }
    }
}
