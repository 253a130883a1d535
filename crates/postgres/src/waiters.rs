//! Waiters for events: statements that find them by the content of events, open, close, count and list them.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{CommandId, InstanceId, Key, Name, Timestamp, Waiter};
use abide_core::rules::event::awaited_types;
use abide_core::sql;
use abide_kernel::{
    Error, EventPaths, Found, Op, PathId, Result, TypeTotal, WaiterFilter, WaiterPage,
};
use tokio_postgres::Row;

use crate::arrays::{arrays, columns};
use crate::cells::{Cells, each};
use crate::commands;
use crate::param::{Param, parts};
use crate::pool::Pool;
use crate::read::{ask_some, reading};
use crate::txn::Transaction;

/// An entry of the index of waiters: type, path and value.
pub(crate) type Probe = (Name, String, String);

/// The columns of a waiter, in the order in which [`waiter`] reads them.
macro_rules! waiter_columns {
    () => {
        "w.instance_id, w.partition_key, w.wait_id, w.place, w.event_type, w.path, w.value, \
        w.conditions, w.since, w.deadline"
    };
}

/// The paths with waiters of given types, and the paths that waits look back on, which have an id. Locks nothing: the
/// types are locked.
///
/// Indexes: `waiters_found`, one entry for each path and one more search for each type, however many waiters a path
/// has; `event_paths_of_type`, where the `order by` keeps the planner from reading those of other types.
pub const EVENT_PATHS: &str = "\
with recursive paths as ( \
    select t.event_type, ( \
        select w.path from abide.waiters w where w.event_type = t.event_type \
        order by w.path limit 1) as path \
    from unnest((select $1::text[])) as t(event_type) \
    union all \
    select p.event_type, ( \
        select w.path from abide.waiters w \
        where w.event_type = p.event_type and w.path > p.path order by w.path limit 1) \
    from paths p where p.path is not null \
) \
select event_type, path, null::bigint from paths where path is not null \
union all \
select t.event_type, p.path, p.id from unnest((select $1::text[])) as t(event_type) \
cross join lateral ( \
    select p.path, p.id from abide.event_paths p where p.event_type = t.event_type \
    order by p.event_type, p.path offset 0 \
) p";

/// The waiters at index entries, with the keys of their instances, and a new record id for each. Locks nothing: the
/// instances that receive an event are locked next.
///
/// Indexes: `instances_pkey`; `waiters_found`, read from the start of a value to its end. The `order by` makes the
/// planner use it also if one value is most of the table; otherwise a search for another value would read all of them.
pub const WAITERS: &str = concat!(
    "select nextval('abide.signals_id_seq'), \
        (select i.key from abide.instances i where i.id = w.instance_id), ",
    waiter_columns!(),
    " from ",
    arrays!(1 event_type text, 2 path text, 3 value text),
    " p \
    cross join lateral ( \
        select * from abide.waiters w \
        where w.event_type = p.event_type and w.path = p.path and w.value = p.value \
        order by w.instance_id, w.place offset 0 \
    ) w"
);

/// Adds `counted` to the totals of types. For each type it inserts a new row that also includes the rows that it could
/// lock without waiting; those are deleted. No row is ever updated, so a reader finds exact totals.
macro_rules! count {
    () => {
        "merged as ( \
            delete from abide.waiter_totals where id = any(array( \
                select f.id from counted c cross join lateral ( \
                    select t.id from abide.waiter_totals t where t.event_type = c.event_type \
                    order by t.id limit 8 for update skip locked \
                ) f)) \
            returning event_type, total \
        ) \
        insert into abide.waiter_totals (event_type, total) \
        select s.event_type, sum(s.total)::bigint from ( \
            select event_type, total from counted union all select event_type, total from merged \
        ) s group by s.event_type having sum(s.total) <> 0"
    };
}

columns! {
    /// The columns of a waiter, with its conditions as JSON.
    Open: |row: (&Waiter, String)| {
        1 instance_id bigint: row.0.instance,
        2 partition_key text: row.0.partition.as_ref().map(Key::as_str),
        3 wait_id text: row.0.wait_id.as_str(),
        4 place int: row.0.position,
        5 event_type text: row.0.event_type.as_str(),
        6 path text: row.0.path.as_str(),
        7 value text: row.0.value.as_str(),
        8 conditions text: row.1.as_str(),
        9 since timestamptz: row.0.since,
        10 deadline timestamptz: row.0.deadline,
    }
}

/// Inserts waiters, and counts them. Their instances are locked, and so are the types.
///
/// Index: `waiter_totals_of_type`, `waiter_totals_pkey`.
pub const OPEN_WAITERS: &str = sql! {
    "with opened as ( \
        insert into abide.waiters (", Open::NAMES, ") select * from (select ", Open::MANY, ") r \
        returning event_type \
    ), counted as materialized ( \
        select event_type, count(*) as total from opened group by event_type \
    ), ", count!()
};

/// Deletes the waiters of instances, and subtracts them from the totals. The instances are locked.
///
/// Indexes: `waiters_pkey`, `waiter_totals_of_type`, `waiter_totals_pkey`.
pub const CLOSE_WAITERS: &str = concat!(
    "with closed as ( \
        delete from abide.waiters where instance_id = any((select $1::bigint[])::bigint[]) \
        returning event_type \
    ), counted as materialized ( \
        select event_type, -count(*) as total from closed group by event_type \
    ), ",
    count!()
);

/// The number of waiters of each type, and its newest event. Exact if the caller has locked the types exclusively,
/// except for waiters that are being closed: a transaction that publishes holds the type's lock, shared, from before it
/// draws a sequence number until it has committed.
///
/// Indexes: `waiter_totals_of_type`; `events_of_type`, the last entry of each type. The two bounds mean an equality.
/// With an equality the planner would treat the order as that of sequence numbers, and read events of all other types.
pub const TYPE_TOTALS: &str = "\
select k.event_type, t.total, coalesce(( \
    select e.sequence from abide.events e \
    where e.event_type >= k.event_type and e.event_type <= k.event_type \
    order by e.event_type desc, e.sequence desc limit 1), 0) \
from unnest((select $1::text[])) as k(event_type) \
cross join lateral ( \
    select coalesce(sum(t.total), 0)::bigint as total from abide.waiter_totals t \
    where t.event_type = k.event_type \
) t";

/// A page of waits, by instance and place. Index: `waiters_pkey`, read from the cursor on; the planner removes a filter
/// that is null.
pub const LIST_WAITERS: &str = concat!(
    "select distinct on (w.instance_id, w.place) ",
    waiter_columns!(),
    " from abide.waiters w \
    where (w.instance_id, w.place) > ($1, $2) and ($3::text is null or w.event_type = $3) \
        and ($4::bigint is null or w.instance_id = $4) \
    order by w.instance_id, w.place, w.value limit $5"
);

/// The types of the events that operations publish.
pub(crate) fn published(ops: &[Op]) -> BTreeSet<Name> {
    let publishes = Op::each(ops).filter_map(|op| match op {
        Op::Publish(publishes) => Some(publishes),
        _ => None,
    });
    let types = publishes
        .flatten()
        .map(|publish| publish.event_type.clone());
    types.collect()
}

/// The types for which operations open waiters.
pub(crate) fn awaited(ops: &[Op]) -> BTreeSet<Name> {
    let commits = Op::each(ops).filter_map(|op| match op {
        Op::Commit { commits, .. } => Some(commits),
        _ => None,
    });
    let types = commits
        .flatten()
        .flat_map(|commit| awaited_types(&commit.outcome));
    types.cloned().collect()
}

/// Reads the paths with waiters of given types, and the paths that waits look back on. Uses the rows that were read
/// together with record ids, if any.
pub(crate) async fn event_paths(txn: &mut Transaction<'_>, types: &[Name]) -> Result<EventPaths> {
    match txn.paths_ahead.take() {
        Some(mut ahead) if types.iter().all(|of| txn.published.contains(of)) => {
            ahead.waiters.retain(|(of, _)| types.contains(of));
            ahead.lookback.retain(|(of, ..)| types.contains(of));
            Ok(ahead)
        }
        _ => read_paths(&txn.read(EVENT_PATHS, types_params(types)).await?),
    }
}

/// The parameters of [`EVENT_PATHS`] and [`TYPE_TOTALS`].
pub(crate) fn types_params<'n>(types: impl IntoIterator<Item = &'n Name>) -> Vec<Param> {
    vec![Param::list(types.into_iter().map(Name::as_str))]
}

/// Reads the rows of [`EVENT_PATHS`].
pub(crate) fn read_paths(rows: &[Row]) -> Result<EventPaths> {
    let mut paths = EventPaths::default();
    for row in rows {
        let cells = &mut Cells::of(row);
        let (of, path) = (cells.next()?, cells.next()?);
        match cells.next()? {
            Some(id) => paths.lookback.push((of, path, PathId(id))),
            None => paths.waiters.push((of, path)),
        }
    }
    Ok(paths)
}

/// Finds the waiters at index entries. Uses the rows that were read together with the events just stored, if any.
pub(crate) async fn waiters(txn: &mut Transaction<'_>, probes: &[Probe]) -> Result<Vec<Waiter>> {
    let rows = match txn.waiters_ahead.take() {
        Some((probed, rows)) if probed.iter().eq(probes) => rows,
        _ => txn.read(WAITERS, waiters_params(probes)).await?,
    };
    let rows: Vec<((CommandId, Option<Key>), Waiter)> = each(&rows, |cells| {
        Ok(((cells.next()?, cells.next()?), waiter(cells)?))
    })?;
    let (mut numbers, mut found) = (Vec::new(), Vec::new());
    // An instance that receives an event gets a record, which contains its key.
    for ((number, key), waiter) in rows {
        numbers.push(number);
        let of = Found {
            id: waiter.instance,
            key,
            partition: waiter.partition.clone(),
        };
        txn.found_ahead.insert(waiter.instance, of);
        found.push(waiter);
    }
    commands::keep_numbers(txn, numbers);
    Ok(found)
}

/// The parameters of [`WAITERS`].
pub(crate) fn waiters_params<'p>(probes: impl IntoIterator<Item = &'p Probe>) -> Vec<Param> {
    let probes: Vec<_> = probes.into_iter().collect();
    vec![
        Param::list(probes.iter().map(|(event_type, ..)| event_type.as_str())),
        Param::list(probes.iter().map(|(_, path, _)| path.as_str())),
        Param::list(probes.iter().map(|(.., value)| value.as_str())),
    ]
}

/// Inserts waiters, and counts them.
pub(crate) fn open_waiters(txn: &mut Transaction<'_>, waiters: &[Waiter]) -> Result<()> {
    look_again(txn);
    let written = |one: &Waiter| {
        serde_json::to_string(&one.conditions).map_err(|error| Error::Broken(error.to_string()))
    };
    let rows = waiters.iter().map(|one| Ok((one, written(one)?)));
    let rows: Vec<(&Waiter, String)> = rows.collect::<Result<_>>()?;
    for part in parts(&rows, |(_, conditions)| conditions.len()) {
        txn.write(OPEN_WAITERS, Open::params(part)?)?;
    }
    Ok(())
}

/// Deletes the waiters of instances, and subtracts them from the totals.
pub(crate) fn close_waiters(txn: &mut Transaction<'_>, instances: &[InstanceId]) -> Result<()> {
    look_again(txn);
    let params = vec![Param::list(instances.iter().copied())];
    txn.write(CLOSE_WAITERS, params)
}

/// Discards waiters and paths that were read before they were changed.
pub(crate) fn look_again(txn: &mut Transaction<'_>) {
    txn.paths_ahead = None;
    txn.waiters_ahead = None;
    txn.totals_ahead = None;
}

/// Reads the totals of types. Uses the rows that were read together with the locked rows, if any.
pub(crate) async fn type_totals(
    txn: &mut Transaction<'_>,
    types: &[Name],
) -> Result<Vec<(Name, TypeTotal)>> {
    match txn.totals_ahead.take() {
        Some(mut ahead) if types.iter().all(|of| txn.awaited.contains(of)) => {
            ahead.retain(|of, _| types.contains(of));
            Ok(ahead.into_iter().collect())
        }
        _ => {
            let rows = txn.read(TYPE_TOTALS, types_params(types)).await?;
            Ok(read_totals(&rows)?.into_iter().collect())
        }
    }
}

/// Reads the rows of [`TYPE_TOTALS`].
pub(crate) fn read_totals(rows: &[Row]) -> Result<BTreeMap<Name, TypeTotal>> {
    let totals = each(rows, |cells| {
        let (of, waiters): (Name, i64) = (cells.next()?, cells.next()?);
        let total = TypeTotal {
            waiters: usize::try_from(waiters).unwrap_or_default(),
            newest: cells.next()?,
        };
        Ok((of, total))
    })?;
    Ok(totals.into_iter().collect())
}

/// Reads a page of waits.
pub(crate) async fn list(
    pool: &Pool,
    filter: &WaiterFilter,
    after: Option<(InstanceId, u32)>,
    limit: usize,
    most: usize,
) -> Result<WaiterPage> {
    let position = after.map_or(-1, |(_, position)| {
        i32::try_from(position).unwrap_or(i32::MAX)
    });
    let params = vec![
        Param::one(after.map_or(InstanceId(i64::MIN), |(instance, _)| instance)),
        Param::one(position),
        Param::one(filter.event_type.as_ref().map(Name::as_str)),
        Param::one(filter.instance),
        Param::one(limit.saturating_add(1)),
    ];
    let read = ask_some(pool, LIST_WAITERS, params, reading(most)).await?;
    let cursor = |last: &Waiter| (last.instance, last.position);
    read.page(|rows| each(rows, waiter), limit, most, cursor)
}

fn waiter(cells: &mut Cells<'_>) -> Result<Waiter> {
    Ok(Waiter {
        instance: cells.next()?,
        partition: cells.next()?,
        wait_id: cells.next()?,
        position: cells.next()?,
        event_type: cells.next()?,
        path: cells.next()?,
        value: cells.next()?,
        conditions: serde_json::from_str(cells.next()?)
            .map_err(|error| Error::Broken(format!("the conditions of a waiter: {error}")))?,
        since: cells.next()?,
        deadline: cells.next::<Option<Timestamp>>()?,
    })
}
