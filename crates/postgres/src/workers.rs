//! Workers: they come, live, die and are forgotten.

use abide_core::model::{Lane, Name, Timestamp, Worker, WorkerId};
use abide_kernel::{Error, NewWorker, Result};
use tokio_postgres::Row;

use crate::cells::{Cells, each};
use crate::param::Param;
use crate::pool::Pool;
use crate::read::ask;
use crate::txn::{Last, Transaction};

/// Inserts a worker, under a number that no other ever had.
pub const INSERT_WORKER: &str = "\
insert into abide.workers (name, lease_until, started_at, queues, lane_machines, lane_versions) \
values ($1, $2, $3, $4, $5, $6) returning id";

/// Keeps others from registering a worker of that name until the transaction ends.
///
/// Locks: the name. A worker is registered in a transaction that locks nothing else before.
pub const LOCK_NAME: &str = "\
select pg_advisory_xact_lock(hashtextextended($1, 3120470881512090211))";

/// The workers of a name, living or not.
///
/// Index: `workers_name`.
pub const WORKERS_NAMED: &str = "\
select id, name, lease_until, started_at, queues, lane_machines, lane_versions \
from abide.workers where name = $1 order by id";

/// The workers that hold something and are not believed to live: their lease has run out, or they are not known.
///
/// Indexes: `instances_held`, from one holder to the next, and `workers_pkey`. So the dead who hold nothing are not looked
/// at, however many there are; an index over leases would have to be written at every heartbeat.
pub const DEAD_HOLDERS: &str = "\
with recursive holders(worker) as ( \
    (select i.worker from abide.instances i where i.status = 3 order by i.worker limit 1) \
    union all \
    select (select i.worker from abide.instances i where i.status = 3 and i.worker > h.worker \
        order by i.worker limit 1) \
    from holders h where h.worker is not null \
) \
select h.worker, (select w.name from abide.workers w where w.id = h.worker) from holders h \
where h.worker is not null \
    and coalesce((select w.lease_until <= $1 from abide.workers w where w.id = h.worker), true)";

/// The workers whose lease has not run out.
pub const LIVING_WORKERS: &str = "\
select id, name, lease_until, started_at, queues, lane_machines, lane_versions \
from abide.workers where lease_until > $1 order by id";

/// Which of these workers there are, living or not.
///
/// Index: `workers_pkey`.
pub const KNOWN_WORKERS: &str = "\
select id from abide.workers where id = any((select $1::bigint[])::bigint[])";

/// Lets leases run on that have not run out (rule 6.4).
///
/// Index: `workers_pkey`. Locks: those rows, by id, or two who renew the same ones could wait for each other.
pub const RENEW: &str = "\
with living as materialized ( \
    select id from abide.workers \
    where id = any((select $1::bigint[])::bigint[]) and lease_until > $2 order by id for no key update \
) \
update abide.workers w set lease_until = greatest(w.lease_until, $3) \
where w.id = any(array(select id from living)) returning w.id";

/// Writes a worker's lease, queues and lanes. Its name is locked.
///
/// Index: `workers_pkey`. Locks: that row.
pub const REWRITE_WORKER: &str = "\
update abide.workers set lease_until = $2, queues = $3, lane_machines = $4, lane_versions = $5 \
where id = $1";

/// Ends leases.
///
/// Locks: those rows.
pub const EXPIRE_WORKERS: &str = "\
update abide.workers set lease_until = least(lease_until, $2) \
where id = any((select $1::bigint[])::bigint[])";

/// Deletes workers whose lease ran out before a moment and that hold nothing, the oldest first; which.
///
/// Index: `workers_pkey`, read from its beginning: those that died long ago are there, and few that live; and
/// `instances_held`. Locks: those rows, passing over those that another has.
pub const FORGET_WORKERS: &str = "\
delete from abide.workers where id = any(array( \
    select w.id from abide.workers w where w.lease_until < $1 \
        and not exists (select from abide.instances i where i.status = 3 and i.worker = w.id) \
    order by w.id limit (select $2::bigint) \
    for update skip locked)) \
returning id";

/// Inserts a worker.
pub(crate) async fn insert_worker(
    txn: &mut Transaction<'_>,
    worker: &NewWorker,
    now: Timestamp,
) -> Result<Worker> {
    let NewWorker {
        name,
        lease,
        queues,
        lanes,
    } = worker;
    let lease_until = now + *lease;
    let params = vec![
        Param::one(name.as_str()),
        Param::one(lease_until),
        Param::one(now),
        Param::list(queues.iter().map(Name::as_str)),
        Param::list(lanes.iter().map(|lane| lane.machine.as_str())),
        Param::list(lanes.iter().map(|lane| lane.version)),
    ];
    let rows = txn.read(INSERT_WORKER, params).await?;
    let ids: Vec<WorkerId> = each(&rows, |cells| cells.next())?;
    let id = *ids
        .first()
        .ok_or_else(|| Error::Broken("a worker got no number".into()))?;
    let (name, queues, lanes) = (name.clone(), queues.clone(), lanes.clone());
    Ok(Worker {
        id,
        name,
        lease_until,
        started_at: now,
        queues,
        lanes,
    })
}

/// The workers of a name, which nobody else registers meanwhile.
pub(crate) async fn workers_named(txn: &mut Transaction<'_>, name: &Name) -> Result<Vec<Worker>> {
    txn.write(LOCK_NAME, vec![Param::one(name.as_str())])?;
    read_workers(
        &txn.read(WORKERS_NAMED, vec![Param::one(name.as_str())])
            .await?,
    )
}

/// The workers that hold something and are not believed to live.
pub(crate) async fn dead_holders(
    txn: &mut Transaction<'_>,
    now: Timestamp,
) -> Result<Vec<(WorkerId, Option<Name>)>> {
    let rows = txn.read(DEAD_HOLDERS, vec![Param::one(now)]).await?;
    each(&rows, |cells| Ok((cells.next()?, cells.next()?)))
}

/// Whether workers are dead that hold something.
pub(crate) async fn some_are_dead(pool: &Pool, now: Timestamp) -> Result<bool> {
    let dead = ask(pool, DEAD_HOLDERS, vec![Param::one(now)]).await?;
    Ok(!dead.is_empty())
}

/// Which workers there are.
pub(crate) async fn known_workers(
    txn: &mut Transaction<'_>,
    workers: &[WorkerId],
) -> Result<Vec<WorkerId>> {
    let params = vec![Param::list(workers.iter().copied())];
    each(&txn.read(KNOWN_WORKERS, params).await?, |cells| {
        cells.next()
    })
}

/// Renews leases.
pub(crate) async fn renew(
    txn: &mut Transaction<'_>,
    workers: &[WorkerId],
    now: Timestamp,
    until: Timestamp,
) -> Result<Vec<WorkerId>> {
    let workers = Param::list(workers.iter().copied());
    let params = vec![workers, Param::one(now), Param::one(until)];
    let rows = txn.read_last(Last::Renewal, RENEW, params).await?;
    each(&rows, |cells| cells.next())
}

/// Writes a worker's lease, queues and lanes.
pub(crate) fn rewrite_worker(txn: &mut Transaction<'_>, worker: &Worker) -> Result<()> {
    let Worker { queues, lanes, .. } = worker;
    let params = vec![
        Param::one(worker.id),
        Param::one(worker.lease_until),
        Param::list(queues.iter().map(Name::as_str)),
        Param::list(lanes.iter().map(|lane| lane.machine.as_str())),
        Param::list(lanes.iter().map(|lane| lane.version)),
    ];
    txn.write(REWRITE_WORKER, params)
}

/// Ends leases.
pub(crate) fn expire_workers(
    txn: &mut Transaction<'_>,
    workers: &[WorkerId],
    now: Timestamp,
) -> Result<()> {
    txn.write(
        EXPIRE_WORKERS,
        vec![Param::list(workers.iter().copied()), Param::one(now)],
    )
}

/// Deletes workers that died long ago; how many.
pub(crate) async fn forget_workers(
    txn: &mut Transaction<'_>,
    before: Timestamp,
    limit: usize,
) -> Result<usize> {
    let params = vec![Param::one(before), Param::one(limit)];
    Ok(txn.read(FORGET_WORKERS, params).await?.len())
}

/// Reads rows of the table of workers.
pub(crate) fn read_workers(rows: &[Row]) -> Result<Vec<Worker>> {
    each(rows, worker)
}

fn worker(cells: &mut Cells<'_>) -> Result<Worker> {
    let (id, name) = (cells.next()?, cells.next()?);
    let (lease_until, started_at) = (cells.next()?, cells.next()?);
    let queues = cells.next()?;
    let machines: Vec<Name> = cells.next()?;
    let versions: Vec<i32> = cells.next()?;
    let lane = |(machine, version)| Lane {
        machine,
        version: u32::try_from(version).unwrap_or(0),
    };
    let lanes = machines.into_iter().zip(versions).map(lane).collect();
    Ok(Worker {
        id,
        name,
        lease_until,
        started_at,
        queues,
        lanes,
    })
}
