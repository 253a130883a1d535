//! Finds the runs that keys, ids and chains stand for, and locks keys.

use std::collections::BTreeSet;

use abide_core::model::{InstanceId, Key, Target};
use abide_kernel::{Found, Op, Result};
use tokio_postgres::Row;

use crate::cells::{Cells, each};
use crate::commands;
use crate::load::{self, lock_columns};
use crate::param::Param;
use crate::txn::Transaction;

/// Locks each of these keys to the end of the transaction, for one who starts something under it. Two who start under one
/// key come one after the other here, and not when they meet at the key's index, which comes after partitions and rows.
///
/// Locks: the table `key_guard` in row share mode, which keeps off [`LOCK_ALL_KEYS_ALONE`] and nothing else; then a lock
/// of each key's own, by its number. They are the first locks of a transaction. Two keys whose numbers are the same share
/// a lock, which does no harm. It answers nothing that the locks guard: it sees what was committed before it waited for
/// them.
pub const START_KEYS: &str = "\
select pg_advisory_xact_lock(k.number), \
    (select count(*) from (select from abide.key_guard for share) g) \
from (select distinct hashtextextended(key, 4702111234474983745) as number \
    from unnest($1::text[]) as key order by 1) k";

/// Locks each of these keys to the end of the transaction, for one who must know that nobody starts under it.
///
/// Locks: as [`START_KEYS`] does, but the table in row exclusive mode, which keeps off all who lock all keys.
pub const LOCK_KEYS: &str = "\
with guard as (delete from abide.key_guard) \
select pg_advisory_xact_lock(k.number) \
from (select distinct hashtextextended(key, 4702111234474983745) as number \
    from unnest($1::text[]) as key order by 1) k";

/// Locks those of these keys that nobody else has; which they are. It waits for none of them.
pub const TRY_KEYS: &str = "\
select k.number \
from (select distinct hashtextextended(key, 4702111234474983745) as number \
    from unnest($1::text[]) as key order by 1) k \
where not pg_try_advisory_xact_lock(k.number)";

/// Keeps off one who locks all keys, when it is too late to wait for that.
pub const GUARD_KEYS: &str = "lock table abide.key_guard in row share mode nowait";

/// Locks types of events: the first ones shared, the second ones alone. There are few of them, so that they are never locked all at once.
pub const LOCK_TYPES: &str = "\
select case when n.alone then pg_advisory_xact_lock(n.number)::text \
    else pg_advisory_xact_lock_shared(n.number)::text end \
from (select hashtextextended(k.key, 4702111234474983745) as number, bool_or(k.alone) as alone \
    from (select key, false as alone from unnest($1::text[]) as key \
        union all select key, true from unnest($2::text[]) as key) k \
    group by 1 order by 1) n";

/// Locks all keys there can be, for one who starts under so many that the server has no room for the locks. Others who
/// start go on, and are met at the index of keys; those who must know that nobody starts wait.
///
/// Locks: the table `key_guard` in share mode.
pub const START_ALL_KEYS: &str = "lock table abide.key_guard in share mode";

/// Locks all keys there can be, for one who must know that nobody starts under so many that the server has no room for the locks.
///
/// Locks: the table `key_guard` in exclusive mode.
pub const LOCK_ALL_KEYS_ALONE: &str = "lock table abide.key_guard in exclusive mode";

/// How many keys a transaction locks one by one: as many as are folded into one. The server has room for 64 locks for each
/// connection that it allows (`max_locks_per_transaction`), and all transactions share it.
const LOCKS_MAX: usize = 512;

/// The run that a key stands for (rule 2.5): the newest; but when that has ended, one that lives and holds the key.
///
/// Indexes: `instances_key`, its last entry for the key; where that has ended, `instances_key_taken` too.
macro_rules! of_key {
    ($key:literal) => {
        concat!(
            "(select case when n.status < 6 then n.id else coalesce( \
                (select h.id from abide.instances h where h.key = ",
            $key,
            " and h.key is not null and (h.key_scope >> h.status) & 1 = 1 and h.status < 6 limit 1), \
                n.id) end \
            from (select k.id, k.status from abide.instances k where k.key = ",
            $key,
            " order by k.id desc limit 1) n)"
        )
    };
}
pub(crate) use of_key;

/// The run with each id, or the one that each key stands for, in order, and, when wanted, a number for a record with each;
/// not locked.
///
/// Indexes: `instances_pkey`, and those of the macro above.
pub const FIND: &str = concat!(
    "select case when $3 then nextval('abide.signals_id_seq') end, f.id, f.key, f.partition_key \
    from ( \
        select t.place, coalesce(t.id, ",
    of_key!("t.key"),
    ") as id \
        from unnest((select $1::bigint[]), (select $2::text[])) with ordinality as t(id, key, place) \
        offset 0 \
    ) t \
    left join lateral ( \
        select i.id, i.key, i.partition_key from abide.instances i where i.id = t.id offset 0 \
    ) f on true \
    order by t.place"
);

/// Locks the runs that [`FIND`] finds and loads them, in the order of their ids; but for those in a partition, which has
/// to be locked before them.
///
/// Indexes: `instances_pkey`, `instances_key`. Locks: the rows, for no key update, in the order of their ids.
pub const LOCK_FOUND: &str = concat!(
    "select ",
    lock_columns!(),
    " from abide.instances \
    where id = any(array( \
        select coalesce(t.id, ",
    of_key!("t.key"),
    ") \
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

/// Locks keys. Nobody waits here for the locks, what follows does; unless it is too late to wait for them.
pub(crate) async fn lock_keys(
    txn: &mut Transaction<'_>,
    shared: &[Key],
    alone: &[Key],
) -> Result<()> {
    let may_wait = txn.is_before_keys();
    let new = |key: &&Key| !txn.held.shared.contains(*key) && !txn.held.alone.contains(*key);
    let late: Vec<Key> = shared.iter().chain(alone).filter(new).cloned().collect();
    txn.held.shared.extend(shared.iter().cloned());
    txn.held.alone.extend(alone.iter().cloned());
    if !may_wait {
        if late.is_empty() {
            return Ok(());
        }
        txn.write(GUARD_KEYS, Vec::new())?;
        let params = vec![Param::list(late.iter().map(Key::as_str))];
        return match txn.read(TRY_KEYS, params).await?.is_empty() {
            true => Ok(()),
            false => Err(txn.missed()),
        };
    }
    let list = |keys: &[&Key]| Param::list(keys.iter().map(|key| key.as_str()));
    let is_type = |key: &&Key| Op::is_type_key(key);
    let (types_shared, shared): (Vec<&Key>, Vec<&Key>) = shared.iter().partition(is_type);
    let (types_alone, alone): (Vec<&Key>, Vec<&Key>) = alone.iter().partition(is_type);
    match (shared.len() + alone.len(), alone.is_empty()) {
        (0, _) => {}
        (1..=LOCKS_MAX, true) => txn.write(START_KEYS, vec![list(&shared)])?,
        (1..=LOCKS_MAX, false) => {
            let all: Vec<&Key> = shared.into_iter().chain(alone).collect();
            txn.write(LOCK_KEYS, vec![list(&all)])?;
        }
        (_, true) => txn.write(START_ALL_KEYS, Vec::new())?,
        (_, false) => txn.write(LOCK_ALL_KEYS_ALONE, Vec::new())?,
    }
    if types_shared.is_empty() && types_alone.is_empty() {
        return Ok(());
    }
    // Instances' keys before types, everywhere.
    txn.write(LOCK_TYPES, vec![list(&types_shared), list(&types_alone)])
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
    // What is met late is locked with the rest of it, without waiting.
    if !txn.delivers || !txn.is_before_rows() {
        let rows = txn.read(FIND, find(numbered)).await?;
        return take(txn, &rows);
    }
    // Who delivers locks next what was found: most of it can be locked by the way.
    let lock = vec![ids.clone(), keys.clone()];
    let (rows, locked) = txn
        .read_both((FIND, find(numbered)), (LOCK_FOUND, lock))
        .await?;
    txn.locked_ahead = load::rows(&locked)?;
    let locked = txn.locked_ahead.iter().map(|row| row.id);
    txn.held.rows.extend(locked);
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
