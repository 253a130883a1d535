//! Operations inside a transaction of the caller (rule 17.1).

use abide_core::model::{Limits, Timestamp};
use abide_kernel::{Answer, Effects, Error, Op, Result, run_now_lent};
use rusqlite::Connection;

use crate::cache::Cache;
use crate::error::{bare, classed};
use crate::schema;
use crate::session::Session;

/// Runs operations on a connection of the caller, inside its open transaction, which may be a [`rusqlite::Transaction`]
/// or a [`rusqlite::Savepoint`]. This function neither begins nor commits.
///
/// Atomic: all of the operations become part of the caller's transaction, or none if this returns an error. They take
/// effect when the caller commits, and have no effect if it rolls back. The stores that have the file open, in this
/// process and in others, notice the commit and wake waiting tasks.
///
/// Errors: [`Conflict`](Error::Conflict) if another transaction writes; begin yours with `begin immediate`, so that it
/// waits for the other at its beginning and cannot fail this way later. [`Broken`](Error::Broken) if no transaction is
/// open, or the file does not have the tables of this release.
///
/// ```
/// use abide_core::model::{Json, Limits, Name, Start, Timestamp};
/// use abide_kernel::Op;
/// use abide_sqlite::rusqlite::{Connection, TransactionBehavior};
/// use abide_sqlite::{Options, Sqlite, run_within};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("app.db");
/// let store = Sqlite::open(&path, Options::default())?;          // makes the tables
///
/// let mut mine = Connection::open(&path)?;
/// mine.execute_batch("create table orders (id integer primary key)")?;
/// let txn = mine.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// txn.execute("insert into orders values (42)", [])?;
/// let start = Op::Start(vec![Start::of(Name::new("checkout")?, Json::null())]);
/// run_within(&txn, &[start], Timestamp::from_micros(0), &Limits::default())?;
/// txn.commit()?;                                                 // both, or neither
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run_within(
    conn: &Connection,
    ops: &[Op],
    now: Timestamp,
    limits: &Limits,
) -> Result<Vec<Answer>> {
    // The stores notice the commit themselves, so the effects are not needed.
    run_lent(conn, ops, now, limits).map(|(answers, _effects)| answers)
}

/// Runs operations inside the open transaction of a connection; also returns the effects to publish after its commit.
pub(crate) fn run_lent(
    conn: &Connection,
    ops: &[Op],
    now: Timestamp,
    limits: &Limits,
) -> Result<(Vec<Answer>, Effects)> {
    if conn.is_autocommit() {
        return Err(Error::Broken(
            "there is no transaction open on this connection: begin one, and pass it here".into(),
        ));
    }
    check_tables(conn)?;
    // If an operation fails, the writes of earlier ones must not stay in the caller's transaction.
    let savepoint = |sql| conn.prepare_cached(sql)?.execute([]).map(drop);
    savepoint("savepoint abide_within").map_err(classed)?;
    let mut nothing_known = Cache::default();
    let mut session = Session::new(conn, &mut nothing_known);
    let answers = run_now_lent(&mut session, ops, now, limits);
    if answers.is_err() && !conn.is_autocommit() {
        savepoint("rollback to abide_within").map_err(classed)?;
    }
    if !conn.is_autocommit() {
        savepoint("release abide_within").map_err(classed)?;
    }
    answers
}

fn check_tables(conn: &Connection) -> Result<()> {
    match schema::version(conn) {
        Ok(schema::VERSION) => Ok(()),
        Ok(found) => Err(Error::Broken(format!(
            "this database has {}: open it with abide first, which makes them",
            if found == 0 {
                "no tables of abide".to_owned()
            } else {
                format!(
                    "tables of version {found}, and version {} is needed",
                    schema::VERSION
                )
            }
        ))),
        Err(Error::Broken(text)) => Err(Error::Broken(text)),
        Err(error) => Err(Error::Conflict(bare(error))),
    }
}
