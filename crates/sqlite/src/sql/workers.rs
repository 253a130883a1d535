//! Workers and their leases.

use abide_core::model::{Name, Timestamp, Worker, WorkerId};
use abide_kernel::NewWorker;
use rusqlite::{Connection, Result, Row, params};

use crate::cells;

const INSERT: &str = "
    insert into abide_workers (name, lease_until, started_at, queues, lanes, build)
    values (?1, ?2, ?3, ?4, ?5, ?6)";

/// Inserts a worker with a new number.
pub(crate) fn insert(conn: &Connection, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
    let lease_until = now + worker.lease;
    conn.prepare_cached(INSERT)?.execute(params![
        worker.name.as_str(),
        lease_until.as_micros(),
        now.as_micros(),
        cells::written(&worker.queues)?,
        cells::written(&worker.lanes)?,
        worker.build.as_ref().map(Name::as_str),
    ])?;
    Ok(Worker {
        id: WorkerId(conn.last_insert_rowid()),
        name: worker.name.clone(),
        lease_until,
        started_at: now,
        queues: worker.queues.clone(),
        lanes: worker.lanes.clone(),
        build: worker.build.clone(),
    })
}

/// Index: `abide_workers_by_name`.
pub(crate) const NAMED: &str = "
    select id, name, lease_until, started_at, queues, lanes, build from abide_workers where name = ?1 order by id";

/// The workers of that name, live or dead.
pub(crate) fn named(conn: &Connection, name: &Name) -> Result<Vec<Worker>> {
    let mut statement = conn.prepare_cached(NAMED)?;
    let rows = statement.query_map([name.as_str()], read)?;
    rows.collect()
}

/// Indexes: `abide_held`, from one holder to the next, and the primary key. Dead workers that hold nothing are not
/// read.
pub(crate) const DEAD_HOLDERS: &str = "
    with recursive holders(worker) as (
        select (select min(worker) from abide_instances indexed by abide_held where worker is not null)
        union all
        select (select min(i.worker) from abide_instances i indexed by abide_held
                where i.worker is not null and i.worker > h.worker)
        from holders h where h.worker is not null
    )
    select h.worker, w.name from holders h left join abide_workers w on w.id = h.worker
    where h.worker is not null and coalesce(w.lease_until <= ?1, true)";

/// The workers that hold claims and are dead, by id.
pub(crate) fn dead_holders(
    conn: &Connection,
    now: Timestamp,
) -> Result<Vec<(WorkerId, Option<Name>)>> {
    let mut statement = conn.prepare_cached(DEAD_HOLDERS)?;
    let rows = statement.query_map([now.as_micros()], |row| {
        let name: Option<String> = row.get(1)?;
        Ok((WorkerId(row.get(0)?), name.map(Name::stored)))
    })?;
    rows.collect()
}

/// Index: `abide_workers_by_lease`.
pub(crate) const LIVING: &str = "
    select id, name, lease_until, started_at, queues, lanes, build from abide_workers where lease_until > ?1";

/// The workers whose lease has not expired, by id.
pub(crate) fn living(conn: &Connection, now: Timestamp) -> Result<Vec<Worker>> {
    let mut statement = conn.prepare_cached(LIVING)?;
    let rows = statement.query_map([now.as_micros()], read)?;
    let mut living = rows.collect::<Result<Vec<Worker>>>()?;
    living.sort_unstable_by_key(|worker| worker.id);
    Ok(living)
}

fn read(row: &Row<'_>) -> Result<Worker> {
    Ok(Worker {
        id: WorkerId(row.get(0)?),
        name: cells::name(row, 1)?,
        lease_until: cells::time(row, 2)?,
        started_at: cells::time(row, 3)?,
        queues: cells::list(row, 4)?,
        lanes: cells::list(row, 5)?,
        build: row.get::<_, Option<String>>(6)?.map(Name::stored),
    })
}

/// Index: the primary key.
pub(crate) const RENEW: &str = "
    update abide_workers set lease_until = max(lease_until, ?3) where id = ?1 and lease_until > ?2";

/// Renews the leases of those of the workers whose lease has not expired, at least until a given time; returns those
/// workers.
pub(crate) fn renew(
    conn: &Connection,
    workers: &[WorkerId],
    now: Timestamp,
    until: Timestamp,
) -> Result<Vec<WorkerId>> {
    let mut statement = conn.prepare_cached(RENEW)?;
    let mut renewed = Vec::with_capacity(workers.len());
    for worker in workers {
        let values = params![worker.0, now.as_micros(), until.as_micros()];
        if statement.execute(values)? > 0 {
            renewed.push(*worker);
        }
    }
    Ok(renewed)
}

/// Index: the primary key.
pub(crate) const REWRITE: &str =
    "update abide_workers set lease_until = ?2, queues = ?3, lanes = ?4, build = ?5 where id = ?1";

/// Writes a worker's lease, queues, lanes and build.
pub(crate) fn rewrite(conn: &Connection, worker: &Worker) -> Result<()> {
    conn.prepare_cached(REWRITE)?.execute(params![
        worker.id.0,
        worker.lease_until.as_micros(),
        cells::written(&worker.queues)?,
        cells::written(&worker.lanes)?,
        worker.build.as_ref().map(Name::as_str),
    ])?;
    Ok(())
}

/// Index: the primary key.
pub(crate) const BUILD: &str = "select coalesce(build, name) from abide_workers where id = ?1";

/// The builds of these workers, live or dead; a worker without a declared build counts as a build of its own.
pub(crate) fn builds(conn: &Connection, workers: &[WorkerId]) -> Result<Vec<(WorkerId, Name)>> {
    let mut statement = conn.prepare_cached(BUILD)?;
    let mut builds = Vec::with_capacity(workers.len());
    for worker in workers {
        let mut rows = statement.query([worker.0])?;
        if let Some(row) = rows.next()? {
            builds.push((*worker, cells::name(row, 0)?));
        }
    }
    Ok(builds)
}

/// Index: the primary key.
pub(crate) const EXPIRE: &str =
    "update abide_workers set lease_until = min(lease_until, ?2) where id = ?1";

/// Ends the leases of these workers; a lease that ended earlier stays as it was.
pub(crate) fn expire(conn: &Connection, workers: &[WorkerId], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(EXPIRE)?;
    for worker in workers {
        statement.execute(params![worker.0, now.as_micros()])?;
    }
    Ok(())
}

/// Indexes: `abide_workers_by_lease`, read from its beginning; the primary key; `abide_held` for what they hold.
pub(crate) const FORGET: &str = "
    delete from abide_workers where id in
        (select w.id from abide_workers w where w.lease_until < ?1
             and not exists (select 1 from abide_instances i where i.worker = w.id and i.worker is not null)
         order by w.lease_until, w.id limit ?2)";
