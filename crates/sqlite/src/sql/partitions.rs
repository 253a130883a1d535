//! The order of rows in partitions.

use abide_core::model::{InstanceId, Key, Name};
use abide_core::rules::partition::Contender;
use abide_kernel::Partition;
use rusqlite::{Connection, OptionalExtension, Result, Row};

use crate::cells;

/// The front of each partition, and its first runnable row.
pub(crate) fn partitions(conn: &Connection, keys: &[Key]) -> Result<Vec<Partition>> {
    let mut front = conn.prepare_cached(FRONT)?;
    let mut first = conn.prepare_cached(FIRST)?;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let front = front.query_row([key.as_str()], contender).optional()?;
        let first = first.query_row([key.as_str()], contender).optional()?;
        found.push(Partition {
            front: front.map(|(front, _)| front),
            first,
        });
    }
    Ok(found)
}

/// Index: `abide_partition_front`, which has at most one entry for each partition.
pub(crate) const FRONT: &str = "
    select id, status, priority, due_at, queue from abide_instances
    where partition_key = ?1 and standing >= 2";

/// Index: `abide_partition_queue`, its first entry.
pub(crate) const FIRST: &str = "
    select id, status, priority, due_at, queue from abide_instances
    where partition_key = ?1 and (standing = 1 or standing = 2)
    order by priority, due_at, id limit 1";

fn contender(row: &Row<'_>) -> Result<(Contender, Name)> {
    let contender = Contender {
        id: cells::id(row, 0)?,
        status: cells::status(row, 1)?,
        priority: cells::priority(row, 2)?,
        due_at: cells::maybe_time(row, 3)?.unwrap_or_default(),
    };
    Ok((contender, cells::name(row, 4)?))
}

/// Index: the primary key. The row leaves `abide_claimable` and `abide_partition_front`.
pub(crate) const STEP_BACK: &str =
    "update abide_instances set standing = 1, ready_at = null where id = ?1";

/// Index: the primary key. The row enters `abide_claimable` and `abide_partition_front`.
pub(crate) const COME_FORWARD: &str =
    "update abide_instances set standing = 2, ready_at = due_at where id = ?1";

/// Marks the first list as behind, then the second as front. In the other order a partition would have two fronts for a
/// moment, which `abide_partition_front` refuses. All of the rows are runnable.
pub(crate) fn reorder(conn: &Connection, back: &[InstanceId], front: &[InstanceId]) -> Result<()> {
    for (sql, ids) in [(STEP_BACK, back), (COME_FORWARD, front)] {
        let mut statement = conn.prepare_cached(sql)?;
        for id in ids {
            statement.execute([id.0])?;
        }
    }
    Ok(())
}
