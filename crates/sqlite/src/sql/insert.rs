//! Inserts rows, and finds who holds the key of one that may not be inserted.

use abide_core::model::{InstanceId, Key, NewRow, Started, UniqueKey};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, params};

use crate::cells;
use crate::columns::{Place, lane, scopes, taken};

/// Dropped when `abide_key_taken` or `abide_unique_key_taken` has its key.
pub(crate) const INSERT: &str = "
    insert into abide_instances (
        status, ready_at, wake_at, lane, priority, due_at, epoch, settled, step, step_seq, attempt, cause, timed_out,
        history_seq, partition_key, standing, parent_id, parent_barrier, key, unique_key, scopes, taken, queue, machine,
        version, kind, first_step, created_at, updated_at, state)
    values (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, 1, 0, ?8, 0, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
            ?21, ?7, ?22, ?22, ?23)
    on conflict do nothing";

/// Inserts rows in order; one whose key or unique key is taken is dropped and answered with the holder's id. Event 1 of
/// a history, `started`, is told by the row itself, so a history begins with one event.
pub(crate) fn insert(conn: &Connection, rows: &[NewRow]) -> Result<Vec<Started>> {
    let mut statement = conn.prepare_cached(INSERT)?;
    let mut started = Vec::with_capacity(rows.len());
    for row in rows {
        started.push(match insert_one(&mut statement, row)? {
            0 => Started::Duplicate(holder(conn, row)?),
            _ => Started::New(InstanceId(conn.last_insert_rowid())),
        });
    }
    Ok(started)
}

fn insert_one(statement: &mut CachedStatement<'_>, row: &NewRow) -> Result<usize> {
    let place = Place::from(row);
    statement.execute(params![
        row.status.code(),
        place.ready_at(),
        place.wake_at(),
        lane(&row.queue, &row.machine, row.version),
        row.priority.0,
        row.due_at.as_micros(),
        row.step.as_str(),
        row.cause.code(),
        row.history,
        row.partition_key.as_ref().map(Key::as_str),
        place.standing(),
        row.parent.map(|parent| parent.0),
        row.parent_barrier.0,
        row.key.as_ref().map(Key::as_str),
        row.unique_key.as_ref().map(UniqueKey::as_bytes),
        scopes(row.scope, row.unique_scope),
        taken(row),
        row.queue.as_str(),
        row.machine.as_str(),
        row.version,
        row.kind.code(),
        row.created_at.as_micros(),
        row.state.as_str(),
    ])
}

/// Who holds the key, else the unique key, that kept a row from being inserted.
fn holder(conn: &Connection, row: &NewRow) -> Result<InstanceId> {
    if let Some(key) = &row.key
        && row.scope.holds(row.status)
        && let Some(holder) = find(conn, KEY_HOLDER, key.as_str())?
    {
        return Ok(holder);
    }
    let unique = row.unique_key.as_ref().map(UniqueKey::as_bytes);
    find(conn, UNIQUE_KEY_HOLDER, unique)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// By `abide_key_taken`.
pub(crate) const KEY_HOLDER: &str = "
    select id from abide_instances
    where key = ?1 and key is not null and taken & 1 = 1";

/// By `abide_unique_key_taken`.
pub(crate) const UNIQUE_KEY_HOLDER: &str = "
    select id from abide_instances
    where unique_key = ?1 and unique_key is not null and taken & 65536 = 65536";

fn find(conn: &Connection, sql: &str, key: impl rusqlite::ToSql) -> Result<Option<InstanceId>> {
    let mut statement = conn.prepare_cached(sql)?;
    statement
        .query_row([key], |row| cells::id(row, 0))
        .optional()
}
