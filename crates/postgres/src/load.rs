//! Loads rows: instances under lock, for the rules, and the declarations of machines.

use std::collections::BTreeSet;

use abide_core::model::{
    Declared, InstanceId, Lane, Name, NewRow, ParentRef, Policies, Row, Timestamp, WorkerId,
};
use abide_core::sql;
use abide_kernel::{Lapsed, Result, Touched};
use tokio_postgres::Row as Answered;

use crate::arrays::{Forms, arrays};
use crate::cells::{Cells, each};
use crate::claim::lane_params;
use crate::instances::{INSTANCE_COLUMNS, LOCK_COLUMNS, instance, row};
use crate::param::Param;
use crate::txn::Transaction;
use crate::waiters;

/// Condition: no build that could not run the row's step is the given one. A row without such builds is recognized
/// without parsing its JSON.
macro_rules! is_fit {
    ($row:literal, $build:literal) => {
        concat!(
            "(",
            $row,
            "extra is null or strpos(",
            $row,
            "extra, '\"unfit\":') = 0 or not (",
            $row,
            "extra::jsonb -> 'unfit') ? ",
            $build,
            ")"
        )
    };
}
pub(crate) use is_fit;

/// Locks instances in the order of their ids, and loads the columns that rules use; ids that do not exist are left out.
///
/// Index: `instances_pkey`. Locks: the rows, for no key update, in the order of their ids. The array is hidden in a
/// sub-select: a planner that sees its length reads the whole table if the table is small.
pub const LOCK: Forms = Forms {
    many: sql! {
        "select ", LOCK_COLUMNS, " from abide.instances \
        where id = any((select $1::bigint[])::bigint[]) \
        order by id for no key update"
    },
    one: sql! {
        "select ", LOCK_COLUMNS, " from abide.instances where id = $1::bigint for no key update"
    },
};

/// Locks those of the instances that no other transaction has locked, and loads the columns that rules use.
///
/// Index: `instances_pkey`. Locks: the rows, for no key update, without waiting.
pub const LOCK_FREE: &str = sql! {
    "select ", LOCK_COLUMNS, " from abide.instances \
    where id = any((select $1::bigint[])::bigint[]) \
    order by id for no key update skip locked"
};

/// Those of the instances that are reserved and not started, by id. Locks nothing.
///
/// Index: `instances_pkey`.
pub const RESERVED: &str = sql!(
    "\
select id from abide.instances \
where id = any((select $1::bigint[])::bigint[]) and status = @reserved order by id"
);

/// The first due rows that are scheduled or awaiting, from an offset on. Locks nothing.
///
/// Index: `instances_parked`, read from its beginning. The limit is hidden in a sub-select: a planner that sees it may
/// prefer to sort.
pub const DUE: &str = sql!(
    "\
select id, partition_key from abide.instances \
where status in (@parked) and due_at <= $1 \
order by due_at, id limit (select $2::bigint) offset (select $3::bigint)"
);

/// The earliest time after a given time at which a row is due or a lease expires.
///
/// Indexes: `instances_parked` and `instances_leased`, one entry of each.
pub const DUE_AFTER: &str = sql!(
    "\
select least( \
    (select due_at from abide.instances where status in (@parked) and due_at > $1 \
        order by due_at, id limit 1), \
    (select lease_until from abide.instances where status = @executing and lease_until > $1 \
        order by lease_until, id limit 1))"
);

/// The first rows whose own lease has expired, from an offset on, with the partitions of their parents and the names of
/// their workers. Locks nothing.
///
/// Indexes: `instances_leased`, read from its beginning, `instances_pkey` and `workers_pkey`.
pub const LAPSED: &str = sql!(
    "\
select l.id, l.partition_key, p.id, p.partition_key, w.name \
from ( \
    select id, partition_key, parent_id, worker, lease_until from abide.instances \
    where status = @executing and lease_until <= $1 \
    order by lease_until, id limit (select $2::bigint) offset (select $3::bigint) \
) l \
left join lateral ( \
    select i.id, i.partition_key from abide.instances i where i.id = l.parent_id offset 0 \
) p on true \
left join lateral (select k.name from abide.workers k where k.id = l.worker offset 0) w on true \
order by l.lease_until, l.id"
);

/// The failure policies that instances were started with, and those that their machines declare; instances with neither
/// are left out.
///
/// Indexes: `instances_pkey`, `machines_pkey`.
pub const POLICIES: &str = "\
select p.id, p.own, p.declared from unnest((select $1::bigint[])) as f(id) \
cross join lateral ( \
    select i.id, i.policy as own, m.policy as declared from abide.instances i \
    left join abide.machines m on m.machine = i.machine and m.version = i.version \
    where i.id = f.id and coalesce(i.policy, m.policy) is not null offset 0 \
) p";

/// The instances that a worker holds, above an id, by id, in whose step workers have died at least that often. Locks
/// nothing.
///
/// Index: `instances_held`.
pub const HELD: &str = sql!(
    "\
select id, partition_key from abide.instances \
where status = @executing and worker = $1 and id > $2 \
    and ($3::int = 0 or (extra::json ->> 'deaths')::int >= $3) \
order by id limit (select $4::bigint)"
);

/// The instances that workers hold, by worker and id. Locks nothing.
///
/// Index: `instances_held`, from the first entry of each worker on.
pub const HELD_BY: &str = sql!(
    "\
select h.* from unnest((select $1::bigint[])) as w(id) \
cross join lateral ( \
    select i.worker, i.id, i.partition_key from abide.instances i \
    where i.status = @executing and i.worker = w.id order by i.id \
) h \
limit (select $2::bigint)"
);

/// The declarations above a machine and a version, in that order. Index: `machines_pkey`, or the table, which is small.
pub const MACHINES: &str = "\
select kind, machine, version, first_step, queue, history, contract_id, policy from abide.machines \
where (machine, version) > ($1, $2) order by machine, version limit (select $3::bigint)";

/// The declarations of the given machines.
///
/// Index: `machines_pkey`.
pub const DECLARED: &str = "\
select kind, machine, version, first_step, queue, history, contract_id, policy from abide.machines \
where machine = any((select $1::text[])::text[])";

/// The children of instances, of all barriers, that have not ended, by id. Locks nothing.
///
/// Index: `instances_children`.
pub const LIVE_CHILDREN: &str = sql!(
    "\
select c.id, c.partition_key \
from unnest((select $1::bigint[])) as p(id) \
cross join lateral ( \
    select i.id, i.partition_key from abide.instances i \
    where i.parent_id = p.id and i.status < @first_ended offset 0 \
) c \
order by c.id"
);

/// The first instances of given lanes above an id that are scheduled without a due time, by id, except those that are
/// unfit for a build. Locks nothing.
///
/// Index: `instances_blocked`, read from there in each lane.
pub const BLOCKED: &str = sql! {
    "\
select b.id, b.partition_key \
from ", arrays!(1 machine text, 2 version int), " l \
cross join lateral ( \
    select i.id, i.partition_key from abide.instances i \
    where i.status = @scheduled and i.due_at is null and i.machine = l.machine \
        and i.version = l.version and i.id > $3 \
        and ($5::text is null or ", is_fit!("i.", "$5"), ") \
    order by i.id limit (select $4::bigint) \
) b \
order by b.id limit (select $4::bigint)"
};

/// The first instances above an id. Locks nothing.
///
/// Index: `instances_pkey`, read from there.
pub const ABOVE: &str = "\
select id, partition_key from abide.instances \
where id > $1 order by id limit (select $2::bigint)";

/// Instances by id. The rows are locked already.
///
/// Index: `instances_pkey`.
pub const COPIES: &str = sql! {
    "select ", INSTANCE_COLUMNS, " from abide.instances where id = any((select $1::bigint[])::bigint[]) order by id"
};

/// Locks rows and loads them.
pub(crate) async fn lock(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<Vec<Row>> {
    // Only once: a row that was locked ahead may be written before it is locked again.
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
    let (lock, ids) = LOCK.of(ids.len(), vec![Param::list(ids.iter().copied())]);
    let rows = if txn.awaited.is_empty() {
        txn.read(lock, ids).await?
    } else {
        // A transaction that opens waiters reads their totals next.
        let types = waiters::types_params(&txn.awaited);
        let (rows, totals) = txn
            .read_both((lock, ids), (waiters::TYPE_TOTALS, types))
            .await?;
        txn.totals_ahead = Some(waiters::read_totals(&totals)?);
        rows
    };
    self::rows(&rows)
}

/// Reads the rows of [`LOCK`].
pub(crate) fn rows(rows: &[Answered]) -> Result<Vec<Row>> {
    each(rows, row)
}

/// Finds due rows.
pub(crate) async fn due(
    txn: &mut Transaction<'_>,
    now: Timestamp,
    skip: usize,
    limit: usize,
) -> Result<Vec<Touched>> {
    let params = vec![Param::one(now), Param::one(limit), Param::one(skip)];
    each(&txn.read(DUE, params).await?, touched)
}

/// Finds the next due time after a given time.
pub(crate) async fn due_after(
    txn: &mut Transaction<'_>,
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    let rows = txn.read(DUE_AFTER, vec![Param::one(now)]).await?;
    let first = each(&rows, |cells| cells.next::<Option<Timestamp>>())?;
    Ok(first.into_iter().flatten().next())
}

/// Finds the reserved instances.
pub(crate) async fn reserved(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<InstanceId>> {
    let params = vec![Param::list(ids.iter().copied())];
    each(&txn.read(RESERVED, params).await?, |cells| cells.next())
}

/// Locks the rows that no other transaction has locked.
pub(crate) async fn lock_free(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<Vec<Row>> {
    let params = vec![Param::list(ids.iter().copied())];
    let locked = rows(&txn.read(LOCK_FREE, params).await?)?;
    txn.held.rows.extend(locked.iter().map(|row| row.id));
    Ok(locked)
}

/// Finds rows whose own lease has expired.
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

/// Reads the failure policies of instances.
pub(crate) async fn policies(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<(InstanceId, Policies)>> {
    let rows = txn
        .read(POLICIES, vec![Param::list(ids.iter().copied())])
        .await?;
    each(&rows, |cells| {
        let id = cells.next()?;
        let (own, declared) = (cells.next()?, cells.next()?);
        Ok((id, Policies { own, declared }))
    })
}

/// Finds the instances that a worker holds.
pub(crate) async fn held(
    txn: &mut Transaction<'_>,
    worker: WorkerId,
    after: InstanceId,
    deaths: u32,
    limit: usize,
) -> Result<Vec<Touched>> {
    let params = vec![
        Param::one(worker),
        Param::one(after),
        Param::one(deaths),
        Param::one(limit),
    ];
    let rows = txn.read(HELD, params).await?;
    each(&rows, touched)
}

/// Finds the instances that workers hold.
pub(crate) async fn held_by(
    txn: &mut Transaction<'_>,
    workers: &[WorkerId],
    limit: usize,
) -> Result<Vec<(WorkerId, Touched)>> {
    let params = vec![Param::list(workers.iter().copied()), Param::one(limit)];
    let rows = txn.read(HELD_BY, params).await?;
    each(&rows, |cells| Ok((cells.next()?, touched(cells)?)))
}

/// Reads the declarations of machines.
pub(crate) async fn declared(
    txn: &mut Transaction<'_>,
    machines: &[Name],
) -> Result<Vec<Declared>> {
    let machines = Param::list(machines.iter().map(Name::as_str));
    read_declared(&txn.read(DECLARED, vec![machines]).await?)
}

/// Reads the rows of [`DECLARED`] and of [`MACHINES`].
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
            max_deaths: None,
        };
        Ok(declared.with_policy(cells.next()?))
    })
}

/// Finds the children of instances that have not ended.
pub(crate) async fn live_children(
    txn: &mut Transaction<'_>,
    parents: &[InstanceId],
) -> Result<Vec<Touched>> {
    let params = vec![Param::list(parents.iter().copied())];
    each(&txn.read(LIVE_CHILDREN, params).await?, touched)
}

/// Finds the first instances of given lanes above an id that are scheduled without a due time, except those that are
/// unfit for a build.
pub(crate) async fn blocked(
    txn: &mut Transaction<'_>,
    lanes: &[Lane],
    unless: Option<&Name>,
    after: InstanceId,
    limit: usize,
) -> Result<Vec<Touched>> {
    // A lane that is given twice would be found twice.
    let lanes: BTreeSet<&Lane> = lanes.iter().collect();
    let mut params = Vec::from(lane_params(lanes));
    let unless = unless.map(Name::as_str);
    params.extend([Param::one(after), Param::one(limit), Param::one(unless)]);
    each(&txn.read(BLOCKED, params).await?, touched)
}

/// Finds the first instances above an id.
pub(crate) async fn above(
    txn: &mut Transaction<'_>,
    after: InstanceId,
    limit: usize,
) -> Result<Vec<Touched>> {
    let params = vec![Param::one(after), Param::one(limit)];
    each(&txn.read(ABOVE, params).await?, touched)
}

/// Reads instances as new rows to insert.
pub(crate) async fn copies(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<(InstanceId, NewRow)>> {
    let params = vec![Param::list(ids.iter().copied())];
    each(&txn.read(COPIES, params).await?, |cells| {
        let instance = instance(cells)?;
        Ok((instance.id, instance.into()))
    })
}

fn touched(cells: &mut Cells<'_>) -> Result<Touched> {
    Ok(Touched {
        id: cells.next()?,
        partition: cells.next()?,
    })
}
