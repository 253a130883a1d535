//! What readers ask: instances, histories, endings, due times, depths.

use std::collections::BTreeMap;

use abide_core::model::{
    BarrierNumber, Cause, HistoryRow, Instance, InstanceId, Kind, Name, Scope, Status, Timestamp,
};
use abide_kernel::{Ending, Filter, QueueDepth, Target};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, Row, params, params_from_iter};

use super::limited;
use crate::cells;

const INSTANCE: &str = "
    select id, key, key_scope, unique_key, unique_scope, kind, machine, version, first_step, step, step_seq, attempt,
           status, state, result, last_error, queue, priority, due_at, partition_key, behind, worker, cause, timed_out,
           wait_kind, awaits, wait_since, parent_id, parent_barrier, barrier, children_pending, history, created_at,
           updated_at, finished_at
    from abide_instances";

/// One instance: by primary key, or the newest by `abide_key`.
pub(crate) fn get(conn: &Connection, target: &Target) -> Result<Option<Instance>> {
    let found = match target {
        Target::Id(id) => conn.prepare_cached(&by_id())?.query_row([id.0], instance),
        Target::Key(key) => conn
            .prepare_cached(&by_key())?
            .query_row([key.as_str()], instance),
    };
    found.optional()
}

pub(crate) fn by_id() -> String {
    format!("{INSTANCE} where id = ?1")
}

pub(crate) fn by_key() -> String {
    format!("{INSTANCE} where key = ?1 and key is not null order by id desc limit 1")
}

/// Instances that meet every condition given, newest first, below `before`. Children are found by `abide_children`; else
/// the table is read from its end until the page is full.
pub(crate) fn list(
    conn: &Connection,
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
) -> Result<Vec<Instance>> {
    let mut conditions: Vec<(&str, Value)> = Vec::new();
    if let Some(before) = before {
        conditions.push(("id < ?", before.0.into()));
    }
    if let Some(status) = filter.status {
        conditions.push(("status = ?", i64::from(status.code()).into()));
    }
    if let Some(machine) = &filter.machine {
        conditions.push(("machine = ?", machine.as_str().to_owned().into()));
    }
    if let Some(queue) = &filter.queue {
        conditions.push(("queue = ?", queue.as_str().to_owned().into()));
    }
    if let Some(prefix) = &filter.key_prefix {
        // Not `like` or `glob`, to which some characters of a key mean something.
        conditions.push(("instr(key, ?) = 1", prefix.clone().into()));
    }
    if let Some(parent) = filter.parent {
        conditions.push(("parent_id = ?", parent.0.into()));
    }
    let (texts, mut values): (Vec<&str>, Vec<Value>) = conditions.into_iter().unzip();
    let conditions = if texts.is_empty() {
        String::new()
    } else {
        format!("where {}", texts.join(" and "))
    };
    values.push(limited(limit).into());
    let sql = format!("{INSTANCE} {conditions} order by id desc limit ?");
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), instance)?;
    rows.collect()
}

fn instance(row: &Row<'_>) -> Result<Instance> {
    Ok(Instance {
        id: cells::id(row, 0)?,
        key: cells::maybe_key(row, 1)?,
        scope: Scope::from_bits(row.get(2)?),
        unique_key: cells::maybe_unique_key(row, 3)?,
        unique_scope: Scope::from_bits(row.get(4)?),
        kind: Kind::from_code(row.get(5)?),
        machine: cells::name(row, 6)?,
        version: row.get(7)?,
        first_step: cells::name(row, 8)?,
        step: cells::name(row, 9)?,
        step_seq: row.get(10)?,
        attempt: row.get(11)?,
        status: cells::status(row, 12)?,
        state: cells::json(row, 13)?,
        result: cells::maybe_json(row, 14)?,
        last_error: row.get(15)?,
        queue: cells::name(row, 16)?,
        priority: cells::priority(row, 17)?,
        due_at: cells::maybe_time(row, 18)?,
        partition_key: cells::maybe_key(row, 19)?,
        behind: cells::flag(row, 20)?,
        worker: cells::maybe_worker(row, 21)?,
        cause: Cause::from_code(row.get(22)?),
        timed_out: cells::flag(row, 23)?,
        wait_kind: cells::wait_kind(row, 24)?,
        awaits: cells::list(row, 25)?,
        wait_since: cells::maybe_time(row, 26)?,
        parent: cells::maybe_id(row, 27)?,
        parent_barrier: BarrierNumber(row.get(28)?),
        barrier: BarrierNumber(row.get(29)?),
        children_pending: row.get(30)?,
        history: cells::flag(row, 31)?,
        created_at: cells::time(row, 32)?,
        updated_at: cells::time(row, 33)?,
        finished_at: cells::maybe_time(row, 34)?,
    })
}

/// By primary key, from the row on that holds the event after `?2`. A row is numbered by its first event, so that is the
/// last row whose number is at most one more; when the history ends before it there is nothing to tell.
pub(crate) const HISTORY: &str = "
    select seq, at, events from abide_history
    where instance_id = ?1
      and seq >= coalesce((select max(seq) from abide_history where instance_id = ?1 and seq <= ?2 + 1), 0)
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
    rows.collect()
}

/// By primary key.
pub(crate) const ENDING: &str =
    "select status, result, last_error from abide_instances where id = ?1";

/// How those of the instances ended that have; one that is not there is named in the second list.
pub(crate) fn endings(
    conn: &Connection,
    ids: &[InstanceId],
) -> Result<(Vec<Ending>, Vec<InstanceId>)> {
    let mut statement = conn.prepare_cached(ENDING)?;
    let (mut endings, mut missing) = (Vec::new(), Vec::new());
    for id in ids {
        let mut rows = statement.query([id.0])?;
        let Some(row) = rows.next()? else {
            missing.push(*id);
            continue;
        };
        let status = cells::status(row, 0)?;
        if status.is_terminal() {
            endings.push(Ending {
                id: *id,
                status,
                result: cells::maybe_json(row, 1)?,
                last_error: row.get(2)?,
            });
        }
    }
    Ok((endings, missing))
}

/// By `abide_parked`: the first entry that has a time.
pub(crate) const NEXT_DUE: &str = "
    select due_at from abide_instances
    where (status = 1 or status = 4 or status = 5) and due_at > ?1 order by due_at limit 1";

/// The earliest moment at which anything is due.
pub(crate) fn next_due(conn: &Connection) -> Result<Option<Timestamp>> {
    let mut statement = conn.prepare_cached(NEXT_DUE)?;
    let first = statement.query_row([i64::MIN], |row| cells::time(row, 0));
    first.optional()
}

/// Counts by the indexes that carry only live rows; what has finished is not read, however much it is.
pub(crate) const DEPTHS: &str = "
    select queue, 2, count(*) from abide_instances indexed by abide_claimable
    where status = 2 and behind = 0 group by queue
    union all
    select queue, 2, count(*) from abide_instances indexed by abide_partition_queue
    where partition_key is not null and status = 2 and behind <> 0 group by queue
    union all
    select queue, 3, count(*) from abide_instances indexed by abide_held where status = 3 group by queue
    union all
    select queue, status, count(*) from abide_instances indexed by abide_parked
    where (status = 1 or status = 4 or status = 5) group by queue, status";

/// How many instances stand where, queue by queue; finished ones are not counted.
pub(crate) fn depths(conn: &Connection) -> Result<Vec<QueueDepth>> {
    let mut statement = conn.prepare_cached(DEPTHS)?;
    let mut counts: BTreeMap<(Name, Status), u64> = BTreeMap::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let place = (cells::name(row, 0)?, cells::status(row, 1)?);
        *counts.entry(place).or_default() += row.get::<_, i64>(2)?.unsigned_abs();
    }
    let depths = counts.into_iter();
    Ok(depths
        .map(|((queue, status), count)| QueueDepth { queue, status, count })
        .collect())
}
