//! Loads rows that an operation is to decide over.

use abide_core::model::{
    Awaits, BarrierNumber, Cause, Epoch, Family, InstanceId, Row, Timestamp, WorkerId,
};
use abide_kernel::Touched;
use rusqlite::{Connection, Result, params};

use super::limited;
use crate::cells::{self, Names};

/// By primary key; the state and the result, which no rule reads, stay where they are.
pub(crate) const LOCK: &str = "
    select id, status, behind, queue, priority, due_at, partition_key, worker, epoch, settled, step, step_seq,
           attempt, cause, timed_out, wait_kind, awaits, wait_since, parent_id, parent_barrier, barrier,
           children_pending, children_needed, history, history_seq, finished_at, last_error
    from abide_instances where id = ?1";

/// Loads the rows with these ids, in their order; those that are not there are left out.
pub(crate) fn lock(conn: &Connection, ids: &[InstanceId]) -> Result<Vec<Row>> {
    let mut statement = conn.prepare_cached(LOCK)?;
    let mut found = Vec::with_capacity(ids.len());
    let (mut queues, mut steps) = (Names::default(), Names::default());
    for id in ids {
        let mut rows = statement.query(params![id.0])?;
        if let Some(row) = rows.next()? {
            found.push(read(row, &mut queues, &mut steps)?);
        }
    }
    Ok(found)
}

fn read(row: &rusqlite::Row<'_>, queues: &mut Names, steps: &mut Names) -> Result<Row> {
    let wait_kind = cells::wait_kind(row, 15)?;
    Ok(Row {
        id: cells::id(row, 0)?,
        status: cells::status(row, 1)?,
        behind: cells::flag(row, 2)?,
        queue: queues.read(row, 3)?,
        priority: cells::priority(row, 4)?,
        due_at: cells::maybe_time(row, 5)?,
        partition_key: cells::maybe_key(row, 6)?,
        worker: cells::maybe_worker(row, 7)?,
        epoch: Epoch(row.get(8)?),
        settled: Epoch(row.get(9)?),
        step: steps.read(row, 10)?,
        step_seq: row.get(11)?,
        attempt: row.get(12)?,
        cause: Cause::from_code(row.get(13)?),
        timed_out: cells::flag(row, 14)?,
        awaits: match wait_kind {
            None => None,
            Some(kind) => Some(Awaits {
                kind,
                names: cells::list(row, 16)?,
                since: cells::maybe_time(row, 17)?.unwrap_or_default(),
            }),
        },
        parent: cells::maybe_id(row, 18)?,
        parent_barrier: BarrierNumber(row.get(19)?),
        family: Family {
            barrier: BarrierNumber(row.get(20)?),
            pending: row.get(21)?,
            needed: row.get(22)?,
        },
        history: cells::flag(row, 23)?,
        history_seq: row.get(24)?,
        finished_at: cells::maybe_time(row, 25)?,
        last_error: row.get(26)?,
    })
}

/// By `abide_parked`, from its beginning.
pub(crate) const DUE: &str = "
    select id, partition_key from abide_instances
    where (status = 1 or status = 4 or status = 5) and due_at <= ?1
    order by due_at, id limit ?2";

/// The first rows, scheduled or awaiting, that are due.
pub(crate) fn due(conn: &Connection, now: Timestamp, limit: usize) -> Result<Vec<Touched>> {
    let mut statement = conn.prepare_cached(DUE)?;
    let rows = statement.query_map(params![now.as_micros(), limited(limit)], touched)?;
    rows.collect()
}

/// By `abide_held`, from the id on.
pub(crate) const HELD: &str = "
    select id, partition_key from abide_instances
    where status = 3 and worker = ?1 and id > ?2
    order by id limit ?3";

/// What a worker holds, by id, above `after`.
pub(crate) fn held(
    conn: &Connection,
    worker: WorkerId,
    after: InstanceId,
    limit: usize,
) -> Result<Vec<Touched>> {
    let mut statement = conn.prepare_cached(HELD)?;
    let rows = statement.query_map(params![worker.0, after.0, limited(limit)], touched)?;
    rows.collect()
}

fn touched(row: &rusqlite::Row<'_>) -> Result<Touched> {
    Ok(Touched {
        id: cells::id(row, 0)?,
        partition: cells::maybe_key(row, 1)?,
    })
}
