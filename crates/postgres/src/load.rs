//! Loads rows: under lock for the rules, and what is declared of machines.

use abide_core::model::{Awaits, Declared, Family, InstanceId, Name, Row, Timestamp, WaitKind};
use abide_kernel::{Result, Touched};

use crate::cells::{Cells, each};
use crate::param::Param;
use crate::txn::Transaction;

/// Locks instances by id, in the order of their ids, and loads what rules decide over; those not there are left out.
///
/// Index: `instances_pkey`. Locks: the rows, for no key update, in the order of their ids. The array is hidden in a
/// sub-select: a planner that sees how long it is reads the whole table instead when that is short.
pub const LOCK: &str = "\
select id, status, step, step_seq, attempt, queue, priority, due_at, partition_key, behind, \
    worker, epoch, settled, cause, timed_out, wait_kind, awaits, wait_since, parent_id, \
    parent_barrier, barrier, children_pending, children_needed, history, history_seq, last_error, \
    finished_at \
from abide.instances \
where id = any((select $1::bigint[])::bigint[]) \
order by id for no key update";

/// The first rows, scheduled or awaiting, that are due; not locked.
///
/// Index: `instances_parked`, read from its beginning. The limit is hidden in a sub-select: a planner that sees it may
/// prefer to sort.
pub const DUE: &str = "\
select id, partition_key from abide.instances \
where status in (1, 4, 5) and due_at <= $1 \
order by due_at, id limit (select $2::bigint)";

/// What a worker holds, above an id, by id; not locked.
///
/// Index: `instances_held`.
pub const HELD: &str = "\
select id, partition_key from abide.instances \
where status = 3 and worker = $1 and id > $2 \
order by id limit (select $3::bigint)";

/// The declarations of the machines named.
///
/// Index: `machines_pkey`.
pub const DECLARED: &str = "\
select machine, version, first_step, queue, history from abide.machines \
where machine = any((select $1::text[])::text[])";

/// Locks rows and loads them.
pub(crate) async fn lock(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<Vec<Row>> {
    let rows = txn
        .read(LOCK, vec![Param::list(ids.iter().copied())])
        .await?;
    each(&rows, row)
}

/// What is due.
pub(crate) async fn due(
    txn: &mut Transaction<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<Touched>> {
    let rows = txn
        .read(DUE, vec![Param::one(now), Param::one(limit)])
        .await?;
    each(&rows, touched)
}

/// What a worker holds.
pub(crate) async fn held(
    txn: &mut Transaction<'_>,
    worker: abide_core::model::WorkerId,
    after: InstanceId,
    limit: usize,
) -> Result<Vec<Touched>> {
    let params = vec![Param::one(worker), Param::one(after), Param::one(limit)];
    let rows = txn.read(HELD, params).await?;
    each(&rows, touched)
}

/// What is declared of machines.
pub(crate) async fn declared(
    txn: &mut Transaction<'_>,
    machines: &[Name],
) -> Result<Vec<Declared>> {
    let machines = Param::list(machines.iter().map(Name::as_str));
    let rows = txn.read(DECLARED, vec![machines]).await?;
    each(&rows, |cells| {
        Ok(Declared {
            machine: cells.next()?,
            version: cells.next()?,
            first_step: cells.next()?,
            queue: cells.next()?,
            history: cells.next()?,
        })
    })
}

fn row(cells: &mut Cells<'_>) -> Result<Row> {
    Ok(Row {
        id: cells.next()?,
        status: cells.next()?,
        step: cells.next()?,
        step_seq: cells.next()?,
        attempt: cells.next()?,
        queue: cells.next()?,
        priority: cells.next()?,
        due_at: cells.next()?,
        partition_key: cells.next()?,
        behind: cells.next()?,
        worker: cells.next()?,
        epoch: cells.next()?,
        settled: cells.next()?,
        cause: cells.next()?,
        timed_out: cells.next()?,
        awaits: awaits(cells)?,
        parent: cells.next()?,
        parent_barrier: cells.next()?,
        family: Family {
            barrier: cells.next()?,
            pending: cells.next()?,
            needed: cells.next()?,
        },
        history: cells.next()?,
        history_seq: cells.next()?,
        last_error: cells.next()?,
        finished_at: cells.next()?,
    })
}

fn awaits(cells: &mut Cells<'_>) -> Result<Option<Awaits>> {
    let kind: Option<WaitKind> = cells.next()?;
    let names: Option<Vec<Name>> = cells.next()?;
    let since: Option<Timestamp> = cells.next()?;
    Ok(kind.map(|kind| Awaits {
        kind,
        names: names.unwrap_or_default(),
        since: since.unwrap_or_default(),
    }))
}

fn touched(cells: &mut Cells<'_>) -> Result<Touched> {
    Ok(Touched {
        id: cells.next()?,
        partition: cells.next()?,
    })
}
