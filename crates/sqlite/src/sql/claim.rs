//! Claims what is runnable, and tells how urgent the most urgent of it is.

use std::fmt::Write as _;

use abide_core::model::{
    BarrierNumber, Cause, Claim, Claimed, Epoch, InstanceId, Key, Kind, Lane, Name, ParentRef,
    Priority, Timestamp, WaitKind,
};
use abide_kernel::ClaimRequest;
use rusqlite::{Connection, Result, ToSql, params};

use super::limited;
use crate::cells::{self, Names};

/// How many lanes one statement looks at. SQLite takes up to 500 selects in one.
const LANES_AT_ONCE: usize = 32;

/// A row that waits to be claimed, ordered as rule 6.1 has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    priority: Priority,
    due_at: Timestamp,
    id: InstanceId,
    /// Which of the lanes it was found in.
    lane: usize,
}

/// Claims the first rows of a queue that are runnable, not behind, and of one of the lanes, in the order of rule 6.1.
pub(crate) fn claim(
    conn: &Connection,
    request: &ClaimRequest,
    now: Timestamp,
) -> Result<Vec<Claimed>> {
    let places = first(conn, &request.queue, &request.lanes, request.limit)?;
    let mut statement = conn.prepare_cached(TAKE)?;
    let mut steps = Names::default();
    let mut claimed = Vec::with_capacity(places.len());
    for place in places {
        let Some(lane) = request.lanes.get(place.lane) else { continue };
        let mut rows = statement.query(params![place.id.0, request.worker.0, now.as_micros()])?;
        let Some(row) = rows.next()? else { continue };
        let parent = match cells::maybe_id(row, 2)? {
            None => None,
            Some(id) => Some(ParentRef { id, partition: partition_of(conn, id)? }),
        };
        let epoch = Epoch(row.get(0)?);
        let joins = cells::wait_kind(row, 8)? == Some(WaitKind::Children);
        claimed.push(Claimed {
            claim: Claim::granted(place.id, epoch, request.worker, cells::maybe_key(row, 1)?, parent),
            key: cells::maybe_key(row, 10)?,
            kind: Kind::from_code(row.get(11)?),
            machine: lane.machine.clone(),
            version: lane.version,
            step: steps.read(row, 3)?,
            step_seq: row.get(4)?,
            attempt: row.get(5)?,
            state: cells::json(row, 12)?,
            queue: request.queue.clone(),
            priority: place.priority,
            due_at: place.due_at,
            cause: Cause::from_code(row.get(6)?),
            timed_out: cells::flag(row, 7)?,
            joins: if joins { Some(BarrierNumber(row.get(9)?)) } else { None },
            children: Vec::new(),
        });
    }
    Ok(claimed)
}

/// By primary key; leaves `abide_claimable` and enters `abide_held`.
pub(crate) const TAKE: &str = "
    update abide_instances set status = 3, worker = ?2, epoch = epoch + 1, updated_at = ?3
    where id = ?1
    returning epoch, partition_key, parent_id, step, step_seq, attempt, cause, timed_out, wait_kind, barrier, key, kind,
              state";

/// The statement that finds the first rows of that many lanes, by `abide_claimable` alone. Each lane is one select, in
/// order as it comes from the index, and SQLite merges them as it reads: it reads as many entries as are asked for, and one more for each lane.
pub(crate) fn first_of(lanes: usize) -> String {
    let mut sql = String::new();
    for lane in 0..lanes {
        let (machine, version) = (2 * lane + 3, 2 * lane + 4);
        let union = if lane == 0 { "" } else { " union all " };
        // Writing to a string does not fail.
        let _ = write!(
            sql,
            "{union}select priority, due_at, id, {lane} from abide_instances \
             where status = 2 and behind = 0 and queue = ?1 and machine = ?{machine} and version = ?{version}"
        );
    }
    sql.push_str(" order by priority, due_at, id limit ?2");
    sql
}

fn first(conn: &Connection, queue: &Name, lanes: &[Lane], limit: usize) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for (chunk, lanes) in lanes.chunks(LANES_AT_ONCE).enumerate() {
        let mut statement = conn.prepare_cached(&first_of(lanes.len()))?;
        let (queue, limit) = (queue.as_str(), limited(limit));
        let mut values: Vec<&dyn ToSql> = vec![&queue, &limit];
        let texts: Vec<&str> = lanes.iter().map(|lane| lane.machine.as_str()).collect();
        for (lane, machine) in lanes.iter().zip(&texts) {
            values.extend([machine as &dyn ToSql, &lane.version]);
        }
        let rows = statement.query_map(values.as_slice(), |row| {
            Ok(Place {
                priority: cells::priority(row, 0)?,
                due_at: cells::time(row, 1)?,
                id: cells::id(row, 2)?,
                lane: chunk * LANES_AT_ONCE + usize::from(row.get::<_, u16>(3)?),
            })
        })?;
        for place in rows {
            places.push(place?);
        }
    }
    if lanes.len() > LANES_AT_ONCE {
        places.sort_unstable();
        places.truncate(limit);
    }
    Ok(places)
}

/// The priority of the row that would be claimed first.
pub(crate) fn waiting(conn: &Connection, queue: &Name, lanes: &[Lane]) -> Result<Option<Priority>> {
    let first = first(conn, queue, lanes, 1)?;
    Ok(first.first().map(|place| place.priority))
}

/// By primary key.
pub(crate) const PARTITION_OF: &str = "select partition_key from abide_instances where id = ?1";

fn partition_of(conn: &Connection, id: InstanceId) -> Result<Option<Key>> {
    let mut statement = conn.prepare_cached(PARTITION_OF)?;
    let mut rows = statement.query(params![id.0])?;
    match rows.next()? {
        None => Ok(None),
        Some(row) => cells::maybe_key(row, 0),
    }
}
