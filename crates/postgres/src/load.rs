//! Loads rows: under lock for the rules, and what is declared of machines.

use std::collections::BTreeSet;

use abide_core::model::{
    Aside, Attended, Awaits, Declared, Family, Inbox, InstanceId, Json, Lane, Lease, Name, NewRow,
    ParentRef, Policy, Row, Run, Scopes, Status, Timestamp, WaitKind, WorkerId,
};
use abide_kernel::{Error, Lapsed, Result, Touched};
use tokio_postgres::Row as Answered;

use crate::cells::{Cells, each};
use crate::claim::lane_params;
use crate::param::Param;
use crate::txn::Transaction;
use crate::waiters;

/// The columns that rules decide over, in the order in which [`rows`] reads them.
macro_rules! lock_columns {
    () => {
        "id, kind, status, case when key is null then 0 else key_scope end, \
        case when unique_key is null then 0 else unique_scope end, step, step_seq, attempt, queue, priority, due_at, partition_key, behind, \
        worker, lease_until, limit_until, epoch, settled, cause, timed_out, wait_kind, awaits, wait_since, wait_id, \
        aside_status, aside_due_at, aside_cause, message_sequence, message_cursor, signals_pending, \
        updates_pending, handed, pending_bytes, contract_id, run_number, first_id, parent_id, parent_barrier, \
        barrier, children_pending, children_needed, children_ended, history, history_seq, last_error, \
        finished_at, attended"
    };
}
pub(crate) use lock_columns;

/// Locks instances by id, in the order of their ids, and loads what rules decide over; those not there are left out.
///
/// Index: `instances_pkey`. Locks: the rows, for no key update, in the order of their ids. The array is hidden in a
/// sub-select: a planner that sees how long it is reads the whole table instead when that is short.
pub const LOCK: &str = concat!(
    "select ",
    lock_columns!(),
    " from abide.instances \
    where id = any((select $1::bigint[])::bigint[]) \
    order by id for no key update"
);

/// Locks those of these instances that nobody else has locked, and loads what rules decide over.
///
/// Index: `instances_pkey`. Locks: the rows, for no key update. It waits for none of them.
pub const LOCK_FREE: &str = concat!(
    "select ",
    lock_columns!(),
    " from abide.instances \
    where id = any((select $1::bigint[])::bigint[]) \
    order by id for no key update skip locked"
);

/// Which of these instances are reserved and not started, by id; not locked.
///
/// Index: `instances_pkey`.
pub const RESERVED: &str = "\
select id from abide.instances \
where id = any((select $1::bigint[])::bigint[]) and status = 0 order by id";

/// The first rows, scheduled or awaiting, that are due, after so many of them; not locked.
///
/// Index: `instances_parked`, read from its beginning. The limit is hidden in a sub-select: a planner that sees it may
/// prefer to sort.
pub const DUE: &str = "\
select id, partition_key from abide.instances \
where status in (1, 4, 5) and due_at <= $1 \
order by due_at, id limit (select $2::bigint) offset (select $3::bigint)";

/// The earliest moment after that one at which anything is due, or a lease runs out.
///
/// Indexes: `instances_parked` and `instances_leased`, one entry of each.
pub const DUE_AFTER: &str = "\
select least( \
    (select due_at from abide.instances where status in (1, 4, 5) and due_at > $1 \
        order by due_at, id limit 1), \
    (select lease_until from abide.instances where status = 3 and lease_until > $1 \
        order by lease_until, id limit 1))";

/// The first rows whose own lease has run out, after so many of them, with the partitions of their parents and the names of their workers; not
/// locked.
///
/// Indexes: `instances_leased`, read from its beginning, `instances_pkey` and `workers_pkey`.
pub const LAPSED: &str = "\
select l.id, l.partition_key, p.id, p.partition_key, w.name \
from ( \
    select id, partition_key, parent_id, worker, lease_until from abide.instances \
    where status = 3 and lease_until <= $1 \
    order by lease_until, id limit (select $2::bigint) offset (select $3::bigint) \
) l \
left join lateral ( \
    select i.id, i.partition_key from abide.instances i where i.id = l.parent_id offset 0 \
) p on true \
left join lateral (select k.name from abide.workers k where k.id = l.worker offset 0) w on true \
order by l.lease_until, l.id";

/// What the machines of instances have declared of how their steps fail.
///
/// Indexes: `instances_pkey`, `machines_pkey`.
pub const POLICIES: &str = "\
select p.id, p.policy from unnest((select $1::bigint[])) as f(id) \
cross join lateral ( \
    select i.id, m.policy from abide.instances i \
    join abide.machines m on m.machine = i.machine and m.version = i.version \
    where i.id = f.id and m.policy is not null offset 0 \
) p";

/// What a worker holds, above an id, by id; not locked.
///
/// Index: `instances_held`.
pub const HELD: &str = "\
select id, partition_key from abide.instances \
where status = 3 and worker = $1 and id > $2 \
order by id limit (select $3::bigint)";

/// What workers hold, by worker and id; not locked.
///
/// Index: `instances_held`, from its first entry of each worker on.
pub const HELD_BY: &str = "\
select h.* from unnest((select $1::bigint[])) as w(id) \
cross join lateral ( \
    select i.worker, i.id, i.partition_key from abide.instances i \
    where i.status = 3 and i.worker = w.id order by i.id \
) h \
limit (select $2::bigint)";

/// All declarations, by machine and version. Index: `machines_pkey`, or the table, which is small.
pub const MACHINES: &str = "\
select kind, machine, version, first_step, queue, history, contract_id, policy from abide.machines \
order by machine, version";

/// The declarations of the machines named.
///
/// Index: `machines_pkey`.
pub const DECLARED: &str = "\
select kind, machine, version, first_step, queue, history, contract_id, policy from abide.machines \
where machine = any((select $1::text[])::text[])";

/// The children of instances, of whatever barrier, that have not ended, by id; not locked.
///
/// Index: `instances_children`.
pub const OFFSPRING: &str = "\
select c.id, c.partition_key \
from unnest((select $1::bigint[])) as p(id) \
cross join lateral ( \
    select i.id, i.partition_key from abide.instances i \
    where i.parent_id = p.id and i.status < 6 offset 0 \
) c \
order by c.id";

/// The first instances of some lanes above an id that are scheduled and due at no time, by id; not locked.
///
/// Index: `instances_blocked`, read from there in each lane.
pub const BLOCKED: &str = "\
select b.id, b.partition_key \
from unnest((select $1::text[]), (select $2::int[])) as l(machine, version) \
cross join lateral ( \
    select i.id, i.partition_key from abide.instances i \
    where i.status = 1 and i.due_at is null and i.machine = l.machine \
        and i.version = l.version and i.id > $3 \
    order by i.id limit (select $4::bigint) \
) b \
order by b.id limit (select $4::bigint)";

/// The first instances above an id; not locked.
///
/// Index: `instances_pkey`, read from there.
pub const ABOVE: &str = "\
select id, partition_key from abide.instances \
where id > $1 order by id limit (select $2::bigint)";

/// Instances as they would be inserted anew, by id, in the order in which [`copy`] reads them. The rows are locked
/// already.
///
/// Index: `instances_pkey`.
pub const COPIES: &str = "\
select id, kind, machine, version, step, state, status, cause, key, key_scope, unique_key, \
    unique_scope, queue, priority, due_at, partition_key, behind, parent_id, parent_barrier, \
    history, contract_id, run_number, first_id, message_sequence, message_cursor, \
    signals_pending, updates_pending, handed, pending_bytes, created_at \
from abide.instances where id = any((select $1::bigint[])::bigint[]) order by id";

/// Locks rows and loads them.
pub(crate) async fn lock(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<Vec<Row>> {
    // Once only: what was locked by the way may have been written to before it is locked again.
    let ahead = std::mem::take(&mut txn.locked_ahead);
    if !ahead.is_empty() && ids.iter().eq(ahead.iter().map(|row| &row.id)) {
        return Ok(ahead);
    }
    let may_wait = txn.is_before_rows() || ids.iter().all(|id| txn.held.rows.contains(id));
    txn.held.rows.extend(ids);
    if !may_wait {
        let locked = lock_free(txn, ids).await?;
        let found = locked.iter().map(|row| row.id).collect::<Vec<_>>();
        txn.check_locked(ids, found.into_iter()).await?;
        return Ok(locked);
    }
    let ids = vec![Param::list(ids.iter().copied())];
    let rows = if txn.awaited.is_empty() {
        txn.read(LOCK, ids).await?
    } else {
        // Who opens waiters asks next how many there are.
        let types = waiters::types_params(&txn.awaited);
        let (rows, totals) = txn
            .read_both((LOCK, ids), (waiters::TYPE_TOTALS, types))
            .await?;
        txn.totals_ahead = Some(waiters::read_totals(&totals)?);
        rows
    };
    self::rows(&rows)
}

/// The answer of [`LOCK`].
pub(crate) fn rows(rows: &[Answered]) -> Result<Vec<Row>> {
    each(rows, row)
}

/// What is due.
pub(crate) async fn due(
    txn: &mut Transaction<'_>,
    now: Timestamp,
    skip: usize,
    limit: usize,
) -> Result<Vec<Touched>> {
    let params = vec![Param::one(now), Param::one(limit), Param::one(skip)];
    each(&txn.read(DUE, params).await?, touched)
}

/// When anything is due after a moment.
pub(crate) async fn due_after(
    txn: &mut Transaction<'_>,
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    let rows = txn.read(DUE_AFTER, vec![Param::one(now)]).await?;
    let first = each(&rows, |cells| cells.next::<Option<Timestamp>>())?;
    Ok(first.into_iter().flatten().next())
}

/// Which instances are reserved.
pub(crate) async fn reserved(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<InstanceId>> {
    let params = vec![Param::list(ids.iter().copied())];
    each(&txn.read(RESERVED, params).await?, |cells| cells.next())
}

/// Locks what nobody else has locked.
pub(crate) async fn lock_free(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<Vec<Row>> {
    let params = vec![Param::list(ids.iter().copied())];
    let locked = rows(&txn.read(LOCK_FREE, params).await?)?;
    txn.held.rows.extend(locked.iter().map(|row| row.id));
    Ok(locked)
}

/// What has a lease of its own that has run out.
pub(crate) async fn lapsed(
    txn: &mut Transaction<'_>,
    now: Timestamp,
    skip: usize,
    limit: usize,
) -> Result<Vec<Lapsed>> {
    let params = vec![Param::one(now), Param::one(limit), Param::one(skip)];
    let rows = txn.read(LAPSED, params).await?;
    each(&rows, |cells| {
        let touched = touched(cells)?;
        let (parent, partition): (Option<InstanceId>, _) = (cells.next()?, cells.next()?);
        let worker: Option<Name> = cells.next()?;
        Ok(Lapsed {
            touched,
            parent: parent.map(|id| ParentRef { id, partition }),
            worker: worker.unwrap_or_else(|| Name::stored("?")),
        })
    })
}

/// How the steps of the machines of instances fail.
pub(crate) async fn policies(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<(InstanceId, Policy)>> {
    let rows = txn
        .read(POLICIES, vec![Param::list(ids.iter().copied())])
        .await?;
    each(&rows, |cells| Ok((cells.next()?, policy(&cells.next()?)?)))
}

fn policy(stored: &Json) -> Result<Policy> {
    stored
        .to()
        .map_err(|error| Error::Broken(format!("the policy of a machine cannot be read: {error}")))
}

/// What a worker holds.
pub(crate) async fn held(
    txn: &mut Transaction<'_>,
    worker: WorkerId,
    after: InstanceId,
    limit: usize,
) -> Result<Vec<Touched>> {
    let params = vec![Param::one(worker), Param::one(after), Param::one(limit)];
    let rows = txn.read(HELD, params).await?;
    each(&rows, touched)
}

/// What workers hold.
pub(crate) async fn held_by(
    txn: &mut Transaction<'_>,
    workers: &[WorkerId],
    limit: usize,
) -> Result<Vec<(WorkerId, Touched)>> {
    let params = vec![Param::list(workers.iter().copied()), Param::one(limit)];
    let rows = txn.read(HELD_BY, params).await?;
    each(&rows, |cells| Ok((cells.next()?, touched(cells)?)))
}

/// What is declared of machines.
pub(crate) async fn declared(
    txn: &mut Transaction<'_>,
    machines: &[Name],
) -> Result<Vec<Declared>> {
    let machines = Param::list(machines.iter().map(Name::as_str));
    read_declared(&txn.read(DECLARED, vec![machines]).await?)
}

/// The answer of [`DECLARED`] and of [`MACHINES`].
pub(crate) fn read_declared(rows: &[Answered]) -> Result<Vec<Declared>> {
    each(rows, |cells| {
        let declared = Declared {
            kind: cells.next()?,
            machine: cells.next()?,
            version: cells.next()?,
            first_step: cells.next()?,
            queue: cells.next()?,
            history: cells.next()?,
            contract: cells.next()?,
            retry: None,
            step_timeout_ms: None,
        };
        let stored: Option<Json> = cells.next()?;
        Ok(declared.with_policy(stored.as_ref().map(policy).transpose()?))
    })
}

/// The children of instances that have not ended.
pub(crate) async fn offspring(
    txn: &mut Transaction<'_>,
    parents: &[InstanceId],
) -> Result<Vec<Touched>> {
    let params = vec![Param::list(parents.iter().copied())];
    each(&txn.read(OFFSPRING, params).await?, touched)
}

/// The first instances of some lanes above an id that are scheduled and due at no time.
pub(crate) async fn blocked(
    txn: &mut Transaction<'_>,
    lanes: &[Lane],
    after: InstanceId,
    limit: usize,
) -> Result<Vec<Touched>> {
    // One that is named twice would be found twice.
    let lanes: BTreeSet<&Lane> = lanes.iter().collect();
    let mut params = Vec::from(lane_params(lanes));
    params.extend([Param::one(after), Param::one(limit)]);
    each(&txn.read(BLOCKED, params).await?, touched)
}

/// The first instances above an id.
pub(crate) async fn above(
    txn: &mut Transaction<'_>,
    after: InstanceId,
    limit: usize,
) -> Result<Vec<Touched>> {
    let params = vec![Param::one(after), Param::one(limit)];
    each(&txn.read(ABOVE, params).await?, touched)
}

/// Instances as they would be inserted anew.
pub(crate) async fn copies(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<(InstanceId, NewRow)>> {
    let params = vec![Param::list(ids.iter().copied())];
    each(&txn.read(COPIES, params).await?, copy)
}

fn row(cells: &mut Cells<'_>) -> Result<Row> {
    Ok(Row {
        id: cells.next()?,
        kind: cells.next()?,
        status: cells.next()?,
        scopes: Scopes {
            key: cells.next()?,
            unique_key: cells.next()?,
        },
        step: cells.next()?,
        step_seq: cells.next()?,
        attempt: cells.next()?,
        queue: cells.next()?,
        priority: cells.next()?,
        due_at: cells.next()?,
        partition_key: cells.next()?,
        behind: cells.next()?,
        worker: cells.next()?,
        lease: lease(cells)?,
        epoch: cells.next()?,
        settled: cells.next()?,
        cause: cells.next()?,
        timed_out: cells.next()?,
        awaits: awaits(cells)?,
        aside: aside(cells)?,
        inbox: inbox(cells)?,
        contract: cells.next()?,
        run: run(cells)?,
        parent: cells.next()?,
        parent_barrier: cells.next()?,
        family: Family {
            barrier: cells.next()?,
            pending: cells.next()?,
            needed: cells.next()?,
            ended: cells.next()?,
        },
        history: cells.next()?,
        history_seq: cells.next()?,
        last_error: cells.next()?,
        finished_at: cells.next()?,
        attended: attended(cells)?,
    })
}

/// Up to which events operations have missed none; null when none waits for any.
fn attended(cells: &mut Cells<'_>) -> Result<Vec<Attended>> {
    let Some(stored) = cells.next::<Option<&str>>()? else {
        return Ok(Vec::new());
    };
    serde_json::from_str(stored)
        .map_err(|error| Error::Broken(format!("the events that were attended to: {error}")))
}

fn lease(cells: &mut Cells<'_>) -> Result<Option<Lease>> {
    let (until, limit): (Option<Timestamp>, _) = (cells.next()?, cells.next()?);
    Ok(until.map(|until| Lease { until, limit }))
}

fn awaits(cells: &mut Cells<'_>) -> Result<Option<Awaits>> {
    let kind: Option<WaitKind> = cells.next()?;
    let names: Option<Vec<Name>> = cells.next()?;
    let since: Option<Timestamp> = cells.next()?;
    let id = cells.next()?;
    Ok(kind.map(|kind| Awaits {
        kind,
        names: names.unwrap_or_default(),
        since: since.unwrap_or_default(),
        id,
    }))
}

/// Reads `aside_status`, `aside_due_at` and `aside_cause`.
pub(crate) fn aside(cells: &mut Cells<'_>) -> Result<Option<Aside>> {
    let status: Option<Status> = cells.next()?;
    let due_at = cells.next()?;
    let cause: Option<_> = cells.next()?;
    Ok(status.map(|status| Aside {
        status,
        due_at,
        cause: cause.unwrap_or_default(),
    }))
}

/// Reads `message_sequence`, `message_cursor`, `signals_pending`, `updates_pending`, `handed` and `pending_bytes`.
pub(crate) fn inbox(cells: &mut Cells<'_>) -> Result<Inbox> {
    Ok(Inbox {
        sequence: cells.next::<Option<_>>()?.unwrap_or_default(),
        cursor: cells.next::<Option<_>>()?.unwrap_or_default(),
        signals: cells.next()?,
        updates: cells.next()?,
        handed: cells.next::<Option<_>>()?.unwrap_or_default(),
        bytes: cells.next::<Option<i64>>()?.map_or(0, i64::unsigned_abs),
    })
}

/// Reads `run_number` and `first_id`.
pub(crate) fn run(cells: &mut Cells<'_>) -> Result<Run> {
    Ok(Run {
        number: cells.next()?,
        first: cells.next()?,
    })
}

fn copy(cells: &mut Cells<'_>) -> Result<(InstanceId, NewRow)> {
    let id = cells.next()?;
    let row = NewRow {
        kind: cells.next()?,
        machine: cells.next()?,
        version: cells.next()?,
        step: cells.next()?,
        state: cells.next()?,
        status: cells.next()?,
        cause: cells.next()?,
        key: cells.next()?,
        scope: cells.next()?,
        unique_key: cells.next()?,
        unique_scope: cells.next()?,
        queue: cells.next()?,
        priority: cells.next()?,
        due_at: cells.next::<Option<_>>()?.unwrap_or_default(),
        partition_key: cells.next()?,
        behind: cells.next()?,
        parent: cells.next()?,
        parent_barrier: cells.next()?,
        history: cells.next()?,
        contract: cells.next()?,
        run: run(cells)?,
        inbox: inbox(cells)?,
        created_at: cells.next()?,
    };
    Ok((id, row))
}

fn touched(cells: &mut Cells<'_>) -> Result<Touched> {
    Ok(Touched {
        id: cells.next()?,
        partition: cells.next()?,
    })
}
