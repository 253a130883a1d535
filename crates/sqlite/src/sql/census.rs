//! Counts over the whole file, for operators and for warnings.

use abide_core::model::Lane;
use abide_core::rules::liveness::FAILURES_HEALTHY;
use abide_core::sql;
use abide_kernel::{ENDED_COUNTED, READY_LANES, ReadyLane, Tally};
use rusqlite::{Connection, Result, Row};

use crate::cells;

/// The lanes with claimable rows, one index step per lane. Lanes with the same number count as one. Index:
/// `abide_claimable`.
pub(crate) const READY: &str = "
    with recursive lanes (lane) as (
        select min(lane) from abide_instances indexed by abide_claimable where ready_at is not null
        union all
        select (select min(lane) from abide_instances indexed by abide_claimable
                where ready_at is not null and lane > lanes.lane)
        from lanes where lanes.lane is not null)
    select one.queue, one.machine, one.version
    from lanes join abide_instances as one on one.id = (
        select id from abide_instances indexed by abide_claimable where ready_at is not null and lane = lanes.lane
        limit 1)
    limit ?1";

/// The number of blocked instances. Index: `abide_blocked`.
pub(crate) const BLOCKED: &str = "
    select count(*) from abide_instances indexed by abide_blocked where wake_at = 9223372036854775806";

/// The number of failing instances. Indexes: those that contain all instances that have not ended, as in `DEPTHS`.
pub(crate) const FAILING: &str = sql!("
    select count(*) from (
        select kind, attempt - coalesce(extra ->> '$.deaths', 0) as failures, last_error from abide_instances indexed by abide_claimable where ready_at is not null
        union all
        select kind, attempt - coalesce(extra ->> '$.deaths', 0) as failures, last_error from abide_instances indexed by abide_partition_queue
        where (standing = 1 or standing = 2) and standing = 1
        union all
        select kind, attempt - coalesce(extra ->> '$.deaths', 0) as failures, last_error from abide_instances indexed by abide_held where worker is not null
        union all
        select kind, attempt - coalesce(extra ->> '$.deaths', 0) as failures, last_error from abide_instances indexed by abide_parked
        where wake_at is not null and wake_at <> 9223372036854775806)
    where last_error is not null and (failures > ?1 or kind = @workflow)");

/// The number of ended instances by status, counted up to a limit. Index: `abide_finished`.
pub(crate) const ENDED: &str = "
    select status, count(*)
    from (select status from abide_instances indexed by abide_finished where finished_at is not null limit ?1)
    group by status";

/// Reads the lanes with claimable rows.
pub(crate) fn ready_lanes(conn: &Connection) -> Result<Vec<ReadyLane>> {
    let mut statement = conn.prepare_cached(READY)?;
    let found = statement.query_map([READY_LANES as i64], |row| {
        Ok(ReadyLane {
            queue: cells::name(row, 0)?,
            lane: Lane {
                machine: cells::name(row, 1)?,
                version: row.get(2)?,
            },
        })
    })?;
    let mut lanes = found.collect::<Result<Vec<_>>>()?;
    // So far they are sorted by number.
    lanes.sort_unstable();
    Ok(lanes)
}

/// Counts the instances that are blocked or failing, and those that have ended.
pub(crate) fn tally(conn: &Connection) -> Result<Tally> {
    let count = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
    let mut tally = Tally {
        blocked: conn.prepare_cached(BLOCKED)?.query_row([], count)?,
        failing: conn
            .prepare_cached(FAILING)?
            .query_row([FAILURES_HEALTHY], count)?,
        ..Tally::default()
    };
    let mut statement = conn.prepare_cached(ENDED)?;
    let mut rows = statement.query([ENDED_COUNTED as i64])?;
    while let Some(row) = rows.next()? {
        let number = row.get::<_, i64>(1)?.unsigned_abs();
        tally.ended.insert(cells::status(row, 0)?, number);
    }
    Ok(tally)
}
