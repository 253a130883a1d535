//! Reads the children of a barrier.

use abide_core::model::{BarrierNumber, Child, InstanceId};
use abide_kernel::gather;
use rusqlite::{Connection, Result, Row, params};

use crate::cells;

/// Index: `abide_children`, in order of the id.
pub(crate) const CHILDREN: &str = "
    select id, key, machine, status, state, result, last_error from abide_instances
    where parent_id = ?1 and parent_barrier = ?2 order by id";

/// Index: `abide_children`, in order of the id.
pub(crate) const CHILDREN_ABOVE: &str = "
    select id, key, machine, status, state, result, last_error from abide_instances
    where parent_id = ?1 and parent_barrier = ?2 and id > ?3 order by id";

/// Index: `abide_children`. SQLite knows the sizes without reading the texts.
pub(crate) const CHILDREN_BYTES: &str = "
    select coalesce(sum(octet_length(state) + coalesce(octet_length(result), 0)
        + coalesce(octet_length(last_error), 0)), 0) from abide_instances
    where parent_id = ?1 and parent_barrier = ?2";

/// The children of one barrier above an id, by id; stops after the child that makes the total exceed a number of bytes.
pub(crate) fn above(
    conn: &Connection,
    parent: InstanceId,
    barrier: BarrierNumber,
    after: InstanceId,
    bytes: usize,
) -> Result<Vec<Child>> {
    let mut statement = conn.prepare_cached(CHILDREN_ABOVE)?;
    let rows = statement.query_map(params![parent.0, barrier.0, after.0], read)?;
    gather(rows, bytes)
}

/// The children of one barrier, by id.
fn children(conn: &Connection, parent: InstanceId, barrier: BarrierNumber) -> Result<Vec<Child>> {
    let mut statement = conn.prepare_cached(CHILDREN)?;
    let rows = statement.query_map(params![parent.0, barrier.0], read)?;
    rows.collect()
}

/// The children of each given barrier, by id.
pub(crate) fn of_all(
    conn: &Connection,
    barriers: &[(InstanceId, BarrierNumber)],
) -> Result<Vec<(InstanceId, Child)>> {
    let mut all = Vec::new();
    for (parent, barrier) in barriers {
        let of_this = children(conn, *parent, *barrier)?;
        all.extend(of_this.into_iter().map(|child| (*parent, child)));
    }
    Ok(all)
}

/// The total bytes of the children of each given barrier.
pub(crate) fn bytes_of_all(
    conn: &Connection,
    barriers: &[(InstanceId, BarrierNumber)],
) -> Result<Vec<(InstanceId, u64)>> {
    let mut statement = conn.prepare_cached(CHILDREN_BYTES)?;
    let mut all = Vec::with_capacity(barriers.len());
    for (parent, barrier) in barriers {
        let bytes: i64 = statement.query_row(params![parent.0, barrier.0], |row| row.get(0))?;
        all.push((*parent, u64::try_from(bytes).unwrap_or_default()));
    }
    Ok(all)
}

fn read(row: &Row<'_>) -> Result<Child> {
    Ok(Child {
        id: cells::id(row, 0)?,
        key: cells::maybe_key(row, 1)?,
        machine: cells::name(row, 2)?,
        status: cells::status(row, 3)?,
        state: cells::json(row, 4)?,
        result: cells::maybe_json(row, 5)?,
        last_error: row.get(6)?,
    })
}
