//! Inserts rows, and finds the holder of a key that prevents an insert.

use abide_core::model::{InstanceId, NewRow, Started};
use abide_core::sql;
use rusqlite::{CachedStatement, Connection, Error, Result};

use super::instances::Start;
use super::keys::{key_holder, unique_key_holder};
use super::{Lazy, limited, one};

const COLUMNS: &str = sql!(
    Start::NAMES,
    ", created_at, first_step, epoch, settled, step_seq, attempt, state"
);
/// The values of [`COLUMNS`] but the last.
const VALUES: &str = sql!(Start::VALUES, ", ?22, ?7, 0, 0, 1, 0");

/// Does not insert if `abide_key_taken` or `abide_unique_key_taken` has its key.
pub(crate) const INSERT: &str = sql! {
    "insert into abide_instances (", COLUMNS, ") values (", VALUES, ", ?27) on conflict do nothing"
};

/// Inserts rows that differ only in their states. It begins and ends, opens the indexes and draws ids once for all of
/// them, and the values that they share are bound once: that is half of what each costs alone.
pub(crate) const INSERT_MANY: &str = sql! {
    "insert into abide_instances (", COLUMNS, ") select ", VALUES, ", column1
    from (values (?27), (?28), (?29), (?30), (?31), (?32), (?33), (?34), (?35), (?36), (?37), (?38), (?39),
        (?40), (?41), (?42), (?43), (?44), (?45), (?46), (?47), (?48), (?49), (?50), (?51), (?52), (?53), (?54), (?55),
        (?56), (?57), (?58)) where true on conflict do nothing"
};

/// Number of rows that [`INSERT_MANY`] inserts.
const MANY: usize = 32;

/// Number of the parameter for the state, and for the first of several.
const STATE: usize = 27;

/// Index: the primary key. Writes all that [`INSERT`] writes, from the same values, into a reserved row. The creation
/// time stays.
pub(crate) const OPEN: &str = sql! {
    "update abide_instances
    set status = ?1, ", Start::SET,
    ", state = ?27, first_step = ?7, worker = null, epoch = 0, settled = 0, step_seq = 1, attempt = 0,
        finished_at = null, last_error = null, result = null
    where id = ?28"
};

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
    Start::bind(statement, row)?;
    statement.raw_bind_parameter(STATE, row.state.as_str())
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
