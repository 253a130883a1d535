//! Finds the runs that keys, ids and chains refer to, and locks keys.

use std::collections::BTreeSet;

use abide_core::model::{InstanceId, Key, Target};
use abide_kernel::{Found, Op, Result};
use tokio_postgres::Row;

use crate::arrays::Forms;
use crate::cells::{Cells, each};
use crate::commands;
use crate::instances::LOCK_COLUMNS;
use crate::load;
use crate::param::Param;
use crate::txn::Transaction;

/// Locks each key until the end of the transaction, for a transaction that starts an instance with that key. Two starts
/// with one key are serialized here, and not at the unique index of the key, which they reach only after partitions and
/// rows.
///
/// Locks: the table `key_guard` in row share mode, which excludes [`LOCK_ALL_KEYS_ALONE`] and nothing else; then one
/// lock per key, in the order of their numbers. They are the first locks of a transaction. Two keys with the same
/// number share a lock, which is harmless. The statement returns no data that the locks guard: it sees what was
/// committed before it waited for them.
pub const START_KEYS: &str = "\
select pg_advisory_xact_lock(k.number), \
    (select count(*) from (select from abide.key_guard for share) g) \
from (select distinct hashtextextended(key, 4702111234474983745) as number \
    from unnest($1::text[]) as key order by 1) k";

/// Locks each key until the end of the transaction, for a transaction that must know that no other starts with that
/// key.
///
/// Locks: as [`START_KEYS`], but the table in row exclusive mode, which excludes all transactions that lock all keys.
pub const LOCK_KEYS: &str = "\
with guard as (delete from abide.key_guard) \
select pg_advisory_xact_lock(k.number) \
from (select distinct hashtextextended(key, 4702111234474983745) as number \
    from unnest($1::text[]) as key order by 1) k";

/// Locks those of the keys that no other transaction has locked, without waiting; returns the numbers of the others.
pub const TRY_KEYS: &str = "\
select k.number \
from (select distinct hashtextextended(key, 4702111234474983745) as number \
    from unnest($1::text[]) as key order by 1) k \
where not pg_try_advisory_xact_lock(k.number)";

/// Excludes transactions that lock all keys, when it is too late to wait for them.
pub const GUARD_KEYS: &str = "lock table abide.key_guard in row share mode nowait";

/// Locks event types: the first list shared, the second exclusively. There are few types, so no statement locks all of
/// them at once.
pub const LOCK_TYPES: &str = "\
select case when n.alone then pg_advisory_xact_lock(n.number)::text \
    else pg_advisory_xact_lock_shared(n.number)::text end \
from (select hashtextextended(k.key, 4702111234474983745) as number, bool_or(k.alone) as alone \
    from (select key, false as alone from unnest($1::text[]) as key \
        union all select key, true from unnest($2::text[]) as key) k \
    group by 1 order by 1) n";

/// Locks all possible keys, for a transaction that starts with so many keys that the server has no room for the locks.
/// Other starts continue, and conflict at the unique index of keys; transactions that must know that no other starts
/// wait.
///
/// Locks: the table `key_guard` in share mode.
pub const START_ALL_KEYS: &str = "lock table abide.key_guard in share mode";

/// Locks all possible keys, for a transaction that must know that no other starts with so many keys that the server has
/// no room for the locks.
///
/// Locks: the table `key_guard` in exclusive mode.
pub const LOCK_ALL_KEYS_ALONE: &str = "lock table abide.key_guard in exclusive mode";

/// Maximum number of keys that a transaction locks one by one: as many as are folded into one transaction. The server
/// has room for 64 locks per allowed connection (`max_locks_per_transaction`), shared by all transactions.
const LOCKS_MAX: usize = 512;

/// The run that a key refers to (rule 2.5): the live run that holds the key; if there is none, the newest.
///
/// Indexes: `instances_key_taken`; if it has no such entry, `instances_key`, its last entry for the key.
macro_rules! of_key {
    ($key:literal) => {
        abide_core::sql! {
            "coalesce( \
                (select h.id from abide.instances h where h.key = ", $key,
            " and h.key is not null and (h.key_scope >> h.status) & 1 = 1 and h.status < @first_ended limit 1), \
                (select k.id from abide.instances k where k.key = ", $key, " order by k.id desc limit 1))"
        }
    };
}
pub(crate) use of_key;

/// The text of [`FIND`] over these targets.
macro_rules! find {
    ($targets:literal) => {
        abide_core::sql! {
            "select case when $3 then nextval('abide.signals_id_seq') end, f.id, f.key, f.partition_key \
            from ( \
                select t.place, coalesce(t.id, ", of_key!("t.key"), ") as id from ", $targets, " offset 0 \
            ) t \
            left join lateral ( \
                select i.id, i.key, i.partition_key from abide.instances i where i.id = t.id offset 0 \
            ) f on true \
            order by t.place"
        }
    };
}

/// The text of [`LOCK_FOUND`] over these targets.
macro_rules! lock_found {
    ($before:literal, $after:literal, $id:literal, $key:literal) => {
        abide_core::sql! {
            "select ", LOCK_COLUMNS, " from abide.instances where id = ", $before, "coalesce(", $id, ", ",
            of_key!($key), ")", $after, " and partition_key is null order by id for no key update"
        }
    };
}

/// The run with each id, or the run that each key refers to, in order, and optionally a new record id for each. Locks
/// nothing.
///
/// Indexes: `instances_pkey`, and those of the macro above.
pub const FIND: Forms = Forms {
    many: find!(
        "unnest((select $1::bigint[]), (select $2::text[])) with ordinality as t(id, key, place)"
    ),
    one: find!("(select $1::bigint as id, $2::text as key, 1 as place) t"),
};

/// Locks and loads the runs that [`FIND`] finds, in the order of their ids, except runs in a partition, because the
/// partition must be locked first.
///
/// Indexes: `instances_pkey`, `instances_key`. Locks: the rows, for no key update, in the order of their ids.
pub const LOCK_FOUND: Forms = Forms {
    many: lock_found!(
        "any(array( select ",
        " from unnest((select $1::bigint[]), (select $2::text[])) as t(id, key)))",
        "t.id",
        "t.key"
    ),
    one: lock_found!("(select ", ")", "$1::bigint", "$2::text"),
};

/// The newest run of each chain. Locks nothing.
///
/// Indexes: `instances_chain`, its last entry of each chain, and `instances_pkey`.
pub const NEWEST: &str = "\
select c.chain, coalesce( \
    (select i.id from abide.instances i where i.first_id = c.chain order by i.id desc limit 1), \
    (select i.id from abide.instances i where i.id = c.chain)) \
from unnest((select $1::bigint[])) as c(chain)";

/// Locks keys. Sends the statement without waiting for the locks, unless it is too late to wait: then it tries them.
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
    // Locks of instance keys come before locks of types, everywhere.
    txn.write(LOCK_TYPES, vec![list(&types_shared), list(&types_alone)])
}

/// Finds the runs of targets. A transaction that delivers needs record ids next, so they are drawn in the same
/// statement.
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
    let find = |numbered| {
        let params = vec![ids.clone(), keys.clone(), Param::one(numbered)];
        FIND.of(targets.len(), params)
    };
    // Rows that are found late are locked later, together and without waiting.
    if !txn.delivers || !txn.is_before_rows() {
        let (sql, params) = find(numbered);
        let rows = txn.read(sql, params).await?;
        return take(txn, &rows);
    }
    // A transaction that delivers locks the found rows next: most of them can be locked in the same round trip.
    let lock = LOCK_FOUND.of(targets.len(), vec![ids.clone(), keys.clone()]);
    let (rows, locked) = txn.read_both(find(numbered), lock).await?;
    txn.locked_ahead = load::rows(&locked)?;
    let locked = txn.locked_ahead.iter().map(|row| row.id);
    txn.held.rows.extend(locked);
    let found = take(txn, &rows)?;
    let alone = found.iter().flatten().filter(|one| one.partition.is_none());
    let alone: BTreeSet<InstanceId> = alone.map(|one| one.id).collect();
    if alone.iter().eq(txn.locked_ahead.iter().map(|row| &row.id)) {
        return Ok(found);
    }
    // Between the two statements a run was continued as another. The newer run is locked already. Locking the older one
    // now could wait for a transaction that has locked the older one and waits for the newer one.
    let (sql, params) = find(false);
    let rows = txn.read(sql, params).await?;
    take(txn, &rows)
}

/// Reads the rows of [`FIND`]; keeps the record ids.
fn take(txn: &mut Transaction<'_>, rows: &[Row]) -> Result<Vec<Option<Found>>> {
    let numbers = each(rows, |cells| cells.next::<Option<_>>())?;
    commands::keep_numbers(txn, numbers.into_iter().flatten().collect());
    each(rows, found)
}

/// Finds the newest runs of chains.
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
