//! Workers and their leases.

use abide_core::model::{Name, Timestamp, Worker, WorkerId};
use abide_kernel::NewWorker;
use rusqlite::{Connection, Result, Row, params};

use crate::cells;

const INSERT: &str = "
    insert into abide_workers (name, lease_until, started_at, queues, lanes) values (?1, ?2, ?3, ?4, ?5)";

/// Inserts a worker under a number that no worker has had before.
pub(crate) fn insert(conn: &Connection, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
    let lease_until = now + worker.lease;
    conn.prepare_cached(INSERT)?.execute(params![
        worker.name.as_str(),
        lease_until.as_micros(),
        now.as_micros(),
        cells::written(&worker.queues)?,
        cells::written(&worker.lanes)?,
    ])?;
    Ok(Worker {
        id: WorkerId(conn.last_insert_rowid()),
        name: worker.name.clone(),
        lease_until,
        started_at: now,
        queues: worker.queues.clone(),
        lanes: worker.lanes.clone(),
    })
}

/// By `abide_workers_by_name`.
pub(crate) const NAMED: &str = "
    select id, name, lease_until, started_at, queues, lanes from abide_workers where name = ?1 order by id";

/// The workers of that name, living or not.
pub(crate) fn named(conn: &Connection, name: &Name) -> Result<Vec<Worker>> {
    let mut statement = conn.prepare_cached(NAMED)?;
    let rows = statement.query_map([name.as_str()], read)?;
    rows.collect()
}

/// By primary key.
pub(crate) const KNOWN: &str = "select 1 from abide_workers where id = ?1";

/// Which of these workers there are, living or not.
pub(crate) fn known(conn: &Connection, workers: &[WorkerId]) -> Result<Vec<WorkerId>> {
    let mut statement = conn.prepare_cached(KNOWN)?;
    let mut known = Vec::with_capacity(workers.len());
    for worker in workers {
        if statement.exists([worker.0])? {
            known.push(*worker);
        }
    }
    Ok(known)
}

/// By `abide_workers_by_lease`.
pub(crate) const DEAD: &str = "
    select id, name, lease_until, started_at, queues, lanes from abide_workers
    where lease_until <= ?1 order by lease_until, id";

/// The workers whose lease has run out.
pub(crate) fn dead(conn: &Connection, now: Timestamp) -> Result<Vec<Worker>> {
    let mut statement = conn.prepare_cached(DEAD)?;
    let rows = statement.query_map([now.as_micros()], read)?;
    rows.collect()
}

/// By `abide_workers_by_lease`.
pub(crate) const LIVING: &str = "
    select id, name, lease_until, started_at, queues, lanes from abide_workers where lease_until > ?1";

/// The workers whose lease has not run out, by id.
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
    })
}

/// By primary key.
pub(crate) const RENEW: &str = "
    update abide_workers set lease_until = max(lease_until, ?3) where id = ?1 and lease_until > ?2";

/// Lets the leases of those of these workers that have not run out run until that moment at least; which these are.
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

/// By primary key.
pub(crate) const REWRITE: &str =
    "update abide_workers set lease_until = ?2, queues = ?3, lanes = ?4 where id = ?1";

/// Writes a worker's lease, queues and lanes.
pub(crate) fn rewrite(conn: &Connection, worker: &Worker) -> Result<()> {
    conn.prepare_cached(REWRITE)?.execute(params![
        worker.id.0,
        worker.lease_until.as_micros(),
        cells::written(&worker.queues)?,
        cells::written(&worker.lanes)?,
    ])?;
    Ok(())
}

/// By primary key.
pub(crate) const EXPIRE: &str =
    "update abide_workers set lease_until = min(lease_until, ?2) where id = ?1";

/// Ends the leases of these workers; one that ended earlier stays as it was.
pub(crate) fn expire(conn: &Connection, workers: &[WorkerId], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(EXPIRE)?;
    for worker in workers {
        statement.execute(params![worker.0, now.as_micros()])?;
    }
    Ok(())
}

/// By primary key.
pub(crate) const DELETE: &str = "delete from abide_workers where id = ?1";

/// Deletes workers.
pub(crate) fn delete(conn: &Connection, workers: &[WorkerId]) -> Result<()> {
    let mut statement = conn.prepare_cached(DELETE)?;
    for worker in workers {
        statement.execute([worker.0])?;
    }
    Ok(())
}
