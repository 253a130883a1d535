//! Writes loaded rows, and appends to their histories.

use abide_core::model::{HistoryRow, Json, Row, Timestamp};
use abide_core::sql;
use abide_kernel::{Advance, Finish, Leased, Move, MovedHistory, Wake};
use rusqlite::{CachedStatement, Connection, Result, params};

use super::Lazy;
use super::instances::{Advanced, Finished, Moved, Woken};
use crate::columns::IndexColumns;

/// Index: the primary key. No index is written.
pub(crate) const ADVANCE: &str = sql! {
    "update abide_instances set ", Advanced::SET, ", updated_at = ?10, state = coalesce(?11, state) where id = ?1"
};

/// Writes steps that continued under the same worker; the old state stays if there is no new one.
pub(crate) fn advance(conn: &Connection, advances: &[Advance<'_>], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(ADVANCE)?;
    for one in advances {
        Advanced::bind(&mut statement, one)?;
        statement.raw_bind_parameter(10, now.as_micros())?;
        statement.raw_bind_parameter(11, one.state.map(Json::as_str))?;
        statement.raw_execute()?;
    }
    Ok(())
}

/// Assignment: a row holds those of its keys that its new status holds.
const TAKE_KEYS: &str = ", taken = iif(taken is null, null, scopes >> ?2 & 65537)";

/// Index: the primary key. The row leaves `abide_held` and enters `abide_finished`.
pub(crate) const FINISH: &str = sql!(FINISHED, " where id = ?1");

/// The same, for a row that leaves the front of its partition and frees the keys that its status frees.
pub(crate) const FINISH_GUARDED: &str =
    sql!(FINISHED, ", standing = null", TAKE_KEYS, " where id = ?1");

const FINISHED: &str = sql! {
    "update abide_instances set ", Finished::SET, ", updated_at = ?10, result = ?11, worker = null"
};

/// Writes instances that were executing and have ended; `guarded` is `true` for rows with a partition or a key.
pub(crate) fn finish(
    conn: &Connection,
    finishes: &[Finish<'_>],
    now: Timestamp,
    guarded: impl Fn(&Row) -> bool,
) -> Result<()> {
    let is_guarded = |one: &Finish<'_>| guarded(one.row);
    write(
        conn,
        [FINISH, FINISH_GUARDED],
        finishes,
        is_guarded,
        |statement, one, _| {
            Finished::bind(statement, one)?;
            statement.raw_bind_parameter(10, now.as_micros())?;
            statement.raw_bind_parameter(11, one.result.map(Json::as_str))
        },
    )
}

/// Index: the primary key. The row leaves `abide_parked` and enters `abide_claimable`.
pub(crate) const WAKE: &str = sql!(WOKEN, " where id = ?1");

/// The same, and writes its position in its partition, and the keys that it holds.
pub(crate) const WAKE_GUARDED: &str = sql!(WOKEN, ", standing = ?10", TAKE_KEYS, " where id = ?1");

const WOKEN: &str = sql! {
    "update abide_instances set ", Woken::SET, ", updated_at = ?9"
};

/// Writes instances that received signals; `guarded` as for [`finish`].
pub(crate) fn wake(
    conn: &Connection,
    wakes: &[Wake<'_>],
    now: Timestamp,
    guarded: impl Fn(&Row) -> bool,
) -> Result<()> {
    let is_guarded = |one: &Wake<'_>| guarded(one.row);
    write(
        conn,
        [WAKE, WAKE_GUARDED],
        wakes,
        is_guarded,
        |statement, one, is_guarded| {
            Woken::bind(statement, one)?;
            statement.raw_bind_parameter(9, now.as_micros())?;
            bind_standing(statement, 10, one.row, is_guarded)
        },
    )
}

/// Index: the primary key. Columns that no rule ever changes are left out: queue, priority, partition, parent, contract
/// and run.
pub(crate) const MOVE: &str = sql!(MOVED, " where id = ?1");

/// The same, and writes its position in its partition, and the keys that it holds.
pub(crate) const MOVE_GUARDED: &str = sql!(MOVED, ", standing = ?22", TAKE_KEYS, " where id = ?1");

const MOVED: &str = sql! {
    "update abide_instances set ", Moved::SET, ", updated_at = ?19, result = coalesce(?20, result),
        state = coalesce(?21, state)"
};

/// Writes any other change; the old state and the old result stay if there is no new one. `guarded` as for [`finish`].
pub(crate) fn move_all(
    conn: &Connection,
    moves: &[Move<'_>],
    now: Timestamp,
    guarded: impl Fn(&Row) -> bool,
) -> Result<()> {
    let is_guarded = |one: &Move<'_>| guarded(one.row);
    write(
        conn,
        [MOVE, MOVE_GUARDED],
        moves,
        is_guarded,
        |statement, one, is_guarded| {
            Moved::bind(statement, one)?;
            statement.raw_bind_parameter(19, now.as_micros())?;
            statement.raw_bind_parameter(20, one.result.map(Json::as_str))?;
            statement.raw_bind_parameter(21, one.state.map(Json::as_str))?;
            bind_standing(statement, 22, one.row, is_guarded)
        },
    )
}

fn bind_standing(
    statement: &mut CachedStatement<'_>,
    at: usize,
    row: &Row,
    is_guarded: bool,
) -> Result<()> {
    match is_guarded {
        true => statement.raw_bind_parameter(at, IndexColumns::from(row).standing()),
        false => Ok(()),
    }
}

/// Writes rows with the first statement, or the second one for guarded rows.
fn write<T>(
    conn: &Connection,
    [plain, thorough]: [&'static str; 2],
    rows: &[T],
    is_guarded: impl Fn(&T) -> bool,
    bind: impl Fn(&mut CachedStatement<'_>, &T, bool) -> Result<()>,
) -> Result<()> {
    let mut plain = Lazy::new(conn, plain);
    let mut thorough = Lazy::new(conn, thorough);
    for one in rows {
        let guarded = is_guarded(one);
        let statement = match guarded {
            true => thorough.get()?,
            false => plain.get()?,
        };
        bind(statement, one, guarded)?;
        statement.raw_execute()?;
    }
    Ok(())
}

/// Index: the primary key. The row enters `abide_leased`, or leaves it. A separate statement, so that rows without a
/// lease never use that index.
pub(crate) const LEASE: &str =
    "update abide_instances set lease_until = ?2, limit_until = ?3, updated_at = ?4 where id = ?1";

/// Writes the leases of rows that are held, or were.
pub(crate) fn lease(conn: &Connection, leases: &[Leased], now: Timestamp) -> Result<()> {
    let mut statement = Lazy::new(conn, LEASE);
    for Leased { id, lease } in leases {
        let until = lease.map(|lease| lease.until.as_micros());
        let limit = lease.and_then(|lease| lease.limit);
        statement.get()?.execute(params![
            id.0,
            until,
            limit.map(Timestamp::as_micros),
            now.as_micros(),
        ])?;
    }
    Ok(())
}

/// Inserts at the end of the instance's part of the table, which is ordered by primary key.
pub(crate) const APPEND: &str =
    "insert into abide_history (instance_id, seq, at, events) values (?1, ?2, ?3, ?4)";

/// Appends to histories. A number that exists already is an error: two commits would record the same event.
pub(crate) fn append(conn: &Connection, rows: &[HistoryRow]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = conn.prepare_cached(APPEND)?;
    for row in rows {
        let (id, at) = (row.instance.0, row.at.as_micros());
        statement.execute(params![id, row.seq, at, row.events.as_str()])?;
    }
    Ok(())
}

/// Index: the primary key, which changes: the row moves to the end of the instance's part of the table.
pub(crate) const MOVE_HISTORY: &str =
    "update abide_history set seq = ?3, at = ?4, events = ?5 where instance_id = ?1 and seq = ?2";

/// Replaces rows of histories by others.
pub(crate) fn move_history(conn: &Connection, rows: &[MovedHistory]) -> Result<()> {
    let mut statement = conn.prepare_cached(MOVE_HISTORY)?;
    for MovedHistory { was, row } in rows {
        let (id, at) = (row.instance.0, row.at.as_micros());
        statement.execute(params![id, was, row.seq, at, row.events.as_str()])?;
    }
    Ok(())
}
