//! The surroundings of instances: their commands (counted and probed), children, workers and partitions.

use abide_core::model::{Extra, InstanceId};
use abide_core::rules::liveness::Around;
use abide_core::sql;
use abide_kernel::{
    Error, Result, Stamp, Surroundings, read_pending_names, read_siblings, read_unmatched,
};
use tokio_postgres::Row;

use crate::cells::{Cells, each};
use crate::param::Param;
use crate::pool::Pool;
use crate::read::ask;
use crate::txn::Transaction;

/// The surroundings of instances, in one snapshot with their own rows. Locks nothing.
///
/// Indexes: `instances_pkey`; `signals_pending`, from which the arguments are not read; `workers_pkey`;
/// `instances_partition_front`; `instances_children`, the newest first; `waiters_pkey`; `events_of_type`, the newest of
/// each.
pub const AROUND: &str = sql!(
    "\
select i.id, i.status, i.step_seq, i.attempt, i.updated_at, i.extra::text, \
    (select count(*) from abide.signals s \
        where s.instance_id = i.id and s.kind = @signal and s.status in (@pending))::int, \
    (select count(*) from abide.signals s \
        where s.instance_id = i.id and s.kind >= @update and s.status in (@pending))::int, \
    missed.id, newest.id, newest.message_sequence, \
    exists (select 1 from abide.workers w where w.id = i.worker), \
    i.status = @runnable and i.behind and exists ( \
        select 1 from abide.instances p where p.partition_key = i.partition_key and not p.behind \
            and p.status in (@contending)), \
    children.standing, pending.names, unmatched.event \
from unnest((select $1::bigint[])) as f(id) \
cross join lateral ( \
    select i.id, i.status, i.kind, i.step_seq, i.attempt, i.updated_at, i.extra::json as extra, i.worker, i.behind, \
        i.partition_key \
    from abide.instances i where i.id = f.id offset 0 \
) i \
left join lateral ( \
    select m.id from json_array_elements_text(case when i.status = @awaiting_signal then i.extra #> '{awaits,names}' end) as n(name) \
    cross join lateral ( \
        select s.id, s.message_sequence from abide.signals s \
        where s.instance_id = i.id and s.kind = @signal and s.name = n.name and s.status in (@pending) \
            and s.message_sequence > coalesce((i.extra #>> '{inbox,handed}')::bigint, 0) \
        order by s.message_sequence limit 1 \
    ) m \
    order by m.message_sequence limit 1 \
) missed on true \
left join lateral ( \
    select s.id, s.message_sequence from abide.signals s \
    where i.status in (@parked) and s.instance_id = i.id and s.kind >= @update and s.status in (@pending) \
    order by s.message_sequence desc limit 1 \
) newest on true \
left join lateral ( \
    select json_agg(json_build_array(g.status, g.is_due, g.queue, g.machine, g.version, g.number))::text as standing \
    from ( \
        select c.status, c.is_due, c.queue, c.machine, c.version, count(*) as number \
        from ( \
            select b.status, (b.due_at is not null)::int as is_due, \
                case when b.status = @runnable then b.queue end as queue, \
                case when b.status = @runnable then b.machine end as machine, \
                case when b.status = @runnable then b.version end as version \
            from abide.instances b \
            where i.status = @awaiting_children and b.parent_id = i.id \
                and b.parent_barrier >= case when i.kind = @workflow then 0 else coalesce((i.extra #>> '{family,barrier}')::int, 0) end \
            order by b.parent_barrier desc, b.id desc limit 20000 \
        ) c \
        group by c.status, c.is_due, c.queue, c.machine, c.version \
    ) g \
) children on true \
left join lateral ( \
    select json_agg(json_build_array(p.name, p.id))::text as names from ( \
        select s.name, min(s.id) as id from abide.signals s \
        where i.status = @awaiting_signal and s.instance_id = i.id and s.kind = @signal and s.status in (@pending) \
        group by s.name limit 20 \
    ) p \
) pending on true \
left join lateral ( \
    select json_build_array(e.sequence, w.event_type, e.event_id)::text as event \
    from ( \
        select w.event_type, min(w.since) as since from abide.waiters w \
        where i.status = @awaiting_signal and w.instance_id = i.id group by w.event_type limit 20 \
    ) w \
    cross join lateral ( \
        select n.sequence, n.event_id, n.published_at from abide.events n where n.event_type = w.event_type \
        order by n.sequence desc limit 1 \
    ) e \
    where e.published_at > w.since \
    order by e.sequence desc limit 1 \
) unmatched on true"
);

/// Reads the surroundings of locked rows.
pub(crate) async fn around(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<Surroundings>> {
    surroundings(&txn.read(AROUND, params(ids)).await?)
}

/// Reads the surroundings of instances, outside any transaction of the store.
pub(crate) async fn of_pool(pool: &Pool, ids: &[InstanceId]) -> Result<Vec<Surroundings>> {
    surroundings(&ask(pool, AROUND, params(ids)).await?)
}

fn params(ids: &[InstanceId]) -> Vec<Param> {
    vec![Param::list(ids.iter().copied())]
}

fn surroundings(rows: &[Row]) -> Result<Vec<Surroundings>> {
    each(rows, read)
}

fn read(cells: &mut Cells<'_>) -> Result<Surroundings> {
    let id = cells.next()?;
    let (status, step_seq, attempt) = (cells.next()?, cells.next()?, cells.next()?);
    let updated_at = cells.next()?;
    let extra = cells.next::<Option<Extra>>()?.unwrap_or_default();
    let stamp = Stamp {
        status,
        step_seq,
        attempt,
        inbox: extra.inbox,
        children_needed: extra.family.needed,
        updated_at,
    };
    let around = Around {
        signals: cells.next()?,
        updates: cells.next()?,
        missed_signal: cells.next()?,
        newest_update: Option::zip(cells.next()?, cells.next()?),
        has_holder: cells.next()?,
        has_front: cells.next()?,
        children: match cells.next::<Option<&str>>()? {
            Some(text) => read_siblings(text).map_err(Error::Broken)?,
            None => Vec::new(),
        },
        pending_names: match cells.next::<Option<&str>>()? {
            Some(text) => read_pending_names(text).map_err(Error::Broken)?,
            None => Vec::new(),
        },
        unmatched_event: match cells.next::<Option<&str>>()? {
            Some(text) => Some(read_unmatched(text).map_err(Error::Broken)?),
            None => None,
        },
    };
    Ok(Surroundings { id, stamp, around })
}
