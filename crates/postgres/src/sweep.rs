//! Finds and deletes finished instances whose retention is over, and deletes other rows that are not needed any more.

use abide_core::model::{InstanceId, Timestamp};
use abide_core::rules::retention::Kin;
use abide_kernel::{Cursor, Expiring, Forget, Result};

use crate::cells::{Cells, each};
use crate::param::Param;
use crate::txn::Transaction;
use crate::{commands, events, lookback, outbox, requests, workers};

/// The first rows that finished before a given time, after a cursor in that order (rule 16.2).
///
/// Index: `instances_finished`, read from the cursor. Locks: the rows; those that another sweep has locked are skipped.
pub const EXPIRING: &str = "\
select finished_at, id, coalesce(first_id, id), case when parent_barrier <> 0 then parent_id end \
from abide.instances \
where finished_at is not null and finished_at < $1 and (finished_at, id) > ($2, $3) \
order by finished_at, id limit (select $4::bigint) \
for update skip locked";

/// The relatives of instances.
///
/// Index: `instances_pkey`. Locks nothing: an instance that has ended never runs again.
pub const KIN: &str = "\
select id, status, case when parent_barrier <> 0 then parent_id end \
from abide.instances where id = any((select $1::bigint[])::bigint[])";

/// The children of given instances that finished before a given time and have a place at a barrier.
///
/// Index: `instances_children`; children that have not ended are stepped over. Locks: the rows; those that another
/// sweep has locked are skipped.
pub const EXPIRED_CHILDREN: &str = "\
select c.* from unnest((select $1::bigint[])) as p(id) \
cross join lateral ( \
    select i.finished_at, i.id, coalesce(i.first_id, i.id), i.parent_id from abide.instances i \
    where i.parent_id = p.id and i.parent_barrier > 0 and i.finished_at < $2 \
    order by i.parent_barrier, i.id \
    for update skip locked \
) c \
limit (select $3::bigint)";

/// Deletes a limited number of rows from the histories of instances; returns how many.
///
/// Index: `history_pkey`. No transaction writes the history of an instance that has ended and is locked.
pub const TRIM_HISTORY: &str = "\
with gone as ( \
    delete from abide.history \
    where instance_id = any((select $1::bigint[])::bigint[]) and ctid = any(array( \
        select h.ctid from unnest((select $1::bigint[])) as p(id) \
        cross join lateral ( \
            select ctid from abide.history where instance_id = p.id order by seq) h \
        limit (select $2::bigint))) \
    returning 1) \
select count(*) from gone";

/// Deletes a limited number of records of commands to instances, except those that belong to their chains; returns how
/// many.
///
/// Index: `signals_run`.
pub const TRIM_SIGNALS: &str = "\
with gone as ( \
    delete from abide.signals \
    where instance_id = any((select $1::bigint[])::bigint[]) and ctid = any(array( \
        select s.ctid from unnest((select $1::bigint[])) as p(id) \
        cross join lateral ( \
            select ctid from abide.signals where instance_id = p.id \
                and (dedup_key is null or message_sequence is null) \
            order by id) s \
        limit (select $2::bigint))) \
    returning 1) \
select count(*) from gone";

/// Deletes the records that were accepted with a dedup key in chains.
///
/// Index: `signals_dedup`.
pub const FORGET_CHAINS: &str = "\
delete from abide.signals where chain_id = any((select $1::bigint[])::bigint[]) \
    and dedup_key is not null and message_sequence is not null";

/// Deletes instances.
///
/// Index: `instances_pkey`. The rows are locked already.
pub const DELETE: &str = "\
delete from abide.instances where id = any((select $1::bigint[])::bigint[])";

/// Finds instances that may be deleted.
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
    each(&txn.read(EXPIRING, params).await?, expired)
}

fn expired(cells: &mut Cells<'_>) -> Result<Expiring> {
    Ok(Expiring {
        cursor: Cursor {
            finished_at: cells.next()?,
            id: cells.next()?,
        },
        chain: cells.next()?,
        parent: cells.next()?,
    })
}

/// Reads the relatives of instances.
pub(crate) async fn kin(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<(InstanceId, Kin)>> {
    let params = vec![Param::list(ids.iter().copied())];
    each(&txn.read(KIN, params).await?, |cells| {
        let id = cells.next()?;
        let (status, parent) = (cells.next()?, cells.next()?);
        Ok((id, Kin { status, parent }))
    })
}

/// Finds children that may be deleted with their parents.
pub(crate) async fn expired_children(
    txn: &mut Transaction<'_>,
    parents: &[InstanceId],
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Expiring>> {
    let params = vec![
        Param::list(parents.iter().copied()),
        Param::one(before),
        Param::one(limit),
    ];
    each(&txn.read(EXPIRED_CHILDREN, params).await?, expired)
}

/// Deletes rows that belong to instances, except those that belong to their chains; returns how many.
async fn trim(txn: &mut Transaction<'_>, ids: &[InstanceId], limit: usize) -> Result<usize> {
    let mut count = 0_usize;
    for sql in [TRIM_HISTORY, TRIM_SIGNALS] {
        let left = limit.saturating_sub(count);
        if left > 0 {
            let params = vec![Param::list(ids.iter().copied()), Param::one(left)];
            let rows = txn.read(sql, params).await?;
            let gone: Vec<i64> = each(&rows, |cells| cells.next())?;
            let gone = gone.into_iter().sum::<i64>();
            count = count.saturating_add(usize::try_from(gone).unwrap_or(usize::MAX));
        }
    }
    Ok(count)
}

/// Deletes the records that were accepted with a dedup key in chains.
pub(crate) fn forget_chains(txn: &mut Transaction<'_>, chains: &[InstanceId]) -> Result<()> {
    txn.write(FORGET_CHAINS, vec![Param::list(chains.iter().copied())])
}

/// Deletes instances.
pub(crate) fn delete(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<()> {
    txn.write(DELETE, vec![Param::list(ids.iter().copied())])
}

/// Deletes at most that many rows that are not needed any more; returns how many.
pub(crate) async fn forget(
    txn: &mut Transaction<'_>,
    what: Forget<'_>,
    limit: usize,
) -> Result<usize> {
    let (sql, before) = match what {
        Forget::Workers(before) => (workers::FORGET_WORKERS, before),
        Forget::Records(before) => (commands::FORGET_RECORDS, before),
        Forget::Held(now) => (commands::EXPIRE_HELD, now),
        Forget::Events(before) => (events::FORGET_EVENTS, before),
        Forget::Paths(before) => (lookback::FORGET_PATHS, before),
        Forget::Requests(before) => (requests::FORGET_REQUESTS, before),
        Forget::Refused(before) => (outbox::FORGET_REFUSED, before),
        Forget::RefusedById { ids, again } => {
            return outbox::settle_refused(txn, ids, again).await;
        }
        Forget::Belongings(ids) => return trim(txn, ids, limit).await,
    };
    let rows = txn.read(sql, vec![Param::one(before), Param::one(limit)]);
    Ok(rows.await?.len())
}
