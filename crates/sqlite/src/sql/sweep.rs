//! Deletes what has finished.

use abide_core::model::{BarrierNumber, InstanceId, Timestamp};
use abide_core::rules::retention::Expired;
use abide_kernel::{Cursor, Expiring};
use rusqlite::{Connection, Result, Row, params};

use super::limited;
use crate::cells;

/// By `abide_finished`, from the cursor on; the parent by its primary key.
pub(crate) const EXPIRING: &str = "
    select one.finished_at, one.id, one.parent_barrier, parent.status, parent.family
    from abide_instances as one left join abide_instances as parent on parent.id = one.parent_id
    where one.finished_at is not null and one.finished_at < ?1 and (one.finished_at, one.id) > (?2, ?3)
    order by one.finished_at, one.id limit ?4";

/// The first rows that finished before that moment, after the cursor, in the order in which they did.
pub(crate) fn expiring(
    conn: &Connection,
    before: Timestamp,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Vec<Expiring>> {
    let (at, id) = after.map_or((i64::MIN, i64::MIN), |after| {
        (after.finished_at.as_micros(), after.id.0)
    });
    let mut statement = conn.prepare_cached(EXPIRING)?;
    let rows = statement.query_map(params![before.as_micros(), at, id, limited(limit)], read)?;
    rows.collect()
}

fn read(row: &Row<'_>) -> Result<Expiring> {
    let parent = if cells::is_there(row, 3)? {
        Some((cells::status(row, 3)?, cells::family(row, 4)?.barrier))
    } else {
        None
    };
    Ok(Expiring {
        cursor: Cursor {
            finished_at: cells::time(row, 0)?,
            id: cells::id(row, 1)?,
        },
        expired: Expired {
            parent_barrier: BarrierNumber(row.get(2)?),
            parent,
        },
    })
}

/// By primary key.
pub(crate) const DELETE_HISTORY: &str = "delete from abide_history where instance_id = ?1";

/// By `abide_signals_of_run`.
pub(crate) const DELETE_SIGNALS: &str = "delete from abide_signals where instance_id = ?1";

/// By primary key.
pub(crate) const DELETE: &str = "delete from abide_instances where id = ?1";

/// Deletes instances with their histories and the records of what was sent to them.
pub(crate) fn delete(conn: &Connection, ids: &[InstanceId]) -> Result<()> {
    let mut history = conn.prepare_cached(DELETE_HISTORY)?;
    let mut signals = conn.prepare_cached(DELETE_SIGNALS)?;
    let mut instance = conn.prepare_cached(DELETE)?;
    for id in ids {
        history.execute([id.0])?;
        signals.execute([id.0])?;
        instance.execute([id.0])?;
    }
    Ok(())
}
