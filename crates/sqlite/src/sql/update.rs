//! Writes loaded rows, and appends to their histories.

use abide_core::model::{Extra, HistoryRow, Row, Timestamp};
use abide_kernel::{Advance, Finish, Leased, Move, MovedHistory, Wake};
use rusqlite::{Connection, Result, ToSql, params};

use super::Lazy;
use crate::cells;
use crate::columns::IndexColumns;

/// Index: the primary key. No index is written.
pub(crate) const ADVANCE: &str = "
    update abide_instances
    set epoch = ?2, settled = ?3, step = ?4, step_seq = ?5, attempt = ?6, cause = ?7, history_seq = ?8,
        updated_at = ?9, state = coalesce(?10, state), settled_before = ?11
    where id = ?1";

/// Writes steps that continued under the same worker; the old state stays if there is no new one.
pub(crate) fn advance(conn: &Connection, advances: &[Advance<'_>], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(ADVANCE)?;
    for Advance { row, state } in advances {
        statement.execute(params![
            row.id.0,
            row.epoch.0,
            row.settled.last.0,
            row.step.as_str(),
            row.step_seq,
            row.attempt,
            row.cause.code(),
            row.history_seq,
            now.as_micros(),
            state.map(|state| state.as_str()),
            row.settled.before.cast_signed(),
        ])?;
    }
    Ok(())
}

macro_rules! finish {
    ($more:literal) => {
        concat!(
            "update abide_instances
            set status = ?2, worker = null, epoch = ?3, settled = ?4, extra = ?11, history_seq = ?5,
                finished_at = ?6, updated_at = ?7, last_error = ?8, result = ?9, settled_before = ?10",
            $more,
            " where id = ?1"
        )
    };
}

/// Index: the primary key. The row leaves `abide_held` and enters `abide_finished`.
pub(crate) const FINISH: &str = finish!("");

/// The same, for a row that leaves the front of its partition and frees the keys that its status frees.
pub(crate) const FINISH_GUARDED: &str = finish!(
    ", standing = null,
       taken = iif(taken is null, null, scopes >> ?2 & 65537)"
);

/// Writes instances that were executing and have ended; `guarded` is `true` for rows with a partition or a key.
pub(crate) fn finish(
    conn: &Connection,
    finishes: &[Finish<'_>],
    now: Timestamp,
    guarded: impl Fn(&Row) -> bool,
) -> Result<()> {
    let mut plain = Lazy::new(conn, FINISH);
    let mut thorough = Lazy::new(conn, FINISH_GUARDED);
    for Finish { row, result } in finishes {
        let statement = if guarded(row) {
            &mut thorough
        } else {
            &mut plain
        };
        statement.get()?.execute(params![
            row.id.0,
            row.status.code(),
            row.epoch.0,
            row.settled.last.0,
            row.history_seq,
            row.finished_at.map(Timestamp::as_micros),
            now.as_micros(),
            row.last_error.as_deref(),
            result.map(|result| result.as_str()),
            row.settled.before.cast_signed(),
            cells::stored(&Extra::from(*row))?,
        ])?;
    }
    Ok(())
}

macro_rules! wake {
    ($more:literal) => {
        concat!(
            "update abide_instances
            set status = ?2, ready_at = ?3, wake_at = ?4, due_at = ?5, cause = ?6, history_seq = ?7, updated_at = ?8,
                extra = ?9",
            $more,
            " where id = ?1"
        )
    };
}

/// Index: the primary key. The row leaves `abide_parked` and enters `abide_claimable`.
pub(crate) const WAKE: &str = wake!("");

/// The same, and writes its position in its partition, and the keys that it holds.
pub(crate) const WAKE_GUARDED: &str = wake!(
    ", standing = ?10,
       taken = iif(taken is null, null, scopes >> ?2 & 65537)"
);

/// Writes instances that received signals; `guarded` as for [`finish`].
pub(crate) fn wake(
    conn: &Connection,
    wakes: &[Wake<'_>],
    now: Timestamp,
    guarded: impl Fn(&Row) -> bool,
) -> Result<()> {
    let mut plain = Lazy::new(conn, WAKE);
    let mut thorough = Lazy::new(conn, WAKE_GUARDED);
    for Wake { row } in wakes {
        let columns = IndexColumns::from(*row);
        let values: &[&dyn ToSql] = params![
            row.id.0,
            row.status.code(),
            columns.ready_at(),
            columns.wake_at(),
            row.due_at.map(Timestamp::as_micros),
            row.cause.code(),
            row.history_seq,
            now.as_micros(),
            cells::stored(&Extra::from(*row))?,
            columns.standing(),
        ];
        if guarded(row) {
            thorough.get()?.execute(values)?;
        } else {
            let all_but_standing = values.split_last().map(|(_, others)| others);
            plain.get()?.execute(all_but_standing.unwrap_or_default())?;
        }
    }
    Ok(())
}

macro_rules! move_row {
    ($more:literal) => {
        concat!(
            "update abide_instances
            set status = ?2, ready_at = ?3, wake_at = ?4, due_at = ?5, worker = ?6, epoch = ?7, settled = ?8,
                step = ?9, step_seq = ?10, attempt = ?11, cause = ?12, history_seq = ?13,
                finished_at = ?14, updated_at = ?15, last_error = ?16, result = coalesce(?17, result),
                state = coalesce(?18, state), kind = ?19, extra = ?20, settled_before = ?21",
            $more,
            " where id = ?1"
        )
    };
}

/// Index: the primary key. Columns that no rule ever changes are left out: queue, priority, partition, parent, contract
/// and run.
pub(crate) const MOVE: &str = move_row!("");

/// The same, and writes its position in its partition, and the keys that it holds.
pub(crate) const MOVE_GUARDED: &str = move_row!(
    ", standing = ?22,
       taken = iif(taken is null, null, scopes >> ?2 & 65537)"
);

/// Writes any other change; the old state and the old result stay if there is no new one. `guarded` as for [`finish`].
pub(crate) fn move_all(
    conn: &Connection,
    moves: &[Move<'_>],
    now: Timestamp,
    guarded: impl Fn(&Row) -> bool,
) -> Result<()> {
    let mut plain = Lazy::new(conn, MOVE);
    let mut thorough = Lazy::new(conn, MOVE_GUARDED);
    for Move { row, state, result } in moves {
        let columns = IndexColumns::from(*row);
        let values: &[&dyn ToSql] = params![
            row.id.0,
            row.status.code(),
            columns.ready_at(),
            columns.wake_at(),
            row.due_at.map(Timestamp::as_micros),
            row.worker.map(|worker| worker.0),
            row.epoch.0,
            row.settled.last.0,
            row.step.as_str(),
            row.step_seq,
            row.attempt,
            row.cause.code(),
            row.history_seq,
            row.finished_at.map(Timestamp::as_micros),
            now.as_micros(),
            row.last_error.as_deref(),
            result.map(|result| result.as_str()),
            state.map(|state| state.as_str()),
            row.kind.code(),
            cells::stored(&Extra::from(*row))?,
            row.settled.before.cast_signed(),
            columns.standing(),
        ];
        if guarded(row) {
            thorough.get()?.execute(values)?;
        } else {
            let all_but_standing = values.split_last().map(|(_, others)| others);
            plain.get()?.execute(all_but_standing.unwrap_or_default())?;
        }
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
