//! Claims what is runnable, and looks at what would be claimed.

use std::collections::{BTreeSet, HashMap};

use abide_core::model::{
    BarrierNumber, Child, Claim, Claimed, InstanceId, Key, Lane, Name, ParentRef, Priority,
    Timestamp, WaitKind,
};
use abide_kernel::{ClaimRequest, Result};
use tokio_postgres::Row;

use crate::cells::{Cells, each};
use crate::load;
use crate::param::Param;
use crate::txn::{Last, Transaction};

/// The columns that a claim answers, in the order in which [`claimed`] reads them.
macro_rules! claimed_columns {
    () => {
        "i.parent_id, i.id, i.epoch, i.partition_key, i.key, i.kind, i.machine, i.version, i.step, i.step_seq, i.attempt, i.state, i.priority, \
        i.due_at, i.cause, i.timed_out, i.children_pending, i.children_ended, i.aside_status is not null, i.message_sequence, i.message_cursor, i.signals_pending, \
        i.updates_pending, i.handed, i.pending_bytes, i.wait_kind, i.barrier, i.awaits"
    };
}

/// Claims the first rows of one lane of a queue (rules 6.1, 6.2).
///
/// Index: `instances_claimable`, read from the place where the lane begins, and no further than to the last row that is
/// claimed. Locks: just those rows, passing over what others have locked. They are found again by where they lie, which
/// cannot change under the lock, and no plan can make a scan of that. The limit is hidden in a sub-select: a planner
/// that sees it may prefer to fetch and sort the whole lane, when it believes that there is little in it.
pub const CLAIM: &str = concat!(
    "update abide.instances i \
    set status = 3, worker = $1, epoch = greatest(i.epoch, $8) + 1, updated_at = $2, \
        lease_until = $7 \
    where i.ctid = any(array( \
        select ctid from abide.instances \
        where status = 2 and not behind and queue = $3 and machine = $4 and version = $5 \
        order by priority, due_at, id limit (select $6::bigint) for update skip locked)) \
    returning ",
    claimed_columns!()
);

/// Claims the first rows of several lanes of a queue (rules 6.1, 6.2).
///
/// First it looks, without locking, how many of the first rows are in which lane; then it locks so many of each, passing
/// over what others have locked. So no more is locked than is claimed, and what is in lanes that were not named is never
/// stepped over. Index: `instances_claimable`. Locks: the rows, lane by lane, waiting for none.
pub const CLAIM_LANES: &str = concat!(
    "with lanes as materialized ( \
        select * from unnest((select $4::text[]), (select $5::int[])) as l(machine, version) \
    ), shares as materialized ( \
        select machine, version, count(*) as share from ( \
            select l.machine, l.version from lanes l cross join lateral ( \
                select i.priority, i.due_at, i.id from abide.instances i \
                where i.status = 2 and not i.behind and i.queue = $3 and i.machine = l.machine \
                    and i.version = l.version \
                order by i.priority, i.due_at, i.id limit (select $6::bigint) \
            ) r order by r.priority, r.due_at, r.id limit (select $6::bigint) \
        ) firsts group by machine, version \
    ) \
    update abide.instances i \
    set status = 3, worker = $1, epoch = greatest(i.epoch, $8) + 1, updated_at = $2, \
        lease_until = $7 \
    where i.ctid = any(array( \
        select r.place from shares s cross join lateral ( \
            select i.ctid as place from abide.instances i \
            where i.status = 2 and not i.behind and i.queue = $3 and i.machine = s.machine \
                and i.version = s.version \
            order by i.priority, i.due_at, i.id limit s.share for update skip locked \
        ) r)) \
    returning ",
    claimed_columns!()
);

/// The partitions of instances that have one; not locked: a partition never changes.
///
/// Index: `instances_pkey`.
pub const PARTITIONS_OF: &str = "\
select id, partition_key from abide.instances \
where id = any((select $1::bigint[])::bigint[]) and partition_key is not null";

/// The priority of the first row in these lanes of a queue; not locked.
///
/// Index: `instances_claimable`, one entry for each lane.
pub const WAITING: &str = "\
select min(r.priority) \
from unnest((select $2::text[]), (select $3::int[])) as l(machine, version) \
cross join lateral ( \
    select i.priority from abide.instances i \
    where i.status = 2 and not i.behind and i.queue = $1 and i.machine = l.machine \
        and i.version = l.version \
    order by i.priority, i.due_at, i.id limit 1 \
) r";

/// The children of each of these barriers, by id; not locked.
///
/// Index: `instances_children`.
pub const CHILDREN: &str = "\
select b.parent, c.id, c.key, c.machine, c.status, c.state, c.result, c.last_error \
from unnest((select $1::bigint[]), (select $2::int[])) with ordinality as b(parent, barrier, place) \
cross join lateral ( \
    select i.id, i.key, i.machine, i.status, i.state, i.result, i.last_error \
    from abide.instances i where i.parent_id = b.parent and i.parent_barrier = b.barrier \
    order by i.id \
) c \
order by b.place, c.id";

/// Claims, and sorts what was claimed into the order in which it is to run.
pub(crate) async fn claim(
    txn: &mut Transaction<'_>,
    request: &ClaimRequest,
    now: Timestamp,
) -> Result<Vec<Claimed>> {
    let ClaimRequest {
        worker,
        queue,
        lanes,
        limit,
        lease,
    } = request;
    let lease = lease.map(|lease| now + lease);
    // A lane that is named twice must not have its share twice.
    let lanes: BTreeSet<&Lane> = lanes.iter().collect();
    let mut params = vec![
        Param::one(*worker),
        Param::one(now),
        Param::one(queue.as_str()),
    ];
    let mut distinct = lanes.iter();
    let rows = match (distinct.next(), distinct.next()) {
        (None, _) => return Ok(Vec::new()),
        (Some(lane), None) => {
            params.extend([Param::one(lane.machine.as_str()), Param::one(lane.version)]);
            params.extend([Param::one(*limit), Param::one(lease), Param::one(txn.epoch)]);
            txn.read_last(Last::Claim(0), CLAIM, params).await?
        }
        _ => {
            params.extend(lane_params(lanes));
            params.extend([Param::one(*limit), Param::one(lease), Param::one(txn.epoch)]);
            txn.read_last(Last::Claim(0), CLAIM_LANES, params).await?
        }
    };
    let partitions = parents_partitions(txn, &rows).await?;
    let mut claimed = each(&rows, |cells| {
        let parent: Option<InstanceId> = cells.next()?;
        let parent = parent.map(|id| ParentRef {
            id,
            partition: partitions.get(&id).cloned(),
        });
        claimed(cells, parent, request, now)
    })?;
    claimed.sort_unstable_by_key(|one| (one.priority, one.due_at, one.claim.id()));
    Ok(claimed)
}

/// The partitions of the parents of what was claimed. Most have no parent, and to ask for it in the claim itself would
/// make that dearer for all.
async fn parents_partitions(
    txn: &mut Transaction<'_>,
    rows: &[Row],
) -> Result<HashMap<InstanceId, Key>> {
    let parents: Vec<Option<InstanceId>> = each(rows, |cells| cells.next())?;
    let parents: BTreeSet<InstanceId> = parents.into_iter().flatten().collect();
    if parents.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = txn.read(PARTITIONS_OF, vec![Param::list(parents)]).await?;
    Ok(each(&rows, |cells| Ok((cells.next()?, cells.next()?)))?
        .into_iter()
        .collect())
}

/// How urgent the work is that waits.
pub(crate) async fn waiting(
    txn: &mut Transaction<'_>,
    queue: &Name,
    lanes: &[Lane],
) -> Result<Option<Priority>> {
    let rows = match txn.read_ahead(queue).await? {
        Some(rows) => rows,
        None => txn.read(WAITING, waiting_params(queue, lanes)).await?,
    };
    let first: Vec<Option<Priority>> = each(&rows, |cells| cells.next())?;
    Ok(first.into_iter().flatten().next())
}

/// The parameters of [`WAITING`].
pub(crate) fn waiting_params(queue: &Name, lanes: &[Lane]) -> Vec<Param> {
    let mut params = vec![Param::one(queue.as_str())];
    params.extend(lane_params(lanes));
    params
}

/// The children of barriers.
pub(crate) async fn children(
    txn: &mut Transaction<'_>,
    barriers: &[(InstanceId, BarrierNumber)],
) -> Result<Vec<(InstanceId, Child)>> {
    read_children(&txn.read(CHILDREN, children_params(barriers)).await?)
}

/// The parameters of [`CHILDREN`].
pub(crate) fn children_params(barriers: &[(InstanceId, BarrierNumber)]) -> Vec<Param> {
    let parents = Param::list(barriers.iter().map(|(parent, _)| *parent));
    vec![
        parents,
        Param::list(barriers.iter().map(|(_, barrier)| *barrier)),
    ]
}

/// The answer of [`CHILDREN`].
pub(crate) fn read_children(rows: &[Row]) -> Result<Vec<(InstanceId, Child)>> {
    each(rows, |cells| {
        let parent = cells.next()?;
        let child = Child {
            id: cells.next()?,
            key: cells.next()?,
            machine: cells.next()?,
            status: cells.next()?,
            state: cells.next()?,
            result: cells.next()?,
            last_error: cells.next()?,
        };
        Ok((parent, child))
    })
}

/// The machines of lanes, and their versions.
pub(crate) fn lane_params<'l>(lanes: impl IntoIterator<Item = &'l Lane>) -> [Param; 2] {
    let (machines, versions): (Vec<&str>, Vec<u32>) = lanes
        .into_iter()
        .map(|lane| (lane.machine.as_str(), lane.version))
        .unzip();
    [Param::list(machines), Param::list(versions)]
}

fn claimed(
    cells: &mut Cells<'_>,
    parent: Option<ParentRef>,
    request: &ClaimRequest,
    now: Timestamp,
) -> Result<Claimed> {
    let (id, epoch, partition) = (cells.next()?, cells.next()?, cells.next()?);
    let mut claimed = Claimed {
        claim: Claim::granted(id, epoch, request.worker, partition, parent),
        key: cells.next()?,
        kind: cells.next()?,
        machine: cells.next()?,
        version: cells.next()?,
        step: cells.next()?,
        step_seq: cells.next()?,
        attempt: cells.next()?,
        state: cells.next()?,
        queue: request.queue.clone(),
        priority: cells.next()?,
        due_at: cells.next::<Option<Timestamp>>()?.unwrap_or(now),
        cause: cells.next()?,
        timed_out: cells.next()?,
        joins: None,
        children_pending: cells.next()?,
        children_ended: cells.next()?,
        children: Vec::new(),
        awaited: Vec::new(),
        updates: Vec::new(),
        aside: cells.next()?,
        inbox: load::inbox(cells)?,
        awaits: Vec::new(),
    };
    let wait: Option<WaitKind> = cells.next()?;
    let barrier: BarrierNumber = cells.next()?;
    match wait {
        Some(WaitKind::Children) => claimed.joins = Some(barrier),
        Some(WaitKind::Signal | WaitKind::Event) => {
            claimed.awaits = cells.next::<Option<_>>()?.unwrap_or_default();
        }
        _ => {}
    }
    Ok(claimed)
}
