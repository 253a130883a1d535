//! Finds and deletes finished instances whose retention is over.

use abide_core::model::{BarrierNumber, InstanceId, Status, Timestamp};
use abide_core::rules::retention::Expired;
use abide_kernel::{Cursor, Expiring, Result};

use crate::cells::each;
use crate::param::Param;
use crate::txn::Transaction;

/// The first rows that finished before a moment, after a place in that order, with what their parents need of them
/// (rule 16.2).
///
/// Index: `instances_finished`, read from that place; `instances_pkey` for parents. Locks: the rows, passing over those
/// that another sweep has. Parents are not locked: once they need a row no more they never will again.
pub const EXPIRING: &str = "\
select i.finished_at, i.id, i.parent_barrier, \
    case when i.parent_id is not null then \
        (select p.status from abide.instances p where p.id = i.parent_id) end, \
    case when i.parent_id is not null then \
        (select p.barrier from abide.instances p where p.id = i.parent_id) end \
from abide.instances i \
where i.finished_at is not null and i.finished_at < $1 and (i.finished_at, i.id) > ($2, $3) \
order by i.finished_at, i.id limit (select $4::bigint) \
for update skip locked";

/// Deletes the histories of instances.
///
/// Index: `history_pkey`.
pub const DELETE_HISTORY: &str = "\
delete from abide.history where instance_id = any((select $1::bigint[])::bigint[])";

/// Deletes the records of instances' messages.
///
/// Index: `signals_run`.
pub const DELETE_SIGNALS: &str = "\
delete from abide.signals where instance_id = any((select $1::bigint[])::bigint[])";

/// Deletes instances.
///
/// Index: `instances_pkey`. The rows are locked already.
pub const DELETE: &str = "\
delete from abide.instances where id = any((select $1::bigint[])::bigint[])";

/// What may be deleted.
pub(crate) async fn expiring(
    txn: &mut Transaction<'_>,
    before: Timestamp,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Vec<Expiring>> {
    let start = Cursor {
        finished_at: Timestamp::MIN,
        id: InstanceId(i64::MIN),
    };
    let Cursor { finished_at, id } = after.unwrap_or(start);
    let params = vec![
        Param::one(before),
        Param::one(finished_at),
        Param::one(id),
        Param::one(limit),
    ];
    let rows = txn.read(EXPIRING, params).await?;
    each(&rows, |cells| {
        let cursor = Cursor {
            finished_at: cells.next()?,
            id: cells.next()?,
        };
        let parent_barrier = cells.next()?;
        let (status, barrier): (Option<Status>, Option<BarrierNumber>) =
            (cells.next()?, cells.next()?);
        Ok(Expiring {
            cursor,
            expired: Expired {
                parent_barrier,
                parent: status.zip(barrier),
            },
        })
    })
}

/// Deletes instances with all that belongs to them.
pub(crate) fn delete(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<()> {
    txn.write(DELETE_HISTORY, vec![Param::list(ids.iter().copied())])?;
    txn.write(DELETE_SIGNALS, vec![Param::list(ids.iter().copied())])?;
    txn.write(DELETE, vec![Param::list(ids.iter().copied())])
}
