//! Claims runnable instances, and reads what a claim would find.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use abide_core::model::{
    BarrierNumber, Child, Claim, Claimed, Extra, Inbox, InstanceId, Key, Lane, Name, ParentRef,
    Priority, Timestamp,
};
use abide_core::sql;
use abide_kernel::{ClaimRequest, INBOX_WHOLE_BYTES, Result};
use tokio_postgres::Row;

use crate::arrays::arrays;
use crate::cells::{Cells, each};
use crate::load;
use crate::param::Param;
use crate::txn::{Last, Transaction};

/// The columns that a claim returns after the parent, in the order in which [`claimed`] reads them.
macro_rules! claimed_columns {
    () => {
        "i.id, i.epoch, i.partition_key, i.key, i.kind, i.machine, i.version, i.step, i.step_seq, i.attempt, i.state, \
        i.priority, i.due_at, i.cause, i.policy, i.extra"
    };
}

/// Condition: the row is not marked unfit for the build of the claiming worker, `$1` (rule 12.4). Almost no row is
/// unfit for any build, and the worker is looked up only for a row that is.
macro_rules! fits {
    ($row:literal) => {
        load::is_fit!(
            $row,
            "(select coalesce(w.build, w.name) from abide.workers w where w.id = $1)"
        )
    };
}

/// Claims the first rows of one lane of a queue (rules 6.1, 6.2).
///
/// Index: `instances_claimable`, read from the start of the lane, up to the last row that is claimed. Locks: only those
/// rows; rows that others have locked are skipped. The update finds them again by their physical location, which cannot
/// change under the lock, so no plan can turn that into a scan. The limit is hidden in a sub-select: a planner that
/// sees it may fetch and sort the whole lane if it estimates that the lane has few rows.
pub const CLAIM: &str = sql! {
    "update abide.instances i \
    set status = @executing, worker = $1, epoch = greatest(i.epoch, $8) + 1, updated_at = $2, \
        lease_until = $7 \
    where i.ctid = any(array( \
        select ctid from abide.instances \
        where status = @runnable and not behind and queue = $3 and machine = $4 and version = $5 and ", fits!(""),
    " order by priority, due_at, id limit (select $6::bigint) for update skip locked)) \
    returning i.parent_id, ", claimed_columns!()
};

/// Claims the first rows of several lanes of a queue (rules 6.1, 6.2).
///
/// It first counts, without locks, how many of the first rows are in each lane. Then it locks that many rows of each
/// lane and skips rows that others have locked. So it locks no more rows than it claims, and it never steps over rows
/// of other lanes. Index: `instances_claimable`. Locks: the rows, lane by lane, without waiting.
pub const CLAIM_LANES: &str = sql! {
    "with lanes as materialized ( \
        select * from ", arrays!(4 machine text, 5 version int), " l \
    ), shares as materialized ( \
        select machine, version, count(*) as share from ( \
            select l.machine, l.version from lanes l cross join lateral ( \
                select i.priority, i.due_at, i.id from abide.instances i \
                where i.status = @runnable and not i.behind and i.queue = $3 and i.machine = l.machine \
                    and i.version = l.version and ", fits!("i."),
    " order by i.priority, i.due_at, i.id limit (select $6::bigint) \
            ) r order by r.priority, r.due_at, r.id limit (select $6::bigint) \
        ) firsts group by machine, version \
    ) \
    update abide.instances i \
    set status = @executing, worker = $1, epoch = greatest(i.epoch, $8) + 1, updated_at = $2, \
        lease_until = $7 \
    where i.ctid = any(array( \
        select r.place from shares s cross join lateral ( \
            select i.ctid as place from abide.instances i \
            where i.status = @runnable and not i.behind and i.queue = $3 and i.machine = s.machine \
                and i.version = s.version and ", fits!("i."),
    " order by i.priority, i.due_at, i.id limit s.share for update skip locked \
        ) r)) \
    returning i.parent_id, ", claimed_columns!()
};

/// The bytes that a claimed row adds to an HTTP response, counted as in `abide_kernel::claimed_bytes`; `$10` is the
/// size of the largest inbox that is sent completely. The length of a text is known without reading it.
macro_rules! claimed_bytes {
    () => {
        "octet_length(i.state) + case when i.extra is null then 0 else ( \
            select case when x.pending <= $10::bigint or x.updates > 0 or x.wait in ('signal', 'event') \
                then coalesce(x.pending, 0) else 0 end \
            from (select (i.extra::json #>> '{inbox,bytes}')::bigint as pending, \
                (i.extra::json #>> '{inbox,updates}')::bigint as updates, \
                i.extra::json #>> '{awaits,kind}' as wait) x) end"
    };
}

/// Claims the first rows of lanes of a queue, up to `$9` bytes in total, but at least one (rules 6.1, 6.2, 16.4).
///
/// It first finds, without locks, how many of the first rows fit, and in which lanes they are. Then it locks that many
/// rows of each lane and skips rows that others have locked. The locked rows may be larger than the rows it has seen,
/// so it counts again. It reads only the states of the rows that it claims. It also returns whether rows were left out
/// because of their size. Index: `instances_claimable`. Locks: the rows, lane by lane, without waiting.
pub const CLAIM_WITHIN: &str = sql! {
    "with lanes as materialized ( \
        select * from ", arrays!(4 machine text, 5 version int), " l \
    ), firsts as materialized ( \
        select l.machine, l.version, r.priority, r.due_at, r.id, r.bytes \
        from lanes l cross join lateral ( \
            select i.priority, i.due_at, i.id, ", claimed_bytes!(), " as bytes from abide.instances i \
            where i.status = @runnable and not i.behind and i.queue = $3 and i.machine = l.machine \
                and i.version = l.version and ", fits!("i."),
    " order by i.priority, i.due_at, i.id limit (select $6::bigint) \
        ) r order by r.priority, r.due_at, r.id limit (select $6::bigint) \
    ), shares as materialized ( \
        select machine, version, count(*) as share from ( \
            select machine, version, sum(bytes) over first as total, row_number() over first as place \
            from firsts window first as (order by priority, due_at, id rows unbounded preceding) \
        ) counted where total <= $9::bigint or place = 1 group by machine, version \
    ), locked as materialized ( \
        select r.spot, r.priority, r.due_at, r.id, r.bytes from shares s cross join lateral ( \
            select i.ctid as spot, i.priority, i.due_at, i.id, ", claimed_bytes!(),
    " as bytes from abide.instances i \
            where i.status = @runnable and not i.behind and i.queue = $3 and i.machine = s.machine \
                and i.version = s.version and ", fits!("i."),
    " order by i.priority, i.due_at, i.id limit s.share for update skip locked \
        ) r \
    ), taken as materialized ( \
        select spot from ( \
            select spot, sum(bytes) over first as total, row_number() over first as place \
            from locked window first as (order by priority, due_at, id rows unbounded preceding) \
        ) counted where total <= $9::bigint or place = 1 \
    ) \
    update abide.instances i \
    set status = @executing, worker = $1, epoch = greatest(i.epoch, $8) + 1, updated_at = $2, \
        lease_until = $7 \
    where i.ctid = any(array(select spot from taken)) \
    returning i.parent_id, (select count(*) from firsts) > (select sum(share) from shares) \
        or (select count(*) from locked) > (select count(*) from taken), ", claimed_columns!()
};

/// The partitions of the given instances, for those that have one. Locks nothing: the partition of an instance never
/// changes.
///
/// Index: `instances_pkey`.
pub const PARTITIONS_OF: &str = "\
select id, partition_key from abide.instances \
where id = any((select $1::bigint[])::bigint[]) and partition_key is not null";

/// The priority of the first row in the given lanes of a queue. Locks nothing.
///
/// Index: `instances_claimable`, one entry per lane.
pub const WAITING: &str = sql! {
    "\
select min(r.priority) \
from ", arrays!(2 machine text, 3 version int), " l \
cross join lateral ( \
    select i.priority from abide.instances i \
    where i.status = @runnable and not i.behind and i.queue = $1 and i.machine = l.machine \
        and i.version = l.version \
    order by i.priority, i.due_at, i.id limit 1 \
) r"
};

/// The children of the given barriers, by id. Locks nothing.
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

/// The total bytes of the children of each given barrier. Locks nothing. The length of a text is known without reading
/// it.
///
/// Index: `instances_children`.
pub const CHILDREN_BYTES: &str = sql! {
    "\
select b.parent, c.bytes \
from ", arrays!(1 parent bigint, 2 barrier int), " b \
cross join lateral ( \
    select coalesce(sum(octet_length(i.state) + coalesce(octet_length(i.result), 0) \
        + coalesce(octet_length(i.last_error), 0)), 0)::bigint as bytes \
    from abide.instances i where i.parent_id = b.parent and i.parent_barrier = b.barrier \
) c"
};

/// Claims rows, and sorts them into the order in which they run.
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
    // A lane that is given twice must not be counted twice.
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
    in_order(&rows, &partitions, request, now, |_| Ok(()))
}

/// Claims rows up to a number of bytes, but at least one; also returns whether rows were left out because of their
/// size.
pub(crate) async fn claim_within(
    txn: &mut Transaction<'_>,
    request: &ClaimRequest,
    most: usize,
    now: Timestamp,
) -> Result<(Vec<Claimed>, bool)> {
    let lanes: BTreeSet<&Lane> = request.lanes.iter().collect();
    let mut params = vec![
        Param::one(request.worker),
        Param::one(now),
        Param::one(request.queue.as_str()),
    ];
    params.extend(lane_params(lanes));
    params.extend([
        Param::one(request.limit),
        Param::one(request.lease.map(|lease| now + lease)),
        Param::one(txn.epoch),
        Param::one(most),
        Param::one(INBOX_WHOLE_BYTES),
    ]);
    let rows = txn.read(CLAIM_WITHIN, params).await?;
    let partitions = parents_partitions(txn, &rows).await?;
    let is_more = Cell::new(false);
    let claimed = in_order(&rows, &partitions, request, now, |cells| {
        is_more.set(cells.next()?);
        Ok(())
    })?;
    Ok((claimed, is_more.get()))
}

/// Reads the claimed rows, and sorts them into the order in which they run; `between` reads the columns between the
/// parent and the other columns.
fn in_order(
    rows: &[Row],
    partitions: &HashMap<InstanceId, Key>,
    request: &ClaimRequest,
    now: Timestamp,
    between: impl Fn(&mut Cells<'_>) -> Result<()>,
) -> Result<Vec<Claimed>> {
    let mut claimed = each(rows, |cells| {
        let parent: Option<InstanceId> = cells.next()?;
        between(cells)?;
        let parent = parent.map(|id| ParentRef {
            id,
            partition: partitions.get(&id).cloned(),
        });
        claimed(cells, parent, request, now)
    })?;
    claimed.sort_unstable_by_key(|one| (one.priority, one.due_at, one.claim.id()));
    Ok(claimed)
}

/// The partitions of the parents of the claimed rows. Most rows have no parent, and reading the partition in the claim
/// statement would make every claim more expensive.
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

/// The priority of the first waiting row of a queue.
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

/// Reads the children of barriers.
pub(crate) async fn children(
    txn: &mut Transaction<'_>,
    barriers: &[(InstanceId, BarrierNumber)],
) -> Result<Vec<(InstanceId, Child)>> {
    read_children(&txn.read(CHILDREN, children_params(barriers)).await?)
}

/// Reads the total bytes of the children of barriers.
pub(crate) async fn children_bytes(
    txn: &mut Transaction<'_>,
    barriers: &[(InstanceId, BarrierNumber)],
) -> Result<Vec<(InstanceId, u64)>> {
    let rows = txn.read(CHILDREN_BYTES, children_params(barriers)).await?;
    each(&rows, |cells| {
        let (parent, bytes): (InstanceId, i64) = (cells.next()?, cells.next()?);
        Ok((parent, u64::try_from(bytes).unwrap_or_default()))
    })
}

/// The parameters of [`CHILDREN`].
pub(crate) fn children_params(barriers: &[(InstanceId, BarrierNumber)]) -> Vec<Param> {
    let parents = Param::list(barriers.iter().map(|(parent, _)| *parent));
    vec![
        parents,
        Param::list(barriers.iter().map(|(_, barrier)| *barrier)),
    ]
}

/// Reads the rows of [`CHILDREN`].
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

/// The parameters for lanes: machines and versions.
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
        deaths: 0,
        state: cells.next()?,
        queue: request.queue.clone(),
        priority: cells.next()?,
        due_at: cells.next::<Option<Timestamp>>()?.unwrap_or(now),
        cause: cells.next()?,
        timed_out: false,
        joins: None,
        children_pending: 0,
        children_ended: 0,
        children: Vec::new(),
        awaited: Vec::new(),
        updates: Vec::new(),
        aside: false,
        inbox: Inbox::default(),
        awaits: Vec::new(),
        policy: cells.next()?,
    };
    let Some(mut extra) = cells.next::<Option<Extra>>()? else {
        return Ok(claimed);
    };
    claimed.deaths = extra.deaths;
    claimed.timed_out = extra.timed_out;
    claimed.children_pending = extra.family.pending;
    claimed.children_ended = extra.family.ended;
    claimed.aside = extra.aside().is_some();
    claimed.inbox = extra.inbox;
    if let Some(awaits) = extra.awaits() {
        claimed.joins = awaits.joins(extra.family.barrier);
        if awaits.is_for_signals() {
            claimed.awaits = awaits.names;
        }
    }
    Ok(claimed)
}
