//! Loads the rows that an operation decides about.

use abide_core::model::{InstanceId, Lane, Name, ParentRef, Row, Timestamp, WorkerId};
use abide_core::sql;
use abide_kernel::{Lapsed, Touched};
use rusqlite::{Connection, Result, params};

use super::instances::{ROW_COLUMNS, Reader};
use super::{Lazy, distinct, limited};
use crate::cells;
use crate::columns::BLOCKED;

/// Index: the primary key. The state and the result are not read, because no rule uses them.
pub(crate) const LOCK: &str = sql! {
    "select ", ROW_COLUMNS, " from abide_instances where id = ?1"
};

/// Loads rows, one at a time.
pub(crate) struct Loader<'c> {
    statement: Lazy<'c>,
    reader: Reader,
}

impl<'c> Loader<'c> {
    pub fn new(conn: &'c Connection) -> Self {
        Self {
            statement: Lazy::new(conn, LOCK),
            reader: Reader::default(),
        }
    }

    /// Loads the row with that id, if it exists.
    pub fn load(&mut self, id: InstanceId) -> Result<Option<Row>> {
        let mut rows = self.statement.get()?.query(params![id.0])?;
        let row = rows.next()?;
        row.map(|row| self.reader.row(row)).transpose()
    }
}

/// Index: `abide_parked`, read from its beginning.
pub(crate) const DUE: &str = "
    select id, partition_key from abide_instances
    where wake_at is not null and wake_at <= ?1
    order by wake_at, id limit ?2 offset ?3";

/// The first due rows that are scheduled or awaiting, from an offset on.
pub(crate) fn due(
    conn: &Connection,
    now: Timestamp,
    skip: usize,
    limit: usize,
) -> Result<Vec<Touched>> {
    let mut statement = conn.prepare_cached(DUE)?;
    let now = now.as_micros().min(BLOCKED - 1);
    let rows = statement.query_map(params![now, limited(limit), limited(skip)], touched)?;
    rows.collect()
}

/// Indexes: `abide_parked` and `abide_leased`, one entry of each.
pub(crate) const DUE_AFTER: &str = "
    select min(at) from (
        select min(wake_at) as at from abide_instances where wake_at is not null and wake_at > ?1 and wake_at < ?2
        union all
        select min(lease_until) from abide_instances where lease_until is not null and lease_until > ?1)";

/// The earliest time after a given time at which a row is due or a lease expires.
pub(crate) fn due_after(conn: &Connection, now: Timestamp) -> Result<Option<Timestamp>> {
    let mut statement = conn.prepare_cached(DUE_AFTER)?;
    let first: Option<i64> =
        statement.query_row(params![now.as_micros(), BLOCKED], |row| row.get(0))?;
    Ok(first.map(Timestamp::from_micros))
}

/// Index: `abide_leased`, read from its beginning; the primary key for the parents and the workers.
pub(crate) const LAPSED: &str = "
    select i.id, i.partition_key,
           (select p.id from abide_instances p where p.id = i.parent_id),
           (select p.partition_key from abide_instances p where p.id = i.parent_id),
           (select w.name from abide_workers w where w.id = i.worker)
    from abide_instances i
    where i.lease_until is not null and i.lease_until <= ?1
    order by i.lease_until, i.id limit ?2 offset ?3";

/// The first rows whose own lease has expired, by the time of expiry.
pub(crate) fn lapsed(
    conn: &Connection,
    now: Timestamp,
    skip: usize,
    limit: usize,
) -> Result<Vec<Lapsed>> {
    let mut statement = conn.prepare_cached(LAPSED)?;
    let given = params![now.as_micros(), limited(limit), limited(skip)];
    let rows = statement.query_map(given, |row| {
        let parent = cells::maybe_id(row, 2)?;
        let partition = cells::maybe_key(row, 3)?;
        let worker: Option<String> = row.get(4)?;
        Ok(Lapsed {
            touched: touched(row)?,
            parent: parent.map(|id| ParentRef { id, partition }),
            worker: Name::stored(worker.unwrap_or_else(|| "?".to_owned())),
        })
    })?;
    rows.collect()
}

/// Index: `abide_held`, read from the id on.
pub(crate) const HELD: &str = "
    select id, partition_key from abide_instances
    where worker = ?1 and worker is not null and id > ?2 and (?3 = 0 or extra ->> '$.deaths' >= ?3)
    order by id limit ?4";

/// The instances that these workers hold, by worker and id.
pub(crate) fn held_by(
    conn: &Connection,
    workers: &[WorkerId],
    limit: usize,
) -> Result<Vec<(WorkerId, Touched)>> {
    let mut all = Vec::new();
    for worker in workers {
        let left = limit.saturating_sub(all.len());
        let held = held(conn, *worker, InstanceId(0), 0, left)?;
        all.extend(held.into_iter().map(|touched| (*worker, touched)));
        if all.len() >= limit {
            break;
        }
    }
    Ok(all)
}

/// The instances that a worker holds, by id, above `after`, in whose step workers have died at least that often.
pub(crate) fn held(
    conn: &Connection,
    worker: WorkerId,
    after: InstanceId,
    deaths: u32,
    limit: usize,
) -> Result<Vec<Touched>> {
    let mut statement = conn.prepare_cached(HELD)?;
    let rows = statement.query_map(params![worker.0, after.0, deaths, limited(limit)], touched)?;
    rows.collect()
}

/// Index: the primary key, read from the id on.
pub(crate) const ABOVE: &str =
    "select id, partition_key from abide_instances where id > ?1 order by id limit ?2";

/// The first instances above an id, by id.
pub(crate) fn above(conn: &Connection, after: InstanceId, limit: usize) -> Result<Vec<Touched>> {
    let mut statement = conn.prepare_cached(ABOVE)?;
    let rows = statement.query_map(params![after.0, limited(limit)], touched)?;
    rows.collect()
}

/// Condition: the row is not unfit for a build, if one is given; the build as a JSON string. A row without unfit builds
/// is recognized without parsing its JSON. A build is in the list after a comma, or after the bracket; no other text in
/// the list can contain that.
macro_rules! is_fit {
    ($given:literal, $build:literal) => {
        concat!(
            "(extra is null or instr(extra, '\"unfit\":') = 0 or ",
            $given,
            " is null or instr(',' || substr(coalesce(extra -> '$.unfit', ''), 2), ',' || ",
            $build,
            ") = 0)"
        )
    };
}
pub(super) use is_fit;

/// Index: `abide_blocked`, read from the id on.
pub(crate) const BLOCKED_ABOVE: &str = concat!(
    "
    select id, partition_key from abide_instances indexed by abide_blocked
    where wake_at = 9223372036854775806 and machine = ?1 and version = ?2 and id > ?3 and ",
    is_fit!("?5", "json_quote(?5)"),
    "
    order by id limit ?4"
);

/// The first instances of these lanes above an id that are scheduled without a due time, by id, except those that are
/// unfit for a build.
pub(crate) fn blocked(
    conn: &Connection,
    lanes: &[Lane],
    unless: Option<&Name>,
    after: InstanceId,
    limit: usize,
) -> Result<Vec<Touched>> {
    let mut statement = conn.prepare_cached(BLOCKED_ABOVE)?;
    let mut blocked: Vec<Touched> = Vec::new();
    for lane in distinct(lanes) {
        let values = params![
            lane.machine.as_str(),
            lane.version,
            after.0,
            limited(limit),
            unless.map(Name::as_str)
        ];
        for one in statement.query_map(values, touched)? {
            blocked.push(one?);
        }
    }
    blocked.sort_unstable_by_key(|one| one.id);
    blocked.truncate(limit);
    Ok(blocked)
}

pub(super) fn touched(row: &rusqlite::Row<'_>) -> Result<Touched> {
    Ok(Touched {
        id: cells::id(row, 0)?,
        partition: cells::maybe_key(row, 1)?,
    })
}
