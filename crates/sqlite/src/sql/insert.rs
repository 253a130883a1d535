//! Inserts rows, and finds the holder of a key that prevents an insert.

use abide_core::model::{Extra, InstanceId, Key, NewRow, Started, UniqueKey};
use rusqlite::{CachedStatement, Connection, Error, Result, ToSql};

use super::keys::{key_holder, unique_key_holder};
use super::{Lazy, limited, one};
use crate::cells;
use crate::columns::{IndexColumns, lane, scopes, taken};

macro_rules! insert {
    ($from:literal, $states:literal) => {
        concat!(
            "insert into abide_instances (
                status, ready_at, wake_at, lane, priority, due_at, epoch, settled, step, step_seq, attempt, cause,
                history_seq, partition_key, standing, parent_id, parent_barrier, key, unique_key, scopes, taken, queue,
                machine, version, kind, first_step, created_at, updated_at, first_id, contract, policy, extra, state) ",
            $from,
            " ?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, 1, 0, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
            ?21, ?7, ?22, ?22, ?23, ?24, ?25, ?26, ",
            $states,
            " on conflict do nothing"
        )
    };
}

/// Does not insert if `abide_key_taken` or `abide_unique_key_taken` has its key.
pub(crate) const INSERT: &str = insert!("values (", "?27)");

/// Inserts rows that differ only in their states. It begins and ends, opens the indexes and draws ids once for all of
/// them, and the values that they share are bound once: that is half of what each costs alone.
pub(crate) const INSERT_MANY: &str = insert!(
    "select",
    "column1 from (values (?27), (?28), (?29), (?30), (?31), (?32), (?33), (?34), (?35), (?36), (?37), (?38), (?39),
        (?40), (?41), (?42), (?43), (?44), (?45), (?46), (?47), (?48), (?49), (?50), (?51), (?52), (?53), (?54), (?55),
        (?56), (?57), (?58)) where true"
);

/// Number of rows that [`INSERT_MANY`] inserts.
const MANY: usize = 32;

/// Number of the parameter for the state, and for the first of several.
const STATE: usize = 27;

/// Index: the primary key. Writes all that [`INSERT`] writes, from the same values, into a reserved row. The creation
/// time stays.
pub(crate) const OPEN: &str = "
    update abide_instances
    set status = ?1, ready_at = ?2, wake_at = ?3, lane = ?4, priority = ?5, due_at = ?6, worker = null, epoch = 0,
        settled = 0, step = ?7, step_seq = 1, attempt = 0, cause = ?8, history_seq = ?9, finished_at = null, partition_key = ?10, standing = ?11, parent_id = ?12, parent_barrier = ?13,
        key = ?14, unique_key = ?15, scopes = ?16, taken = ?17, queue = ?18, machine = ?19, version = ?20, kind = ?21,
        first_step = ?7, updated_at = ?22, first_id = ?23, contract = ?24, policy = ?25, extra = ?26,
        last_error = null, result = null, state = ?27
    where id = ?28";

/// Inserts rows in order; leaves out a row whose key or unique key is taken, and returns the id of the holder for it.
/// The row itself records event 1 of its history, `started`, so a history begins with one event.
pub(crate) fn insert(conn: &Connection, rows: &[NewRow]) -> Result<Vec<Started>> {
    let mut single = Lazy::new(conn, INSERT);
    let mut several = Lazy::new(conn, INSERT_MANY);
    let mut started = Vec::with_capacity(rows.len());
    for alike in rows.chunk_by(are_alike) {
        let (many, rest) = alike.as_chunks();
        for rows in many {
            let last = insert_many(conn, several.get()?, rows)?;
            let ids = last + 1 - limited(MANY)..=last;
            started.extend(ids.map(|id| Started::New(InstanceId(id))));
        }
        for row in rest {
            let statement = single.get()?;
            bind(statement, row)?;
            started.push(match statement.raw_execute()? {
                0 => Started::Duplicate(holder(conn, row)?),
                _ => Started::New(InstanceId(conn.last_insert_rowid())),
            });
        }
    }
    Ok(started)
}

/// `true` if two rows have no keys and differ only in their states.
fn are_alike(one: &NewRow, other: &NewRow) -> bool {
    let is_free = one.key.is_none() && one.unique_key.is_none() && one.partition_key.is_none();
    let state = one.state.clone();
    is_free
        && *one
            == NewRow {
                state,
                ..other.clone()
            }
}

/// Inserts rows that are alike, in order. Returns the id of the last one; the ids are consecutive.
fn insert_many(
    conn: &Connection,
    statement: &mut CachedStatement<'_>,
    rows: &[NewRow; MANY],
) -> Result<i64> {
    let [first, others @ ..] = rows;
    bind(statement, first)?;
    for (at, row) in others.iter().enumerate() {
        statement.raw_bind_parameter(STATE + 1 + at, row.state.as_str())?;
    }
    match statement.raw_execute()? {
        MANY => Ok(conn.last_insert_rowid()),
        other => Err(Error::StatementChangedRows(other)),
    }
}

/// Writes a start into a reserved row.
pub(crate) fn open(conn: &Connection, id: InstanceId, row: &NewRow) -> Result<()> {
    let mut statement = conn.prepare_cached(OPEN)?;
    bind(&mut statement, row)?;
    statement.raw_bind_parameter(STATE + 1, id.0)?;
    one(statement.raw_execute()?)
}

/// Binds the values of a row: the parameters up to [`STATE`].
fn bind(statement: &mut CachedStatement<'_>, row: &NewRow) -> Result<()> {
    let columns = IndexColumns::from(row);
    let values: &[&dyn ToSql; STATE] = &[
        &row.status.code(),
        &columns.ready_at(),
        &columns.wake_at(),
        &lane(&row.queue, &row.machine, row.version),
        &row.priority.0,
        &row.due_at.as_micros(),
        &row.step.as_str(),
        &row.cause.code(),
        &row.history,
        &row.partition_key.as_ref().map(Key::as_str),
        &columns.standing(),
        &row.parent.map(|parent| parent.0),
        &row.parent_barrier.0,
        &row.key.as_ref().map(Key::as_str),
        &row.unique_key.as_ref().map(UniqueKey::as_bytes),
        &scopes(row.scope, row.unique_scope),
        &taken(row),
        &row.queue.as_str(),
        &row.machine.as_str(),
        &row.version,
        &row.kind.code(),
        &row.created_at.as_micros(),
        &row.run.first.map(|first| first.0),
        &row.contract.map(|contract| contract.0),
        &row.policy.as_ref().map(cells::written).transpose()?,
        &cells::stored(&Extra::from(row))?,
        &row.state.as_str(),
    ];
    for (at, value) in values.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, value)?;
    }
    Ok(())
}

/// The holder of the key, or otherwise of the unique key, that prevented the insert of a row.
fn holder(conn: &Connection, row: &NewRow) -> Result<InstanceId> {
    if let Some(key) = &row.key
        && row.scope.holds(row.status)
        && let Some(holder) = key_holder(conn, key)?
    {
        return Ok(holder);
    }
    let holder = match &row.unique_key {
        Some(key) => unique_key_holder(conn, key)?,
        None => None,
    };
    holder.ok_or(Error::QueryReturnedNoRows)
}
