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

/// Claims the first rows of a queue that are runnable, not behind, and of one of the lanes, in the order of rule 6.1.
pub(crate) fn claim(
    conn: &Connection,
    request: &ClaimRequest,
    now: Timestamp,
) -> Result<Vec<Claimed>> {
    let mut claimed = Vec::with_capacity(request.limit.min(1024));
    for (chunk, lanes) in request.lanes.chunks(LANES_AT_ONCE).enumerate() {
        find(conn, request, lanes, &mut claimed)?;
    }
    if request.lanes.len() > LANES_AT_ONCE {
        claimed.sort_unstable_by_key(|one| (one.priority, one.due_at, one.claim.id()));
        claimed.truncate(request.limit);
    }
    take(conn, request, &claimed, now)?;
    Ok(claimed)
}

/// The statement that finds the first rows of that many lanes, by `abide_claimable`. Each lane is one select, in order
/// as it comes from the index, and SQLite merges them as it reads: it reads as many entries as are asked for, and one
/// more for each lane.
pub(crate) fn find_of(lanes: usize) -> String {
    let mut sql = String::new();
    for lane in 0..lanes {
        let (machine, version) = (2 * lane + 3, 2 * lane + 4);
        let union = if lane == 0 { "" } else { " union all " };
        // Writing to a string does not fail.
        let _ = write!(
            sql,
            "{union}select priority, due_at, id, {lane}, epoch, partition_key, parent_id, step, step_seq, attempt, cause, \
             timed_out, wait_kind, barrier, key, kind, state from abide_instances \
             where status = 2 and behind = 0 and queue = ?1 and machine = ?{machine} and version = ?{version}"
        );
    }
    sql.push_str(" order by priority, due_at, id limit ?2");
    sql
}

fn find(conn: &Connection, request: &ClaimRequest, lanes: &[Lane], found: &mut Vec<Claimed>) -> Result<()> {
    let mut statement = conn.prepare_cached(&find_of(lanes.len()))?;
    let (queue, limit) = (request.queue.as_str(), limited(request.limit));
    let mut values: Vec<&dyn ToSql> = vec![&queue, &limit];
    let machines: Vec<&str> = lanes.iter().map(|lane| lane.machine.as_str()).collect();
    for (lane, machine) in lanes.iter().zip(&machines) {
        values.extend([machine as &dyn ToSql, &lane.version]);
    }
    let mut steps = Names::default();
    let mut rows = statement.query(values.as_slice())?;
    while let Some(row) = rows.next()? {
        let Some(lane) = lanes.get(usize::from(row.get::<_, u16>(3)?)) else { continue };
        let parent = match cells::maybe_id(row, 6)? {
            None => None,
            Some(id) => Some(ParentRef { id, partition: partition_of(conn, id)? }),
        };
        let epoch = Epoch(row.get::<_, i64>(4)? + 1);
        let joins = cells::wait_kind(row, 12)? == Some(WaitKind::Children);
        found.push(Claimed {
            claim: Claim::granted(cells::id(row, 2)?, epoch, request.worker, cells::maybe_key(row, 5)?, parent),
            key: cells::maybe_key(row, 14)?,
            kind: Kind::from_code(row.get(15)?),
            machine: lane.machine.clone(),
            version: lane.version,
            step: steps.read(row, 7)?,
            step_seq: row.get(8)?,
            attempt: row.get(9)?,
            state: cells::json(row, 16)?,
            queue: request.queue.clone(),
            priority: cells::priority(row, 0)?,
            due_at: cells::time(row, 1)?,
            cause: Cause::from_code(row.get(10)?),
            timed_out: cells::flag(row, 11)?,
            joins: if joins { Some(BarrierNumber(row.get(13)?)) } else { None },
            children: Vec::new(),
        });
    }
    Ok(())
}

/// By primary key; leaves `abide_claimable` and enters `abide_held`.
pub(crate) const TAKE: &str = "
    update abide_instances set status = 3, worker = ?2, epoch = ?3, updated_at = ?4
    where id = ?1";

fn take(conn: &Connection, request: &ClaimRequest, claimed: &[Claimed], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(TAKE)?;
    for Claimed { claim, .. } in claimed {
        statement.execute(params![claim.id().0, request.worker.0, claim.epoch().0, now.as_micros()])?;
    }
    Ok(())
}

/// The priority of the row that would be claimed first.
pub(crate) fn waiting(conn: &Connection, queue: &Name, lanes: &[Lane]) -> Result<Option<Priority>> {
    let request = ClaimRequest { worker: Default::default(), queue: queue.clone(), lanes: lanes.to_vec(), limit: 1 };
    let mut f = vec![];
    for lanes in lanes.chunks(LANES_AT_ONCE) {
    find(conn, &request, lanes, &mut f)?; }
    Ok(f.iter().map(|place| place.priority).min())
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
