//! Inserts instances in batches.

use std::collections::{BTreeSet, HashMap, HashSet};

use abide_core::model::{Inbox, InstanceId, Key, NewRow, Run, Started};
use abide_core::sql;
use abide_kernel::{Error, Result};

use crate::arrays::{Forms, forms};
use crate::cells::{Cells, each};
use crate::commands;
use crate::instances::{Chained, Start};
use crate::param::{Param, parts};
use crate::sweep;
use crate::txn::{Last, Transaction};

/// Inserts instances without keys and policies, each the first run of a chain; returns their ids, in order.
///
/// Such rows cannot conflict, so the statement neither checks for conflicts nor guards against them.
pub const INSERT: Forms = forms!(
    "insert into abide.instances (", Start::NAMES, ", first_step, history_seq, updated_at) \
    select ", Start::OF_C, ", c.step, c.history::int, c.created_at from ";
    Start;
    " c returning id"
);

/// The text of [`INSERT_KEYED`] before and after the columns of its rows.
const KEYED: [&str; 2] = [
    "with input as materialized ( \
        select nextval('abide.instances_id_seq') as id, c.* from (select ",
    sql!(
        ") c \
    ), inserted as ( \
        insert into abide.instances (id, ",
        Start::NAMES,
        ", ",
        Chained::NAMES,
        ", first_step, history_seq, updated_at) \
        select c.id, ",
        Start::OF_C,
        ", ",
        Chained::OF_C,
        ", c.step, c.history::int, c.created_at \
        from input c order by c.place \
        on conflict do nothing \
        returning id \
    ) \
    select (select array_agg(id) from input), \
        (select coalesce(array_agg(id), '{}') from inserted)"
    ),
];

/// Inserts instances of which some have keys or policies, or continue a chain; returns the ids that were drawn, in
/// order, and the ids that were inserted.
///
/// A row whose key or unique key is taken is left out; a row that another transaction is about to insert is waited for.
/// Rows are inserted by `place`, so that two batches with common keys wait in the same order. Indexes:
/// `instances_key_taken`, `instances_unique_key_taken`. It has no join: the caller compares the two lists, which has
/// the same cost per row at every size.
pub const INSERT_KEYED: Forms = Forms {
    many: sql! {
        KEYED[0], Start::MANY, ", ", Chained::MANY, ", unnest((select $25::int[])) as place", KEYED[1]
    },
    one: sql! {
        KEYED[0], Start::ONE, ", ", Chained::ONE, ", $25::int as place", KEYED[1]
    },
};

/// The holder of each key, and the holder of the unique key beside it. Locks nothing.
///
/// Indexes: `instances_key_taken`, `instances_unique_key_taken`.
pub const HOLDERS: &str = "\
select (select i.id from abide.instances i where i.key = w.key \
        and (i.key_scope >> i.status) & 1 = 1), \
    (select i.id from abide.instances i where i.unique_key = w.unique_key \
        and (i.unique_scope >> i.status) & 1 = 1) \
from unnest((select $1::text[]), (select $2::bytea[])) with ordinality \
    as w(key, unique_key, place) \
order by w.place";

/// Those of the keys whose newest instance was not inserted by this transaction, with that instance. Locks nothing.
///
/// Index: `instances_key`, the last entry of each key. An instance that was inserted in a subtransaction of a host is
/// returned too.
pub const NEWEST_OF_KEYS: &str = "\
select k.key, n.id from unnest((select $1::text[])) as k(key) \
cross join lateral ( \
    select i.id, i.xmin from abide.instances i where i.key = k.key order by i.id desc limit 1 \
) n \
where n.xmin <> pg_current_xact_id_if_assigned()::xid";

/// Writes a start into a reserved row (rule 2.7): all columns of an insert, except its creation time.
///
/// Index: `instances_pkey`. The row is locked already.
pub const OPEN: &str = sql! {
    "update abide.instances i set ", Start::SET, ", ", Chained::SET, ", first_id = c.first_id, \
        first_step = c.step, history_seq = c.history::int, updated_at = c.created_at \
    from (select ", Start::MANY, ", ", Chained::MANY, ") c where i.id = $25"
};

/// Maximum number of attempts to insert a row whose key was taken, but had no holder when the holder was read.
const TRIES_MAX: usize = 5;

/// Inserts rows; for a row whose key or unique key is taken, returns the id of the holder (rules 2.2, 2.3).
pub(crate) async fn insert(txn: &mut Transaction<'_>, rows: &[NewRow]) -> Result<Vec<Started>> {
    let parts = parts(rows, |row| row.state.size());
    if let [all] = parts.as_slice() {
        return insert_part(txn, all, true).await;
    }
    let mut started = Vec::with_capacity(rows.len());
    for part in parts {
        started.extend(insert_part(txn, part, false).await?);
    }
    Ok(started)
}

async fn insert_part(
    txn: &mut Transaction<'_>,
    rows: &[NewRow],
    is_all: bool,
) -> Result<Vec<Started>> {
    let rows: Vec<&NewRow> = rows.iter().collect();
    if rows.iter().all(|row| is_plain(row)) {
        let (insert, params) = INSERT.of(rows.len(), Start::params(&rows)?);
        let ids = match is_all {
            true => txn.read_last(Last::Insert, insert, params).await?,
            false => txn.read(insert, params).await?,
        };
        return each(&ids, |cells| Ok(Started::New(cells.next()?)));
    }
    let mut started: Vec<Option<Started>> = vec![None; rows.len()];
    let mut left: Vec<(usize, &NewRow)> = rows.into_iter().enumerate().collect();
    for _ in 0..TRIES_MAX {
        let rows: Vec<&NewRow> = left.iter().map(|(_, row)| *row).collect();
        let answers = try_insert(txn, &rows).await?;
        let mut again = Vec::new();
        for ((index, row), answer) in left.into_iter().zip(answers) {
            match (answer, started.get_mut(index)) {
                (Some(answer), Some(slot)) => *slot = Some(answer),
                _ => again.push((index, row)),
            }
        }
        left = again;
        if left.is_empty() {
            return Ok(started.into_iter().flatten().collect());
        }
    }
    Err(Error::Conflict(
        "a key was taken and given up again at every attempt to start with it".into(),
    ))
}

/// `true` if the row cannot conflict, and inherits nothing from an earlier run.
fn is_plain(row: &NewRow) -> bool {
    row.key.is_none()
        && row.unique_key.is_none()
        && row.policy.is_none()
        && row.run == Run::default()
        && row.inbox == Inbox::default()
}

/// Writes a start into a reserved row.
pub(crate) fn open(txn: &mut Transaction<'_>, id: InstanceId, row: &NewRow) -> Result<()> {
    let mut params = all_columns(&[row])?;
    params.push(Param::one(id));
    txn.write(OPEN, params)
}

/// Inserts rows, and reads the holders for rows that were left out. Returns `None` for a row whose key has no holder
/// any more, and for a row that must be inserted again with a higher id.
///
/// rule 2.5: of all instances with a key, the newest has the highest id. An id is drawn before the row exists.
/// Meanwhile another instance with the key may have started, with a higher id, and have ended. Once the row exists, no
/// other instance gets the key, so what is found then is complete. A row that was overtaken is deleted again.
async fn try_insert(txn: &mut Transaction<'_>, rows: &[&NewRow]) -> Result<Vec<Option<Started>>> {
    let mut params = all_columns(rows)?;
    params.push(Param::list(insert_order(rows)));
    let insert = INSERT_KEYED.of(rows.len(), params);
    // The signals that are held for the keys are needed next, so they are read in the same round trip.
    let keys: BTreeSet<Key> = rows.iter().filter_map(|row| row.key.clone()).collect();
    let mut newest: HashMap<Key, InstanceId> = HashMap::new();
    let answer = if keys.is_empty() {
        txn.read(insert.0, insert.1).await?
    } else {
        let texts = Param::list(keys.iter().map(Key::as_str));
        let held = (commands::HELD_SIGNALS, commands::held_params(&keys));
        let [answer, found, held] = txn
            .read_three([insert, (NEWEST_OF_KEYS, vec![texts]), held])
            .await?;
        newest.extend(each(&found, |cells| Ok((cells.next()?, cells.next()?)))?);
        txn.held_ahead = Some((keys, held));
        answer
    };
    let row = answer
        .first()
        .ok_or_else(|| Error::Broken("an insert answered nothing".into()))?;
    let mut cells = Cells::of(row);
    let (given, inserted): (Vec<i64>, Vec<i64>) = (cells.next()?, cells.next()?);
    let mut inserted: HashSet<i64> = inserted.into_iter().collect();
    let is_overtaken = |row: &NewRow, id: i64| {
        let newest = row.key.as_ref().and_then(|key| newest.get(key));
        newest.is_some_and(|newest| newest.0 > id)
    };
    let overtaken = rows.iter().zip(&given);
    let overtaken: Vec<InstanceId> = overtaken
        .filter(|(row, id)| inserted.contains(id) && is_overtaken(row, **id))
        .map(|(_, id)| InstanceId(*id))
        .collect();
    if !overtaken.is_empty() {
        sweep::delete(txn, &overtaken)?;
        inserted.retain(|id| !overtaken.contains(&InstanceId(*id)));
    }

    let dropped = rows
        .iter()
        .zip(&given)
        .filter(|(_, id)| !inserted.contains(id));
    let dropped: Vec<&NewRow> = dropped.map(|(row, _)| *row).collect();
    let mut holders = if dropped.is_empty() {
        Vec::new()
    } else {
        holders(txn, &dropped).await?
    }
    .into_iter();
    let answer = |id| {
        if inserted.contains(&id) {
            return Some(Started::New(InstanceId(id)));
        }
        // A holder later in the batch did not conflict with this row: it has the key because this row was left out.
        let in_the_way = |holder: &InstanceId| holder.0 < id || !inserted.contains(&holder.0);
        let (by_key, by_unique_key) = holders.next()?;
        let holder = by_key.filter(in_the_way);
        holder.or(by_unique_key).map(Started::Duplicate)
    };
    Ok(given.into_iter().map(answer).collect())
}

/// The holder of the key and the holder of the unique key of a row.
type Holders = (Option<InstanceId>, Option<InstanceId>);

/// The holders of the key and the unique key of each row, where the row itself would hold them.
async fn holders(txn: &mut Transaction<'_>, rows: &[&NewRow]) -> Result<Vec<Holders>> {
    let key = |row: &&NewRow| row.scope.holds(row.status);
    let unique = |row: &&NewRow| row.unique_scope.holds(row.status);
    let keys = rows.iter().map(|row| {
        row.key
            .as_ref()
            .filter(|_| key(row))
            .map(|key| key.as_str())
    });
    let uniques = rows.iter().map(|row| {
        row.unique_key
            .as_ref()
            .filter(|_| unique(row))
            .map(|key| key.as_bytes())
    });
    let holders = txn
        .read(HOLDERS, vec![Param::list(keys), Param::list(uniques)])
        .await?;
    each(&holders, |cells| Ok((cells.next()?, cells.next()?)))
}

/// The order of insertion: by key, so that two batches with the same keys wait for each other in the same order and do
/// not deadlock. Of two rows with the same key, the first comes first. If rows with different keys have the same unique
/// key, the first of those must win too, so the order stays unchanged.
fn insert_order(rows: &[&NewRow]) -> Vec<i32> {
    let mut uniques: HashMap<_, &Option<Key>> = HashMap::new();
    let mut crossed = false;
    for row in rows {
        if let Some(unique) = &row.unique_key {
            crossed |= *uniques.entry(unique).or_insert(&row.key) != &row.key;
        }
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if !crossed {
        order.sort_by_cached_key(|at| {
            let row = rows.get(*at)?;
            Some((&row.key, row.key.is_none().then_some(&row.unique_key)))
        });
    }
    let mut positions = vec![0; rows.len()];
    for (position, at) in (0..).zip(order) {
        if let Some(slot) = positions.get_mut(at) {
            *slot = position;
        }
    }
    positions
}

/// The columns of a row that may continue a chain.
fn all_columns(rows: &[&NewRow]) -> Result<Vec<Param>> {
    let mut params = Start::params(rows)?;
    params.extend(Chained::params(rows)?);
    Ok(params)
}
