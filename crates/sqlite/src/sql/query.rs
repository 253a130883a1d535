//! The queries of readers: instances, histories, endings, due times, depths.

use std::collections::BTreeMap;

use abide_core::model::{HistoryRow, Instance, InstanceId, Name, Status, Timestamp, WaitKind};
use abide_core::sql;
use abide_kernel::{Ending, Endings, Filter, HISTORY_BYTES, QueueDepth, Target, gather, look_up};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, params, params_from_iter};

use super::instances::{INSTANCE_COLUMNS, Reader};
use super::runs::OF_KEY;
use super::{Conditions, limited};
use crate::cells;
use crate::columns::BLOCKED;

const INSTANCE: &str = sql!("select ", INSTANCE_COLUMNS, " from abide_instances");

/// Reads one instance, by primary key or by the key that refers to it.
pub(crate) fn get(conn: &Connection, target: &Target) -> Result<Option<Instance>> {
    let found = match target {
        Target::Id(id) => conn
            .prepare_cached(&by_id())?
            .query_row([id.0], |row| Reader::default().instance(row)),
        Target::Key(key) => conn
            .prepare_cached(&by_key())?
            .query_row([key.as_str()], |row| Reader::default().instance(row)),
    };
    found.optional()
}

pub(crate) fn by_id() -> String {
    format!("{INSTANCE} where id = ?1")
}

pub(crate) fn by_key() -> String {
    format!("{INSTANCE} where id = {OF_KEY}")
}

/// Instances that match all given conditions, newest first, below `before`. Indexes: `abide_children` for children,
/// `abide_chain` for the runs of a chain; otherwise the table is read from its end until the page is full.
pub(crate) fn list(
    conn: &Connection,
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Instance>> {
    let (sql, values) = listing(filter, before, limit);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut reader = Reader::default();
    let rows = statement.query_map(params_from_iter(values), |row| reader.instance(row))?;
    gather(rows, bytes)
}

/// The runs of a chain: its first run, and the others through the index `abide_chain`.
const OF_CHAIN: &str = "
    id in (select id from abide_instances indexed by abide_chain where first_id = ? and first_id is not null
           union all select ?)
    and coalesce(first_id, id) = ?";

/// Condition: the row waits, also while it runs only for updates. A step that is to be retried still has the wait that
/// it was woken from; that does not count.
macro_rules! waits {
    () => {
        "(coalesce(extra ->> '$.aside.status', status) in (@awaiting)
          or (coalesce(extra ->> '$.aside.status', status) = @scheduled and extra ->> '$.awaits.kind' = 'timer'))"
    };
}

/// Builds the statement of a list, and its values.
pub(crate) fn listing(
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    if let Some(before) = before {
        conditions.add("id < ?", before.0);
    }
    if let Some(status) = filter.status {
        conditions.add("status = ?", status.code());
    }
    if let Some(machine) = &filter.machine {
        conditions.add("machine = ?", machine.as_str().to_owned());
    }
    if let Some(queue) = &filter.queue {
        conditions.add("queue = ?", queue.as_str().to_owned());
    }
    if let Some(prefix) = &filter.key_prefix {
        // Not `like` or `glob`, because some characters of a key are wildcards there.
        conditions.add("instr(key, ?) = 1", prefix.clone());
    }
    if let Some(parent) = filter.parent {
        conditions.add("parent_id = ?", parent.0);
    }
    if let Some(chain) = filter.chain {
        conditions.add(OF_CHAIN, chain.0);
    }
    if let Some(kind) = filter.wait_kind {
        conditions.add(
            sql!(waits!(), " and extra ->> '$.awaits.kind' = ?"),
            kind.name().to_owned(),
        );
    }
    if let Some(name) = &filter.waiting_for {
        conditions.add(
            sql!(waits!(), " and (exists (select 1 from json_each(extra, '$.awaits.names') where value in (?, 'event:' || ?)) or exists (select 1 \
                from json_each(extra, '$.awaits.waits') where value ->> 'kind' = 'condition' and value ->> 'name' = ?))"),
            name.as_str().to_owned(),
        );
    }
    conditions.newest_first(INSTANCE, limit)
}

/// Index: the primary key, read from the row with the event after `?2` on. A row has the number of its first event, so
/// that is the last row whose number is at most one more, unless that row ends before: numbers are missing where
/// attempts were folded into a later row. If the history ends before that event, there are no rows.
pub(crate) const HISTORY: &str = "
    select seq, at, events from abide_history
    where instance_id = ?1
      and seq >= coalesce((
        select case when seq > ?2 or seq + json_array_length(events) > ?2 + 1 then seq else ?2 + 1 end
        from abide_history where instance_id = ?1 and seq <= ?2 + 1 order by seq desc limit 1), 0)
      and ?2 < (select history_seq from abide_instances where id = ?1)
    order by seq limit ?3";

/// The rows of an instance's history whose last event is after `after`, oldest first.
pub(crate) fn history(
    conn: &Connection,
    id: InstanceId,
    after: u32,
    limit: usize,
) -> Result<Vec<HistoryRow>> {
    let mut statement = conn.prepare_cached(HISTORY)?;
    let rows = statement.query_map(params![id.0, after, limited(limit)], |row| {
        Ok(HistoryRow {
            instance: id,
            seq: row.get(0)?,
            at: cells::time(row, 1)?,
            events: row.get(2)?,
        })
    })?;
    gather(rows, HISTORY_BYTES)
}

/// Index: the primary key.
pub(crate) const ENDING: &str =
    "select status, result, last_error from abide_instances where id = ?1";

/// Reads how the first of the instances ended, as many as fit into a number of bytes.
pub(crate) fn endings(conn: &Connection, ids: &[InstanceId], bytes: usize) -> Result<Endings> {
    let mut statement = conn.prepare_cached(ENDING)?;
    let (mut ended, mut missing) = (Vec::new(), Vec::new());
    let read = |id: InstanceId| {
        let mut rows = statement.query([id.0])?;
        let Some(row) = rows.next()? else {
            missing.push(id);
            return Ok(None);
        };
        let status = cells::status(row, 0)?;
        if !status.is_terminal() {
            return Ok(None);
        }
        Ok::<_, rusqlite::Error>(Some(Ending {
            id,
            status,
            result: cells::maybe_json(row, 1)?,
            last_error: row.get(2)?,
        }))
    };
    let rest = look_up(ids, bytes, read, |ending| ended.push(ending))?;
    Ok(Endings {
        ended,
        missing,
        rest,
    })
}

/// Index: `abide_parked`, its first entry.
pub(crate) const NEXT_DUE: &str = "
    select wake_at from abide_instances where wake_at is not null order by wake_at limit 1";

/// Index: `abide_leased`, its first entry.
pub(crate) const NEXT_LAPSE: &str = "
    select lease_until from abide_instances where lease_until is not null order by lease_until limit 1";

/// The earliest time at which a row is due or a lease expires.
pub(crate) fn next_due(conn: &Connection) -> Result<Option<Timestamp>> {
    let first = |sql: &str| -> Result<Option<i64>> {
        let mut statement = conn.prepare_cached(sql)?;
        statement.query_row([], |row| row.get(0)).optional()
    };
    let due = first(NEXT_DUE)?.filter(|first| *first < BLOCKED);
    let lapse = first(NEXT_LAPSE)?;
    Ok(due
        .into_iter()
        .chain(lapse)
        .min()
        .map(Timestamp::from_micros))
}

/// Counts through the indexes that contain only live rows; finished rows are not read, however many there are.
/// Claimable rows, which may be many, are counted in the index, and the queue is read from one row of each lane.
pub(crate) const DEPTHS: &str = sql!("
    select (select queue from abide_instances where ready_at is not null and lane = ready.lane limit 1), @runnable, null, number, 0,
           oldest
    from (select lane, count(*) as number, min(ready_at) as oldest from abide_instances indexed by abide_claimable
          where ready_at is not null group by lane) as ready
    union all
    select queue, @runnable, null, count(*), 0, min(due_at) from abide_instances indexed by abide_partition_queue
    where (standing = 1 or standing = 2) and standing = 1 group by queue
    union all
    select queue, @executing, null, count(*), 0, null from abide_instances indexed by abide_held where worker is not null
    group by queue
    union all
    select queue, status, kind, count(*), sum(wake_at = 9223372036854775806), null
    from (select queue, status, wake_at,
                 iif(status in (@awaiting) or (status = @scheduled and extra ->> '$.awaits.kind' = 'timer'), extra ->> '$.awaits.kind', null) as kind
          from abide_instances indexed by abide_parked where wake_at is not null)
    group by queue, status, kind");

/// The number of instances by queue and status; finished ones are not counted.
pub(crate) fn depths(conn: &Connection) -> Result<Vec<QueueDepth>> {
    let mut statement = conn.prepare_cached(DEPTHS)?;
    let mut depths: BTreeMap<(Name, Status, Option<String>), QueueDepth> = BTreeMap::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (queue, status) = (cells::name(row, 0)?, cells::status(row, 1)?);
        let kind: Option<String> = row.get(2)?;
        let wait_kind = kind.as_deref().and_then(WaitKind::named);
        let group = (queue.clone(), status, kind);
        let depth = depths.entry(group).or_insert_with(|| QueueDepth {
            queue,
            status,
            wait_kind,
            count: 0,
            blocked: 0,
            oldest: None,
        });
        depth.count += row.get::<_, i64>(3)?.unsigned_abs();
        depth.blocked += row.get::<_, i64>(4)?.unsigned_abs();
        let oldest = cells::maybe_time(row, 5)?;
        depth.oldest = depth.oldest.into_iter().chain(oldest).min();
    }
    Ok(depths.into_values().collect())
}
