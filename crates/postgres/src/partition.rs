//! Partitions: locks, and the order of rows in them.

use std::collections::HashMap;

use abide_core::model::{InstanceId, Key, Name};
use abide_core::rules::partition::Contender;
use abide_core::sql;
use abide_kernel::{Partition, Result};

use crate::cells::{Cells, each};
use crate::param::Param;
use crate::txn::Transaction;

/// Locks partitions until the end of the transaction, in the order of their lock numbers.
///
/// Locks: the lock of all partitions, shared, then each given one exclusively. They are the first locks of a
/// transaction: rows come after them. Two keys with the same number share a lock, which is harmless.
pub const LOCK_PARTITIONS: &str = "\
select pg_advisory_xact_lock_shared(-7021804617402541371), pg_advisory_xact_lock(k.number) \
from (select distinct hashtextextended(key, 7021804617402541371) as number \
    from unnest($1::text[]) as key order by 1) k";

/// Locks all possible partitions, for a transaction that would lock so many that the server has no room for the locks.
///
/// Locks: the lock of all partitions, exclusively.
pub const LOCK_ALL_PARTITIONS: &str = "select pg_advisory_xact_lock(-7021804617402541371)";

/// The front of each partition: the row that is runnable or executing, and not behind.
///
/// Index: `instances_partition_front`. Locks: those rows, for no key update; waits for a claim that has locked one of
/// them. The caller has locked the partitions before.
pub const FRONTS: &str = sql!(
    "\
select k.place, f.id, f.status, f.priority, f.due_at \
from unnest((select $1::text[])) with ordinality as k(key, place) \
cross join lateral ( \
    select i.id, i.status, i.priority, i.due_at from abide.instances i \
    where i.partition_key = k.key and not i.behind and i.status in (@contending) \
    for no key update \
) f"
);

/// The first runnable row of each partition, by priority, due time and id.
///
/// Index: `instances_partition_queue`, one entry for each partition. Locks: those rows, for no key update.
pub const FIRSTS: &str = sql!(
    "\
select k.place, f.id, f.status, f.priority, f.due_at, f.queue \
from unnest((select $1::text[])) with ordinality as k(key, place) \
cross join lateral ( \
    select i.id, i.status, i.priority, i.due_at, i.queue from abide.instances i \
    where i.partition_key = k.key and i.status = @runnable \
    order by i.priority, i.due_at, i.id limit 1 for no key update \
) f"
);

/// Locks those of the partitions that no other transaction has locked, until the end of the transaction; returns them.
///
/// Locks: as [`LOCK_PARTITIONS`], but without waiting.
pub const TRY_PARTITIONS: &str = "\
select k.key from unnest($1::text[]) as k(key) \
where pg_try_advisory_xact_lock_shared(-7021804617402541371) \
    and pg_try_advisory_xact_lock(hashtextextended(k.key, 7021804617402541371))";

/// Those of the partitions in which no other transaction has locked the front or the first runnable row.
///
/// Indexes: `instances_partition_front`, `instances_partition_queue`. Locks: those rows, for no key update, without
/// waiting. The partitions are locked.
pub const FREE_PARTITIONS: &str = sql!(
    "\
select k.key from unnest((select $1::text[])) as k(key) \
left join lateral ( \
    select i.id from abide.instances i \
    where i.partition_key = k.key and not i.behind and i.status in (@contending) offset 0 \
) front on true \
left join lateral ( \
    select i.id from abide.instances i \
    where i.partition_key = k.key and not i.behind and i.status in (@contending) \
    for no key update skip locked \
) front_free on true \
left join lateral ( \
    select i.id from abide.instances i where i.partition_key = k.key and i.status = @runnable \
    order by i.priority, i.due_at, i.id limit 1 \
) first on true \
left join lateral ( \
    select i.id from abide.instances i where i.partition_key = k.key and i.status = @runnable \
    order by i.priority, i.due_at, i.id limit 1 for no key update skip locked \
) first_free on true \
where front_free.id is not distinct from front.id and first_free.id is not distinct from first.id"
);

/// Marks instances as behind, or as the front.
///
/// Index: `instances_pkey`; `instances_partition_front` ensures a single front. The rows are locked already.
pub const REORDER: &str = "\
update abide.instances set behind = $2 where id = any((select $1::bigint[])::bigint[])";

/// Maximum number of partitions that a transaction locks one by one. The server has room for 64 locks per allowed
/// connection, shared by all transactions.
const LOCKS_MAX: usize = 1000;

/// Locks partitions. Sends the statement without waiting for the locks, unless it is too late to wait: then it tries
/// them.
pub(crate) async fn lock_partitions(txn: &mut Transaction<'_>, keys: &[Key]) -> Result<()> {
    let new = |key: &&Key| !txn.held.partitions.contains(*key);
    let keys: Vec<Key> = keys.iter().filter(new).cloned().collect();
    if keys.is_empty() {
        return Ok(());
    }
    let may_wait = txn.is_before_partitions();
    txn.held.partitions.extend(keys.iter().cloned());
    if !may_wait {
        let params = vec![Param::list(keys.iter().map(Key::as_str))];
        let locked = txn.read(TRY_PARTITIONS, params).await?.len();
        return match locked == keys.len() {
            true => Ok(()),
            false => Err(txn.missed()),
        };
    }
    let locked = txn.partitions_locked.saturating_add(keys.len());
    txn.partitions_locked = locked;
    if locked > LOCKS_MAX {
        return txn.write(LOCK_ALL_PARTITIONS, Vec::new());
    }
    txn.write(
        LOCK_PARTITIONS,
        vec![Param::list(keys.iter().map(Key::as_str))],
    )
}

/// Locks those of the partitions that no other transaction has locked, and in which no other has locked a row that
/// determines the front.
pub(crate) async fn lock_free_partitions(
    txn: &mut Transaction<'_>,
    keys: &[Key],
) -> Result<Vec<Key>> {
    let free = txn
        .read(
            TRY_PARTITIONS,
            vec![Param::list(keys.iter().map(Key::as_str))],
        )
        .await?;
    let free: Vec<Key> = each(&free, |cells| cells.next())?;
    txn.held.partitions.extend(free.iter().cloned());
    if free.is_empty() {
        return Ok(free);
    }
    txn.held.fronts = true;
    let params = vec![Param::list(free.iter().map(Key::as_str))];
    each(&txn.read(FREE_PARTITIONS, params).await?, |cells| {
        cells.next()
    })
}

/// Reads the front and the first runnable row of partitions.
pub(crate) async fn partitions(txn: &mut Transaction<'_>, keys: &[Key]) -> Result<Vec<Partition>> {
    let params = || vec![Param::list(keys.iter().map(Key::as_str))];
    txn.held.fronts = true;
    // Two statements: the second starts when the first has its locks, so a row that was claimed meanwhile is no longer
    // seen as runnable.
    let (fronts, firsts) = txn
        .read_both((FRONTS, params()), (FIRSTS, params()))
        .await?;
    let fronts: HashMap<i64, Contender> =
        each(&fronts, |cells| Ok((cells.next()?, contender(cells)?)))?
            .into_iter()
            .collect();
    let firsts = each(&firsts, |cells| {
        Ok((cells.next()?, (contender(cells)?, cells.next::<Name>()?)))
    })?;
    let mut firsts: HashMap<i64, (Contender, Name)> = firsts.into_iter().collect();
    let partition = |(position, _)| Partition {
        front: fronts.get(&position).copied(),
        first: firsts.remove(&position),
    };
    Ok((1..).zip(keys).map(partition).collect())
}

/// Marks the first list as behind, then the second as front.
pub(crate) fn reorder(
    txn: &mut Transaction<'_>,
    back: &[InstanceId],
    front: &[InstanceId],
) -> Result<()> {
    for (ids, behind) in [(back, true), (front, false)] {
        if !ids.is_empty() {
            let ids = Param::list(ids.iter().copied());
            txn.write(REORDER, vec![ids, Param::one(behind)])?;
        }
    }
    Ok(())
}

fn contender(cells: &mut Cells<'_>) -> Result<Contender> {
    let (id, status, priority) = (cells.next()?, cells.next()?, cells.next()?);
    let due_at = cells.next::<Option<_>>()?.unwrap_or_default();
    Ok(Contender {
        id,
        status,
        priority,
        due_at,
    })
}
