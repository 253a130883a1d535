//! Counts over the whole database, for operators and for warnings.

use std::collections::BTreeMap;

use abide_core::model::{Lane, Status};
use abide_core::rules::liveness::FAILURES_HEALTHY;
use abide_core::sql;
use abide_kernel::{ENDED_COUNTED, READY_LANES, ReadyLane, Result, Tally};

use crate::cells::each;
use crate::param::Param;
use crate::pool::Pool;
use crate::read::ask;

/// The lanes with claimable rows, one index step per lane. Index: `instances_claimable`. Locks nothing.
pub const READY: &str = sql!(
    "\
with recursive lanes as ( \
    (select queue, machine, version from abide.instances where status = @runnable and not behind \
        order by queue, machine, version limit 1) \
    union all \
    select n.queue, n.machine, n.version from lanes l cross join lateral ( \
        select i.queue, i.machine, i.version from abide.instances i \
        where i.status = @runnable and not i.behind \
            and (i.queue, i.machine, i.version) > (l.queue, l.machine, l.version) \
        order by i.queue, i.machine, i.version limit 1 \
    ) n \
) select queue, machine, version from lanes limit $1"
);

/// The number of blocked instances, and of failing ones. Indexes: `instances_blocked`, and those of
/// [`read::DEPTHS`](crate::read::DEPTHS).
pub const UNWELL: &str = sql!(
    "\
select \
    (select count(*) from abide.instances where status = @scheduled and due_at is null), \
    (select count(*) from ( \
        select kind, attempt - coalesce((extra::json ->> 'deaths')::int, 0) as failures, last_error from abide.instances where status = @runnable and not behind \
        union all \
        select kind, attempt - coalesce((extra::json ->> 'deaths')::int, 0) as failures, last_error from abide.instances \
            where status = @runnable and behind and partition_key is not null \
        union all \
        select kind, attempt - coalesce((extra::json ->> 'deaths')::int, 0) as failures, last_error from abide.instances where status = @executing \
        union all \
        select kind, attempt - coalesce((extra::json ->> 'deaths')::int, 0) as failures, last_error from abide.instances where status in (@parked) \
            and not (status = @scheduled and due_at is null) \
    ) live where last_error is not null and (failures > $1 or kind = @workflow))"
);

/// The number of ended instances by status, counted up to a limit. Index: `instances_finished`.
pub const ENDED: &str = "\
select status, count(*) from ( \
    select status from abide.instances where finished_at is not null limit $1 \
) ended group by status";

/// Reads the lanes with claimable rows.
pub(crate) async fn ready_lanes(pool: &Pool) -> Result<Vec<ReadyLane>> {
    let rows = ask(pool, READY, vec![Param::one(READY_LANES as i64)]).await?;
    each(&rows, |cells| {
        Ok(ReadyLane {
            queue: cells.next()?,
            lane: Lane {
                machine: cells.next()?,
                version: cells.next()?,
            },
        })
    })
}

/// Counts the instances that are blocked or failing, and those that have ended.
pub(crate) async fn tally(pool: &Pool) -> Result<Tally> {
    let number = |count: i64| u64::try_from(count).unwrap_or_default();
    let rows = ask(pool, UNWELL, vec![Param::one(FAILURES_HEALTHY as i32)]).await?;
    let unwell: Vec<(i64, i64)> = each(&rows, |cells| Ok((cells.next()?, cells.next()?)))?;
    let rows = ask(pool, ENDED, vec![Param::one(ENDED_COUNTED as i64)]).await?;
    let ended: Vec<(Status, i64)> = each(&rows, |cells| Ok((cells.next()?, cells.next()?)))?;
    let (blocked, failing) = unwell.into_iter().next().unwrap_or_default();
    Ok(Tally {
        blocked: number(blocked),
        failing: number(failing),
        ended: BTreeMap::from_iter(
            ended
                .into_iter()
                .map(|(status, count)| (status, number(count))),
        ),
    })
}
