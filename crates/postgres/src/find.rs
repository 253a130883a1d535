//! Finds the runs that keys, ids and chains stand for, and locks keys.

use std::collections::BTreeSet;

use abide_core::model::{InstanceId, Key, Target};
use abide_kernel::{Found, Result};
use tokio_postgres::Row;

use crate::cells::{Cells, each};
use crate::commands;
use crate::load::{self, lock_columns};
use crate::param::Param;
use crate::txn::Transaction;

/// Locks keys to the end of the transaction: the first ones shared, the second ones alone.
///
/// Locks: the stripes in which the keys lie, 256 of them, by number; a stripe in which there is one of both is locked
/// alone. Two numbers name a lock here, so that none of these is ever one of the partitions', which are named by one.
/// They are the first locks of a transaction. It answers nothing that the locks guard: it sees what was committed before
/// it waited for them.
pub const LOCK_KEYS: &str = "\
select case when s.alone then pg_advisory_xact_lock(1633837924, s.stripe)::text \
    else pg_advisory_xact_lock_shared(1633837924, s.stripe)::text end \
from (select (hashtextextended(k.key, 4702111234474983745) & 255)::int as stripe, \
        bool_or(k.alone) as alone \
    from (select key, false as alone from unnest($1::text[]) as key \
        union all select key, true from unnest($2::text[]) as key) k \
    group by 1 order by 1) s";

/// The run with each id, or the newest run with each key, in order, and, when wanted, a number for a record with each;
/// not locked.
///
/// Indexes: `instances_pkey`, `instances_key`.
pub const FIND: &str = "\
select case when $3 then nextval('abide.signals_id_seq') end, f.id, f.key, f.partition_key \
from unnest((select $1::bigint[]), (select $2::text[])) with ordinality as t(id, key, place) \
left join lateral ( \
    select i.id, i.key, i.partition_key from abide.instances i where i.id = t.id \
    union all \
    (select i.id, i.key, i.partition_key from abide.instances i where i.key = t.key \
    order by i.id desc limit 1) \
) f on true \
order by t.place";

/// Locks the runs that [`FIND`] finds and loads them, in the order of their ids; but for those in a partition, which has
/// to be locked before them.
///
/// Indexes: `instances_pkey`, `instances_key`. Locks: the rows, for no key update, in the order of their ids.
pub const LOCK_FOUND: &str = concat!(
    "select ",
    lock_columns!(),
    " from abide.instances \
    where id = any(array( \
        select coalesce(t.id, ( \
            select k.id from abide.instances k where k.key = t.key order by k.id desc limit 1)) \
        from unnest((select $1::bigint[]), (select $2::text[])) as t(id, key))) \
        and partition_key is null \
    order by id for no key update"
);

/// The newest run of each chain; not locked.
///
/// Indexes: `instances_chain`, its last entry of each chain, and `instances_pkey`.
pub const NEWEST: &str = "\
select c.chain, coalesce( \
    (select i.id from abide.instances i where i.first_id = c.chain order by i.id desc limit 1), \
    (select i.id from abide.instances i where i.id = c.chain)) \
from unnest((select $1::bigint[])) as c(chain)";

/// Locks keys; nobody waits here for the locks, what follows does.
pub(crate) fn lock_keys(txn: &mut Transaction<'_>, shared: &[Key], alone: &[Key]) -> Result<()> {
    let keys = |keys: &[Key]| Param::list(keys.iter().map(Key::as_str));
    txn.write(LOCK_KEYS, vec![keys(shared), keys(alone)])
}

/// The runs that targets stand for. Who delivers asks for numbers next: they come along.
pub(crate) async fn find(
    txn: &mut Transaction<'_>,
    targets: &[Target],
) -> Result<Vec<Option<Found>>> {
    let known = targets.iter().map(|target| match target {
        Target::Id(id) => txn.found_ahead.get(id).cloned(),
        Target::Key(_) => None,
    });
    if let Some(known) = known.collect::<Option<Vec<Found>>>() {
        return Ok(known.into_iter().map(Some).collect());
    }
    let ids = targets.iter().map(|target| match target {
        Target::Id(id) => Some(*id),
        Target::Key(_) => None,
    });
    let keys = targets.iter().map(|target| match target {
        Target::Id(_) => None,
        Target::Key(key) => Some(key.as_str()),
    });
    let numbered = txn.delivers && txn.numbers.len() < targets.len();
    let (ids, keys) = (Param::list(ids), Param::list(keys));
    let find = |numbered| vec![ids.clone(), keys.clone(), Param::one(numbered)];
    if !txn.delivers {
        let rows = txn.read(FIND, find(numbered)).await?;
        return take(txn, &rows);
    }
    // Who delivers locks next what was found: most of it can be locked by the way.
    let lock = vec![ids.clone(), keys.clone()];
    let (rows, locked) = txn
        .read_both((FIND, find(numbered)), (LOCK_FOUND, lock))
        .await?;
    txn.locked_ahead = load::rows(&locked)?;
    let found = take(txn, &rows)?;
    let alone = found.iter().flatten().filter(|one| one.partition.is_none());
    let alone: BTreeSet<InstanceId> = alone.map(|one| one.id).collect();
    if alone.iter().eq(txn.locked_ahead.iter().map(|row| &row.id)) {
        return Ok(found);
    }
    // Between the two a run went on as another. The newer is locked already, and to lock the older after it is to wait for
    // those who have locked the older and wait for the newer.
    let rows = txn.read(FIND, find(false)).await?;
    take(txn, &rows)
}

/// The answer of [`FIND`]; the numbers are kept.
fn take(txn: &mut Transaction<'_>, rows: &[Row]) -> Result<Vec<Option<Found>>> {
    let numbers = each(rows, |cells| cells.next::<Option<_>>())?;
    commands::keep_numbers(txn, numbers.into_iter().flatten().collect());
    each(rows, found)
}

/// The newest runs of chains.
pub(crate) async fn newest(
    txn: &mut Transaction<'_>,
    chains: &[InstanceId],
) -> Result<Vec<(InstanceId, InstanceId)>> {
    let params = vec![Param::list(chains.iter().copied())];
    let rows = txn.read(NEWEST, params).await?;
    let runs: Vec<(InstanceId, Option<InstanceId>)> =
        each(&rows, |cells| Ok((cells.next()?, cells.next()?)))?;
    Ok(runs
        .into_iter()
        .filter_map(|(chain, run)| Some((chain, run?)))
        .collect())
}

fn found(cells: &mut Cells<'_>) -> Result<Option<Found>> {
    let _number: Option<i64> = cells.next()?;
    let id: Option<InstanceId> = cells.next()?;
    let (key, partition) = (cells.next()?, cells.next()?);
    Ok(id.map(|id| Found { id, key, partition }))
}
