//! Who waits for events: finds them by what the events say, opens, closes, counts and lists them.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{CommandId, InstanceId, Key, Name, Timestamp, Waiter};
use abide_core::rules::event::awaited_types;
use abide_kernel::{
    Error, EventPaths, Found, Op, PathId, Result, TypeTotal, WaiterFilter, WaiterPage,
};
use tokio_postgres::Row;

use crate::cells::{Cells, each};
use crate::commands;
use crate::param::{Param, parts};
use crate::pool::Pool;
use crate::read::{ask, page};
use crate::txn::Transaction;

/// A place of the index: type, path and value.
pub(crate) type Probe = (Name, String, String);

/// The columns of a waiter, in the order in which [`waiter`] reads them.
macro_rules! waiter_columns {
    () => {
        "w.instance_id, w.partition_key, w.wait_id, w.place, w.event_type, w.path, w.value, \
        w.conditions, w.since, w.deadline"
    };
}

/// Under which paths waiters of types stand, and on which waits look back, which have an id; not locked: the types are.
///
/// Indexes: `waiters_found`, one entry for each path and one look more for each type, however many stand under it;
/// `event_paths_of_type`, where the order keeps the planner from reading those of other types.
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

/// The waiters at places of the index, with their instances' keys, and a number for a record with each; not locked: who
/// is told of an event is locked next.
///
/// Indexes: `instances_pkey`; `waiters_found`, read from where a value begins to where it ends. The order makes it worth it where one value
/// is most of the table: a look for another would else read them all.
pub const WAITERS: &str = concat!(
    "select nextval('abide.signals_id_seq'), \
        (select i.key from abide.instances i where i.id = w.instance_id), ",
    waiter_columns!(),
    " from unnest((select $1::text[]), (select $2::text[]), (select $3::text[])) \
        as p(event_type, path, value) \
    cross join lateral ( \
        select * from abide.waiters w \
        where w.event_type = p.event_type and w.path = p.path and w.value = p.value \
        order by w.instance_id, w.place offset 0 \
    ) w"
);

/// Adds to the totals of types what `counted` says: a new row for each type, with what those rows said that could be
/// locked without waiting, which go. No row is ever changed, so that what is found is what there is.
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

/// Inserts waiters, and counts them. Their instances are locked, and so are the types.
///
/// Index: `waiter_totals_of_type`, `waiter_totals_pkey`.
pub const OPEN_WAITERS: &str = concat!(
    "with opened as ( \
        insert into abide.waiters (instance_id, partition_key, wait_id, place, event_type, path, \
            value, conditions, since, deadline) \
        select * from unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::text[], \
            $6::text[], $7::text[], $8::text[], $9::timestamptz[], $10::timestamptz[]) \
        returning event_type \
    ), counted as materialized ( \
        select event_type, count(*) as total from opened group by event_type \
    ), ",
    count!()
);

/// Deletes the waiters of instances, and counts them off. The instances are locked.
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

/// How many waiters of types there are, and which event of each is the newest; exact for who has locked the types alone,
/// but for waiters that are about to go: whoever publishes shares the type's lock from before it takes a place until it
/// has committed.
///
/// Indexes: `waiter_totals_of_type`; `events_of_type`, the last entry of each type. Both bounds say what an equality would,
/// after which the planner would take the order for that of places, and read those of all other types.
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

/// A page of waits, by instance and place. Index: `waiters_pkey`, read from there on; a filter that is null falls away
/// when it is planned.
pub const LIST_WAITERS: &str = concat!(
    "select distinct on (w.instance_id, w.place) ",
    waiter_columns!(),
    " from abide.waiters w \
    where (w.instance_id, w.place) > ($1, $2) and ($3::text is null or w.event_type = $3) \
        and ($4::bigint is null or w.instance_id = $4) \
    order by w.instance_id, w.place, w.value limit $5"
);

/// The types of which operations publish events.
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

/// Under which paths waiters of these types stand, and on which waits look back; as it came along with numbers, if it did.
pub(crate) async fn event_paths(txn: &mut Transaction<'_>, types: &[Name]) -> Result<EventPaths> {
    match txn.paths_ahead.take() {
        Some(mut ahead) if types.iter().all(|of| txn.published.contains(of)) => {
            ahead.waiters.retain(|(of, _)| types.contains(of));
            ahead.looked_back.retain(|(of, ..)| types.contains(of));
            Ok(ahead)
        }
        _ => read_paths(&txn.read(EVENT_PATHS, types_params(types)).await?),
    }
}

/// The parameters of [`EVENT_PATHS`] and [`TYPE_TOTALS`].
pub(crate) fn types_params<'n>(types: impl IntoIterator<Item = &'n Name>) -> Vec<Param> {
    vec![Param::list(types.into_iter().map(Name::as_str))]
}

/// The answer of [`EVENT_PATHS`].
pub(crate) fn read_paths(rows: &[Row]) -> Result<EventPaths> {
    let mut paths = EventPaths::default();
    for row in rows {
        let cells = &mut Cells::of(row);
        let (of, path) = (cells.next()?, cells.next()?);
        match cells.next()? {
            Some(id) => paths.looked_back.push((of, path, PathId(id))),
            None => paths.waiters.push((of, path)),
        }
    }
    Ok(paths)
}

/// The waiters at places of the index; as they came along with the events just stored, if they did.
pub(crate) async fn waiters(txn: &mut Transaction<'_>, probes: &[Probe]) -> Result<Vec<Waiter>> {
    let rows = match txn.waiters_ahead.take() {
        Some((asked, rows)) if asked.iter().eq(probes) => rows,
        _ => txn.read(WAITERS, waiters_params(probes)).await?,
    };
    let rows: Vec<((CommandId, Option<Key>), Waiter)> = each(&rows, |cells| {
        Ok(((cells.next()?, cells.next()?), waiter(cells)?))
    })?;
    let (mut numbers, mut found) = (Vec::new(), Vec::new());
    // Who is told of an event is sent a record, which has its key.
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
    let conditions = waiters.iter().map(|one| {
        serde_json::to_string(&one.conditions).map_err(|error| Error::Broken(error.to_string()))
    });
    let conditions: Vec<String> = conditions.collect::<Result<_>>()?;
    let rows: Vec<(&Waiter, &String)> = waiters.iter().zip(&conditions).collect();
    for part in parts(&rows, |(_, conditions)| conditions.len()) {
        let rows = || part.iter().map(|(waiter, _)| *waiter);
        let params = vec![
            Param::list(rows().map(|one| one.instance)),
            Param::list(rows().map(|one| one.partition.as_ref().map(Key::as_str))),
            Param::list(rows().map(|one| one.wait_id.as_str())),
            Param::list(rows().map(|one| one.place)),
            Param::list(rows().map(|one| one.event_type.as_str())),
            Param::list(rows().map(|one| one.path.as_str())),
            Param::list(rows().map(|one| one.value.as_str())),
            Param::list(part.iter().map(|(_, conditions)| conditions.as_str())),
            Param::list(rows().map(|one| one.since)),
            Param::list(rows().map(|one| one.deadline)),
        ];
        txn.write(OPEN_WAITERS, params)?;
    }
    Ok(())
}

/// Deletes the waiters of instances, and counts them off.
pub(crate) fn close_waiters(txn: &mut Transaction<'_>, instances: &[InstanceId]) -> Result<()> {
    look_again(txn);
    let params = vec![Param::list(instances.iter().copied())];
    txn.write(CLOSE_WAITERS, params)
}

/// Forgets what was seen of waiters and paths before they were changed.
pub(crate) fn look_again(txn: &mut Transaction<'_>) {
    txn.paths_ahead = None;
    txn.waiters_ahead = None;
    txn.totals_ahead = None;
}

/// What there is of types; as it came along with the rows just locked, if it did.
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

/// The answer of [`TYPE_TOTALS`].
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

/// A page of waits.
pub(crate) async fn list(
    pool: &Pool,
    filter: &WaiterFilter,
    after: Option<(InstanceId, u32)>,
    limit: usize,
) -> Result<WaiterPage> {
    let place = after.map_or(-1, |(_, place)| i32::try_from(place).unwrap_or(i32::MAX));
    let params = vec![
        Param::one(after.map_or(InstanceId(i64::MIN), |(instance, _)| instance)),
        Param::one(place),
        Param::one(filter.event_type.as_ref().map(Name::as_str)),
        Param::one(filter.instance),
        Param::one(limit.saturating_add(1)),
    ];
    let rows = ask(pool, LIST_WAITERS, params).await?;
    Ok(page(each(&rows, waiter)?, limit, |last| {
        (last.instance, last.place)
    }))
}

fn waiter(cells: &mut Cells<'_>) -> Result<Waiter> {
    Ok(Waiter {
        instance: cells.next()?,
        partition: cells.next()?,
        wait_id: cells.next()?,
        place: cells.next()?,
        event_type: cells.next()?,
        path: cells.next()?,
        value: cells.next()?,
        conditions: serde_json::from_str(cells.next()?)
            .map_err(|error| Error::Broken(format!("the conditions of a waiter: {error}")))?,
        since: cells.next()?,
        deadline: cells.next::<Option<Timestamp>>()?,
    })
}
