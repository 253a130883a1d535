//! Claims what is runnable, and tells how urgent the most urgent of it is.

use std::fmt::Write as _;

use abide_core::model::{
    Cause, Claim, Claimed, Epoch, InstanceId, Key, Kind, Lane, Lease, Name, ParentRef, Priority,
    Row, Scopes, Status, Timestamp, WaitKind, WorkerId,
};
use abide_kernel::{ClaimRequest, Leased};
use rusqlite::{CachedStatement, Connection, Result, params};

use super::load::parent;
use super::{Lazy, distinct, limited, update};
use crate::cells::{self, Names};
use crate::columns::{self, own_scopes};

/// How many lanes one statement looks at. SQLite takes up to 500 selects in one.
const LANES_AT_ONCE: usize = 32;

/// A row that can be claimed, as it will be when it is.
struct Candidate {
    claimed: Claimed,
    row: Row,
    /// Whether being claimed changes where it stands in a partition, or which keys it holds.
    guarded: bool,
}

/// Claims the first rows of a queue that are runnable, not behind, and of one of the lanes, in the order of rule 6.1.
/// Each of them is shown, as it is from now on, to `keep`.
pub(crate) fn claim(
    conn: &Connection,
    request: &ClaimRequest,
    now: Timestamp,
    mut keep: impl FnMut(Row),
) -> Result<Vec<Claimed>> {
    let lanes = distinct(&request.lanes);
    let mut candidates = Vec::new();
    for lanes in lanes.chunks(LANES_AT_ONCE) {
        find(conn, request, lanes, now, &mut candidates)?;
    }
    if lanes.len() > LANES_AT_ONCE {
        candidates.sort_unstable_by_key(|one| {
            (
                one.claimed.priority,
                one.claimed.due_at,
                one.claimed.claim.id(),
            )
        });
        candidates.truncate(request.limit);
    }
    take(conn, &candidates, request.worker, now)?;
    let leased = candidates.iter().map(|one| &one.row);
    let leased: Vec<Leased> = leased
        .filter(|row| row.lease.is_some())
        .map(|row| Leased {
            id: row.id,
            lease: row.lease,
        })
        .collect();
    update::lease(conn, &leased, now)?;
    let claimed = candidates.into_iter().map(|candidate| {
        keep(candidate.row);
        candidate.claimed
    });
    Ok(claimed.collect())
}

/// The columns that a claim needs.
pub(crate) const CANDIDATE: &str = concat!(
    "id, priority, ready_at, epoch, settled, step, step_seq, attempt, cause, timed_out, history_seq, \
    taken <> scopes >> 3 & 65537, last_error, partition_key, awaits, family, parent_id, parent_barrier, key, kind, \
    run_number, first_id, contract, inbox, aside, state, attended, ",
    own_scopes!()
);

/// The columns that it is ordered by.
pub(crate) const ORDER: &str = "id, priority, ready_at";

/// The statement that finds the first rows of that many lanes, by `abide_claimable`. Each lane is one select, in order
/// as it comes from the index, and SQLite merges them as it reads: it reads as many rows as are asked for, and one more
/// for each lane. Parameters: the queue, the limit, then for each lane its number, machine and version.
pub(crate) fn find_in(lanes: usize, columns: &str) -> String {
    let mut sql = String::new();
    for index in 0..lanes {
        let (lane, machine, version) = (3 * index + 3, 3 * index + 4, 3 * index + 5);
        let union = if index == 0 { "" } else { " union all " };
        // Writing to a string does not fail.
        let _ = write!(
            sql,
            "{union}select {columns}, {index} from abide_instances where ready_at is not null \
             and lane = ?{lane} and queue = ?1 and machine = ?{machine} and version = ?{version}"
        );
    }
    sql.push_str(" order by priority, ready_at, id limit ?2");
    sql
}

/// Finds rows that can be claimed, in order.
fn find(
    conn: &Connection,
    request: &ClaimRequest,
    lanes: &[&Lane],
    now: Timestamp,
    found: &mut Vec<Candidate>,
) -> Result<()> {
    let mut statement = conn.prepare_cached(&find_in(lanes.len(), CANDIDATE))?;
    bind(&mut statement, &request.queue, lanes, request.limit)?;
    let mut steps = Names::default();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        // The statement numbers the lanes that it was given.
        let Some(lane) = lanes.get(usize::from(row.get::<_, u16>(28)?)) else {
            continue;
        };
        let mut found_one = candidate(conn, row, request, lane, &mut steps)?;
        found_one.row.lease = request.lease.map(|lease| Lease::new(now, lease, None));
        found.push(found_one);
    }
    Ok(())
}

fn bind(
    statement: &mut CachedStatement<'_>,
    queue: &Name,
    lanes: &[&Lane],
    limit: usize,
) -> Result<()> {
    statement.raw_bind_parameter(1, queue.as_str())?;
    statement.raw_bind_parameter(2, limited(limit))?;
    for (index, lane) in lanes.iter().enumerate() {
        let number = columns::lane(queue, &lane.machine, lane.version);
        statement.raw_bind_parameter(3 * index + 3, number)?;
        statement.raw_bind_parameter(3 * index + 4, lane.machine.as_str())?;
        statement.raw_bind_parameter(3 * index + 5, lane.version)?;
    }
    Ok(())
}

fn candidate(
    conn: &Connection,
    found: &rusqlite::Row<'_>,
    request: &ClaimRequest,
    lane: &Lane,
    steps: &mut Names,
) -> Result<Candidate> {
    let (parent, parent_barrier) = parent(found, 16)?;
    let history_seq = found.get(10)?;
    let row = Row {
        id: cells::id(found, 0)?,
        kind: Kind::from_code(found.get(19)?),
        status: Status::Executing,
        scopes: columns::from_scopes(found.get(27)?),
        behind: false,
        queue: request.queue.clone(),
        priority: cells::priority(found, 1)?,
        due_at: Some(cells::time(found, 2)?),
        partition_key: cells::maybe_key(found, 13)?,
        worker: Some(request.worker),
        lease: None,
        epoch: Epoch(found.get::<_, i64>(3)? + 1),
        settled: Epoch(found.get(4)?),
        step: steps.read(found, 5)?,
        step_seq: found.get(6)?,
        attempt: found.get(7)?,
        cause: Cause::from_code(found.get(8)?),
        timed_out: cells::flag(found, 9)?,
        awaits: cells::awaits(found, 14)?,
        attended: cells::attended(found, 26)?,
        aside: cells::aside(found, 24)?,
        inbox: cells::inbox(found, 23)?,
        contract: cells::maybe_contract(found, 22)?,
        run: cells::run(found, 20)?,
        parent,
        parent_barrier,
        family: cells::family(found, 15)?,
        history: history_seq > 0,
        history_seq,
        last_error: found.get(12)?,
        finished_at: None,
    };
    let waits_for = |kinds: &[WaitKind]| {
        let awaits = row.awaits.as_ref();
        awaits.filter(|awaits| kinds.contains(&awaits.kind))
    };
    let joins = waits_for(&[WaitKind::Children]).map(|_| row.family.barrier);
    let awaits = waits_for(&[WaitKind::Signal, WaitKind::Event]).map(|awaits| awaits.names.clone());
    let parent = match parent {
        None => None,
        Some(id) => Some(ParentRef {
            id,
            partition: partition_of(conn, id)?,
        }),
    };
    Ok(Candidate {
        claimed: Claimed {
            claim: Claim::granted(
                row.id,
                row.epoch,
                request.worker,
                row.partition_key.clone(),
                parent,
            ),
            key: cells::maybe_key(found, 18)?,
            kind: row.kind,
            machine: lane.machine.clone(),
            version: lane.version,
            step: row.step.clone(),
            step_seq: row.step_seq,
            attempt: row.attempt,
            state: cells::json(found, 25)?,
            queue: request.queue.clone(),
            priority: row.priority,
            due_at: row.due_at.unwrap_or_default(),
            cause: row.cause,
            timed_out: row.timed_out,
            joins,
            children_pending: row.family.pending,
            children_ended: row.family.ended,
            children: Vec::new(),
            awaited: Vec::new(),
            updates: Vec::new(),
            aside: row.aside.is_some(),
            inbox: row.inbox,
            awaits: awaits.unwrap_or_default(),
        },
        guarded: row.partition_key.is_some()
            || (row.scopes != Scopes::NONE && cells::flag(found, 11)?),
        row,
    })
}

/// By primary key; leaves `abide_claimable` and enters `abide_held`.
pub(crate) const TAKE: &str = "
    update abide_instances set status = 3, ready_at = null, worker = ?2, epoch = ?3, updated_at = ?4
    where id = ?1";

/// The same, and it keeps the front of its partition; it may also take or free its keys.
pub(crate) const TAKE_GUARDED: &str = "
    update abide_instances
    set status = 3, ready_at = null, worker = ?2, epoch = ?3, updated_at = ?4,
        standing = iif(partition_key is null, null, 3),
        taken = iif(taken is null, null, scopes >> 3 & 65537)
    where id = ?1";

fn take(
    conn: &Connection,
    candidates: &[Candidate],
    worker: WorkerId,
    now: Timestamp,
) -> Result<()> {
    let mut plain = Lazy::new(conn, TAKE);
    let mut thorough = Lazy::new(conn, TAKE_GUARDED);
    for Candidate { row, guarded, .. } in candidates {
        let (id, epoch) = (row.id.0, row.epoch.0);
        let statement = if *guarded { &mut thorough } else { &mut plain };
        statement
            .get()?
            .execute(params![id, worker.0, epoch, now.as_micros()])?;
    }
    Ok(())
}

/// The priority of the row that would be claimed first.
pub(crate) fn waiting(conn: &Connection, queue: &Name, lanes: &[Lane]) -> Result<Option<Priority>> {
    let mut first = None;
    for lanes in distinct(lanes).chunks(LANES_AT_ONCE) {
        let mut statement = conn.prepare_cached(&find_in(lanes.len(), ORDER))?;
        bind(&mut statement, queue, lanes, 1)?;
        if let Some(row) = statement.raw_query().next()? {
            let priority = cells::priority(row, 1)?;
            first = Some(first.map_or(priority, |first: Priority| first.min(priority)));
        }
    }
    Ok(first)
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
