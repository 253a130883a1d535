//! Waiters for events: statements that find them by the content of events, open, close, count and list them.

use std::collections::BTreeMap;

use abide_core::model::{EventSequence, InstanceId, Key, Name, Timestamp, Waiter};
use abide_core::sql;
use abide_kernel::{TypeTotal, WaiterFilter, gather};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, Row, params, params_from_iter};

use super::{Conditions, columns, distinct, one};
use crate::cells;

/// Index: `abide_waiters_found`, its first entry of a type.
pub(crate) const FIRST_PATH: &str =
    "select path from abide_waiters where event_type = ?1 order by path limit 1";

/// Index: `abide_waiters_found`, its first entry of a type after those of a path.
pub(crate) const NEXT_PATH: &str =
    "select path from abide_waiters where event_type = ?1 and path > ?2 order by path limit 1";

/// The paths with waiters of these types: one search for each path, however many waiters it has.
pub(crate) fn paths(conn: &Connection, types: &[Name]) -> Result<Vec<(Name, String)>> {
    let mut first = conn.prepare_cached(FIRST_PATH)?;
    let mut next = conn.prepare_cached(NEXT_PATH)?;
    let mut paths = Vec::new();
    for event_type in distinct(types) {
        let of = event_type.as_str();
        let mut path: Option<String> = first.query_row([of], |row| row.get(0)).optional()?;
        while let Some(found) = path {
            path = next
                .query_row([of, found.as_str()], |row| row.get(0))
                .optional()?;
            paths.push((event_type.clone(), found));
        }
    }
    Ok(paths)
}

/// All columns of a waiter, in the order in which [`read`] reads them.
macro_rules! select {
    ($where:literal) => {
        concat!(
            "select instance_id, place, value, path, event_type, since, deadline, wait_id, partition_key, conditions
             from abide_waiters as one",
            $where
        )
    };
}

fn read(row: &Row<'_>) -> Result<Waiter> {
    Ok(Waiter {
        instance: cells::id(row, 0)?,
        position: row.get(1)?,
        value: row.get(2)?,
        path: row.get(3)?,
        event_type: cells::name(row, 4)?,
        since: cells::time(row, 5)?,
        deadline: cells::maybe_time(row, 6)?,
        wait_id: cells::wait(row, 7)?,
        partition: cells::maybe_key(row, 8)?,
        conditions: cells::list(row, 9)?,
    })
}

/// Index: `abide_waiters_found`, then the primary key for each waiter.
pub(crate) const AT: &str = select!(" where event_type = ?1 and path = ?2 and value = ?3");

/// The waiters at these index entries: type, path and value.
pub(crate) fn at(conn: &Connection, probes: &[(Name, String, String)]) -> Result<Vec<Waiter>> {
    let mut statement = conn.prepare_cached(AT)?;
    let mut found = Vec::new();
    for (event_type, path, value) in distinct(probes) {
        for waiter in statement.query_map([event_type.as_str(), path, value], read)? {
            found.push(waiter?);
        }
    }
    Ok(found)
}

columns! {
    /// The columns of a waiter.
    Open: |waiter: &Waiter| {
        1 instance_id: waiter.instance.0,
        2 place: waiter.position,
        3 value: waiter.value.as_str(),
        4 path: waiter.path.as_str(),
        5 event_type: waiter.event_type.as_str(),
        6 since: waiter.since.as_micros(),
        7 deadline: waiter.deadline.map(Timestamp::as_micros),
        8 wait_id: waiter.wait_id.as_str(),
        9 partition_key: waiter.partition.as_ref().map(Key::as_str),
        10 conditions: cells::written(&waiter.conditions)?,
    }
}

/// The waiter enters `abide_waiters_found`.
pub(crate) const OPEN: &str = sql! {
    "insert into abide_waiters (", Open::NAMES, ") values (", Open::VALUES, ")"
};

/// Inserts waiters, and counts them.
pub(crate) fn open(conn: &Connection, waiters: &[Waiter]) -> Result<()> {
    let mut statement = conn.prepare_cached(OPEN)?;
    let mut counts: BTreeMap<Name, i64> = BTreeMap::new();
    for waiter in waiters {
        Open::bind(&mut statement, waiter)?;
        one(statement.raw_execute()?)?;
        *counts.entry(waiter.event_type.clone()).or_default() += 1;
    }
    count(conn, counts)
}

/// Index: the primary key.
pub(crate) const CLOSE: &str =
    "delete from abide_waiters where instance_id = ?1 returning event_type";

/// Deletes the waiters of these instances, and subtracts them from the totals.
pub(crate) fn close(conn: &Connection, instances: &[InstanceId]) -> Result<()> {
    let mut statement = conn.prepare_cached(CLOSE)?;
    let mut counts: BTreeMap<Name, i64> = BTreeMap::new();
    for id in instances {
        for event_type in statement.query_map([id.0], |row| cells::name(row, 0))? {
            *counts.entry(event_type?).or_default() -= 1;
        }
    }
    count(conn, counts)
}

/// Index: the primary key.
pub(crate) const COUNT: &str = "
    insert into abide_waiter_totals (event_type, total) values (?1, ?2)
    on conflict (event_type) do update set total = total + excluded.total returning total";

/// Index: the primary key.
pub(crate) const DELETE_TOTAL: &str = "delete from abide_waiter_totals where event_type = ?1";

fn count(conn: &Connection, counts: BTreeMap<Name, i64>) -> Result<()> {
    let mut statement = conn.prepare_cached(COUNT)?;
    for (event_type, by) in counts {
        let values = params![event_type.as_str(), by];
        let total: i64 = statement.query_row(values, |row| row.get(0))?;
        if total == 0 {
            let mut delete = conn.prepare_cached(DELETE_TOTAL)?;
            one(delete.execute([event_type.as_str()])?)?;
        }
    }
    Ok(())
}

/// Index: the primary key.
pub(crate) const TOTAL: &str = "select total from abide_waiter_totals where event_type = ?1";

/// Index: `abide_events_of_type`, the last entry of a type.
pub(crate) const NEWEST_EVENT: &str = "
    select sequence from abide_events indexed by abide_events_of_type where event_type = ?1
    order by sequence desc limit 1";

/// The number of waiters of these types, and the newest event of each.
pub(crate) fn totals(conn: &Connection, types: &[Name]) -> Result<Vec<(Name, TypeTotal)>> {
    let mut waiters = conn.prepare_cached(TOTAL)?;
    let mut newest = conn.prepare_cached(NEWEST_EVENT)?;
    let mut totals = Vec::with_capacity(types.len());
    for event_type in types {
        let of = [event_type.as_str()];
        let waiters: Option<i64> = waiters.query_row(of, |row| row.get(0)).optional()?;
        let newest: Option<i64> = newest.query_row(of, |row| row.get(0)).optional()?;
        let total = TypeTotal {
            waiters: usize::try_from(waiters.unwrap_or_default()).unwrap_or_default(),
            newest: EventSequence(newest.unwrap_or_default()),
        };
        totals.push((event_type.clone(), total));
    }
    Ok(totals)
}

/// Waits that match all given conditions, by instance and place, above `after`; each is listed once.
pub(crate) fn list(
    conn: &Connection,
    filter: &WaiterFilter,
    after: Option<(InstanceId, u32)>,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Waiter>> {
    let (sql, values) = listing(filter, after, limit);
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), read)?;
    gather(rows, bytes)
}

/// Condition: the first of the index entries of one wait. Index: the primary key.
const FIRST_VALUE: &str = "
    value = (select min(value) from abide_waiters as other
             where other.instance_id = one.instance_id and other.place = one.place)";

/// Builds the statement of a list, and its values. The table is read from the cursor on until the page is full.
pub(crate) fn listing(
    filter: &WaiterFilter,
    after: Option<(InstanceId, u32)>,
    limit: usize,
) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    conditions.state(FIRST_VALUE);
    if let Some((instance, place)) = after {
        let (instance, place) = (conditions.value(instance.0), conditions.value(place));
        conditions.state(format!("(instance_id, place) > ({instance}, {place})"));
    }
    if let Some(instance) = filter.instance {
        conditions.add("instance_id = ?", instance.0);
    }
    if let Some(event_type) = &filter.event_type {
        // Written so that SQLite does not use an index of types, which has another order.
        conditions.add("+event_type = ?", event_type.as_str().to_owned());
    }
    conditions.in_order(select!(""), "instance_id, place", limit)
}
