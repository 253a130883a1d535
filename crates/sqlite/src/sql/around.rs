//! The surroundings of an instance: its commands (counted and probed), children, worker and partition.

use abide_core::model::{CommandId, InstanceId, Sequence};
use abide_core::rules::liveness::Around;
use abide_core::sql;
use abide_kernel::{Stamp, Surroundings, read_pending_names, read_siblings, read_unmatched};
use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension, Result, Row};

use crate::cells;

/// The surroundings of an instance, in one statement, so that all of it is from one snapshot. Indexes: the primary key
/// for the row itself, its worker and its waits; `abide_signals_pending` for its commands, whose arguments are not
/// read; `abide_partition_front` for the front of its partition; `abide_children` for its children, the newest first;
/// `abide_events_of_type` for the newest event of each type.
pub(crate) const AROUND: &str = sql!("
    select i.id, i.status, i.step_seq, i.attempt, i.updated_at, i.extra,
           (select count(*) from abide_signals s
            where s.pending_in = i.id and s.pending_in is not null and s.kind = @signal),
           (select count(*) from abide_signals s
            where s.pending_in = i.id and s.pending_in is not null and s.kind >= @update),
           iif(i.status = @awaiting_signal,
               (select s.id from abide_signals s
                where s.pending_in = i.id and s.pending_in is not null and s.kind = @signal
                  and s.name in (select value from json_each(i.extra, '$.awaits.names'))
                  and s.sequence > coalesce(i.extra ->> '$.inbox.handed', 0)
                order by s.sequence limit 1), null),
           iif(i.status in (@parked),
               (select json_array(s.id, s.sequence) from abide_signals s
                where s.pending_in = i.id and s.pending_in is not null and s.kind >= @update
                order by s.sequence desc limit 1), null),
           exists (select 1 from abide_workers w where w.id = i.worker),
           i.status = @runnable and i.standing is 1
               and exists (select 1 from abide_instances p where p.partition_key = i.partition_key and p.standing >= 2),
           iif(i.status = @awaiting_children,
               (select json_group_array(json_array(g.status, g.is_due, g.queue, g.machine, g.version, g.number))
                from (select c.status, c.due_at is not null as is_due, iif(c.status = @runnable, c.queue, null) as queue,
                             iif(c.status = @runnable, c.machine, null) as machine, iif(c.status = @runnable, c.version, null) as version,
                             count(*) as number
                      from (select b.status, b.due_at, b.queue, b.machine, b.version from abide_instances b
                            where b.parent_id = i.id and b.parent_id is not null
                              and b.parent_barrier >= iif(i.kind = @workflow, 0, i.extra ->> '$.family.barrier')
                            order by b.parent_barrier desc, b.id desc limit 20000) c
                      group by 1, 2, 3, 4, 5) g), null),
           iif(i.status = @awaiting_signal,
               (select json_group_array(json_array(p.name, p.id))
                from (select s.name, min(s.id) as id from abide_signals s
                      where s.pending_in = i.id and s.pending_in is not null and s.kind = @signal
                      group by s.name limit 20) p), null),
           iif(i.status = @awaiting_signal,
               (select json_array(e.sequence, e.event_type, e.event_id)
                from (select w.event_type, min(w.since) as since from abide_waiters w
                      where w.instance_id = i.id group by w.event_type limit 20) w
                cross join abide_events e on e.sequence = (select n.sequence from abide_events n
                                                     where n.event_type = w.event_type
                                                     order by n.sequence desc limit 1)
                where e.published_at > w.since
                order by e.sequence desc limit 1), null)
    from abide_instances i where i.id = ?1");

/// Reads the surroundings of instances; those that do not exist are left out.
pub(crate) fn around(conn: &Connection, ids: &[InstanceId]) -> Result<Vec<Surroundings>> {
    let mut statement = conn.prepare_cached(AROUND)?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(statement.query_row([id.0], read).optional()?);
    }
    Ok(found)
}

fn read(row: &Row<'_>) -> Result<Surroundings> {
    let extra = cells::extra(row, 5)?.unwrap_or_default();
    let command = |at| -> Result<_> { Ok(row.get::<_, Option<i64>>(at)?.map(CommandId)) };
    let children = row.get_ref(12)?.as_str_or_null()?.map(read_siblings);
    let unreadable =
        |at: usize, error: String| Error::FromSqlConversionFailure(at, Type::Text, error.into());
    let newest = row.get_ref(9)?.as_str_or_null()?.map(|text| {
        let pair = serde_json::from_str::<(i64, i64)>(text);
        let pair = pair.map(|(id, sequence)| (CommandId(id), Sequence(sequence)));
        pair.map_err(|error| error.to_string())
    });
    let names = row.get_ref(13)?.as_str_or_null()?.map(read_pending_names);
    let event = row.get_ref(14)?.as_str_or_null()?.map(read_unmatched);
    Ok(Surroundings {
        id: cells::id(row, 0)?,
        stamp: Stamp {
            status: cells::status(row, 1)?,
            step_seq: row.get(2)?,
            attempt: row.get(3)?,
            inbox: extra.inbox,
            children_needed: extra.family.needed,
            updated_at: cells::time(row, 4)?,
        },
        around: Around {
            signals: row.get(6)?,
            updates: row.get(7)?,
            missed_signal: command(8)?,
            newest_update: newest.transpose().map_err(|error| unreadable(9, error))?,
            has_holder: cells::flag(row, 10)?,
            has_front: cells::flag(row, 11)?,
            children: children
                .transpose()
                .map_err(|error| unreadable(12, error))?
                .unwrap_or_default(),
            pending_names: names
                .transpose()
                .map_err(|error| unreadable(13, error))?
                .unwrap_or_default(),
            unmatched_event: event.transpose().map_err(|error| unreadable(14, error))?,
        },
    })
}
