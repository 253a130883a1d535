//! Workers: statements that register, renew, expire and delete them.

use abide_core::model::{Lane, Name, Timestamp, Worker, WorkerId};
use abide_core::sql;
use abide_kernel::{Error, NewWorker, Result};
use tokio_postgres::Row;

use crate::cells::{Cells, each};
use crate::param::Param;
use crate::pool::Pool;
use crate::read::ask;
use crate::txn::{Last, Transaction};

/// Inserts a worker with a new number.
pub const INSERT_WORKER: &str = "\
insert into abide.workers (name, lease_until, started_at, queues, lane_machines, lane_versions, build) \
values ($1, $2, $3, $4, $5, $6, $7) returning id";

/// Prevents other transactions from registering a worker of that name until the transaction ends.
///
/// Locks: the name. The transaction that registers a worker locks nothing else before.
pub const LOCK_NAME: &str = "\
select pg_advisory_xact_lock(hashtextextended($1, 3120470881512090211))";

/// The workers of a name, live or dead.
///
/// Index: `workers_name`.
pub const WORKERS_NAMED: &str = "\
select id, name, lease_until, started_at, queues, lane_machines, lane_versions, build \
from abide.workers where name = $1 order by id";

/// The workers that hold claims and are dead: their lease has expired, or they are unknown.
///
/// Indexes: `instances_held`, from one holder to the next, and `workers_pkey`. So dead workers that hold nothing are
/// not read, however many there are; an index over leases would have to be written at every heartbeat.
pub const DEAD_HOLDERS: &str = sql!(
    "\
with recursive holders(worker) as ( \
    (select i.worker from abide.instances i where i.status = @executing order by i.worker limit 1) \
    union all \
    select (select i.worker from abide.instances i where i.status = @executing and i.worker > h.worker \
        order by i.worker limit 1) \
    from holders h where h.worker is not null \
) \
select h.worker, (select w.name from abide.workers w where w.id = h.worker) from holders h \
where h.worker is not null \
    and coalesce((select w.lease_until <= $1 from abide.workers w where w.id = h.worker), true)"
);

/// The workers whose lease has not expired.
pub const LIVING_WORKERS: &str = "\
select id, name, lease_until, started_at, queues, lane_machines, lane_versions, build \
from abide.workers where lease_until > $1 order by id";

/// Renews leases that have not expired (rule 6.4).
///
/// Index: `workers_pkey`. Locks: those rows, by id; otherwise two transactions that renew the same leases could
/// deadlock.
pub const RENEW: &str = "\
with living as materialized ( \
    select id from abide.workers \
    where id = any((select $1::bigint[])::bigint[]) and lease_until > $2 order by id for no key update \
) \
update abide.workers w set lease_until = greatest(w.lease_until, $3) \
where w.id = any(array(select id from living)) returning w.id";

/// Writes a worker's lease, queues, lanes and build. Its name is locked.
///
/// Index: `workers_pkey`. Locks: that row.
pub const REWRITE_WORKER: &str = "\
update abide.workers set lease_until = $2, queues = $3, lane_machines = $4, lane_versions = $5, \
    build = $6 \
where id = $1";

/// The builds of workers, live or dead; a worker without a declared build counts as a build of its own.
///
/// Index: `workers_pkey`.
pub const BUILDS: &str = "\
select id, coalesce(build, name) from abide.workers \
where id = any((select $1::bigint[])::bigint[])";

/// Ends leases.
///
/// Locks: those rows.
pub const EXPIRE_WORKERS: &str = "\
update abide.workers set lease_until = least(lease_until, $2) \
where id = any((select $1::bigint[])::bigint[])";

/// Deletes workers whose lease expired before a given time and that hold nothing, the oldest first; returns them.
///
/// Index: `workers_pkey`, read from its beginning, which has workers that died long ago and few live ones; and
/// `instances_held`. Locks: those rows; those that another transaction has locked are skipped.
pub const FORGET_WORKERS: &str = sql!(
    "\
delete from abide.workers where id = any(array( \
    select w.id from abide.workers w where w.lease_until < $1 \
        and not exists (select from abide.instances i where i.status = @executing and i.worker = w.id) \
    order by w.id limit (select $2::bigint) \
    for update skip locked)) \
returning id"
);

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
        build,
    } = worker;
    let lease_until = now + *lease;
    let params = vec![
        Param::one(name.as_str()),
        Param::one(lease_until),
        Param::one(now),
        Param::list(queues.iter().map(Name::as_str)),
        Param::list(lanes.iter().map(|lane| lane.machine.as_str())),
        Param::list(lanes.iter().map(|lane| lane.version)),
        Param::one(build.as_ref().map(Name::as_str)),
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
        build: build.clone(),
    })
}

/// Finds the workers of a name, and prevents other registrations of that name meanwhile.
pub(crate) async fn workers_named(txn: &mut Transaction<'_>, name: &Name) -> Result<Vec<Worker>> {
    txn.write(LOCK_NAME, vec![Param::one(name.as_str())])?;
    read_workers(
        &txn.read(WORKERS_NAMED, vec![Param::one(name.as_str())])
            .await?,
    )
}

/// Finds the workers that hold claims and are dead.
pub(crate) async fn dead_holders(
    txn: &mut Transaction<'_>,
    now: Timestamp,
) -> Result<Vec<(WorkerId, Option<Name>)>> {
    let rows = txn.read(DEAD_HOLDERS, vec![Param::one(now)]).await?;
    each(&rows, |cells| Ok((cells.next()?, cells.next()?)))
}

/// `true` if a dead worker holds claims.
pub(crate) async fn some_are_dead(pool: &Pool, now: Timestamp) -> Result<bool> {
    let dead = ask(pool, DEAD_HOLDERS, vec![Param::one(now)]).await?;
    Ok(!dead.is_empty())
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

/// Reads the builds of workers.
pub(crate) async fn builds(
    txn: &mut Transaction<'_>,
    workers: &[WorkerId],
) -> Result<Vec<(WorkerId, Name)>> {
    let params = vec![Param::list(workers.iter().copied())];
    let rows = txn.read(BUILDS, params).await?;
    each(&rows, |cells| Ok((cells.next()?, cells.next()?)))
}

/// Writes a worker's lease, queues, lanes and build.
pub(crate) fn rewrite_worker(txn: &mut Transaction<'_>, worker: &Worker) -> Result<()> {
    let Worker { queues, lanes, .. } = worker;
    let params = vec![
        Param::one(worker.id),
        Param::one(worker.lease_until),
        Param::list(queues.iter().map(Name::as_str)),
        Param::list(lanes.iter().map(|lane| lane.machine.as_str())),
        Param::list(lanes.iter().map(|lane| lane.version)),
        Param::one(worker.build.as_ref().map(Name::as_str)),
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

/// Reads rows of the workers table.
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
        build: cells.next()?,
    })
}
