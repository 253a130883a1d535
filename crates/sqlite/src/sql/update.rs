//! Writes rows that were loaded, and appends to their histories.

use abide_core::model::{HistoryRow, Timestamp};
use abide_kernel::{Advance, Changes, Finish, Move};
use rusqlite::{Connection, Result, params};

use super::json_list;

/// Writes rows that were loaded in this transaction.
pub(crate) fn update(conn: &Connection, changes: &Changes<'_>, now: Timestamp) -> Result<()> {
    if !changes.advances.is_empty() {
        advance(conn, &changes.advances, now)?;
    }
    if !changes.finishes.is_empty() {
        finish(conn, &changes.finishes, now)?;
    }
    if !changes.moves.is_empty() {
        move_all(conn, &changes.moves, now)?;
    }
    Ok(())
}

/// By primary key; touches no index.
pub(crate) const ADVANCE: &str = "
    update abide_instances
    set epoch = ?2, settled = ?3, step = ?4, step_seq = ?5, attempt = ?6, cause = ?7, history_seq = ?8,
        updated_at = ?9, state = ?10
    where id = ?1";

/// Writes steps that went on under the same worker.
fn advance(conn: &Connection, advances: &[Advance<'_>], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(ADVANCE)?;
    for Advance { row, state } in advances {
        statement.execute(params![
            row.id.0,
            row.epoch.0,
            row.settled.0,
            row.step.as_str(),
            row.step_seq,
            row.attempt,
            row.cause.code(),
            row.history_seq,
            now.as_micros(),
            state.as_str(),
        ])?;
    }
    Ok(())
}

/// By primary key; leaves `abide_held`, may leave those that guard keys, and enters `abide_finished`.
pub(crate) const FINISH: &str = "
    update abide_instances
    set status = ?2, behind = 0, due_at = null, worker = null, epoch = ?3, settled = ?4, wait_kind = null,
        awaits = null, wait_since = null, history_seq = ?5, finished_at = ?6, updated_at = ?7, last_error = ?8,
        result = ?9
    where id = ?1";

/// Writes instances that were executing and have ended.
fn finish(conn: &Connection, finishes: &[Finish<'_>], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(FINISH)?;
    for Finish { row, result } in finishes {
        statement.execute(params![
            row.id.0,
            row.status.code(),
            row.epoch.0,
            row.settled.0,
            row.history_seq,
            row.finished_at.map(Timestamp::as_micros),
            now.as_micros(),
            row.last_error.as_deref(),
            result.map(|result| result.as_str()),
        ])?;
    }
    Ok(())
}

/// By primary key. What no rule ever changes is left out: queue, priority, partition and parent.
pub(crate) const MOVE: &str = "
    update abide_instances
    set status = ?2, behind = ?3, due_at = ?4, worker = ?5, epoch = ?6, settled = ?7, step = ?8, step_seq = ?9,
        attempt = ?10, cause = ?11, timed_out = ?12, wait_kind = ?13, awaits = ?14, wait_since = ?15, barrier = ?16,
        children_pending = ?17, children_needed = ?18, history_seq = ?19, finished_at = ?20, updated_at = ?21,
        last_error = ?22, state = coalesce(?23, state)
    where id = ?1";

/// Writes any other change; the old state stays when there is no new one.
fn move_all(conn: &Connection, moves: &[Move<'_>], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(MOVE)?;
    for Move { row, state } in moves {
        let awaits = row.awaits.as_ref();
        let names = awaits
            .filter(|awaits| !awaits.names.is_empty())
            .map(|awaits| json_list(&awaits.names))
            .transpose()?;
        statement.execute(params![
            row.id.0,
            row.status.code(),
            row.behind,
            row.due_at.map(Timestamp::as_micros),
            row.worker.map(|worker| worker.0),
            row.epoch.0,
            row.settled.0,
            row.step.as_str(),
            row.step_seq,
            row.attempt,
            row.cause.code(),
            row.timed_out,
            awaits.map(|awaits| awaits.kind.code()),
            names,
            awaits.map(|awaits| awaits.since.as_micros()),
            row.family.barrier.0,
            row.family.pending,
            row.family.needed,
            row.history_seq,
            row.finished_at.map(Timestamp::as_micros),
            now.as_micros(),
            row.last_error.as_deref(),
            state.map(|state| state.as_str()),
        ])?;
    }
    Ok(())
}

/// At the end of the instance's part of the table, which is its primary key.
pub(crate) const APPEND: &str =
    "insert into abide_history (instance_id, seq, at, events) values (?1, ?2, ?3, ?4)";

/// Appends to histories. A number that is there already is an error: two commits would tell of the same event.
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
