//! Claims runnable instances, and reads the priority of the first waiting row.

use std::fmt::Write as _;

use abide_core::model::{
    Cause, Claim, Claimed, Epoch, InstanceId, Key, Kind, Lane, Lease, Name, ParentRef, Priority,
    Row, Scopes, Status, Timestamp, WaitKind, WorkerId,
};
use abide_kernel::{ClaimRequest, ClaimRoom, Leased, claimed_bytes};
use rusqlite::{CachedStatement, Connection, Result, params};

use super::load::parent;
use super::{Lazy, distinct, limited, update};
use crate::cells::{self, Names};
use crate::columns::{self, own_scopes};

/// Maximum number of lanes in one statement. SQLite accepts up to 500 selects in one.
const LANES_AT_ONCE: usize = 32;

/// A claimable row, with the values that it has after the claim.
struct Candidate {
    claimed: Claimed,
    row: Row,
    /// `true` if the claim changes its position in a partition, or the keys that it holds.
    guarded: bool,
}

/// Claims the first rows of a queue that are runnable, not behind, and of one of the lanes, in the order of rule 6.1:
/// up to a number of bytes in total, but at least one. Passes each of them, as it is after the claim, to `keep`.
/// Returns the rows, and whether rows were left out because of their size (rule 16.4).
pub(crate) fn claim(
    conn: &Connection,
    request: &ClaimRequest,
    most: usize,
    now: Timestamp,
    mut keep: impl FnMut(Row),
) -> Result<(Vec<Claimed>, bool)> {
    let lanes = distinct(&request.lanes);
    let mut candidates = Vec::new();
    let mut is_more = false;
    for some in lanes.chunks(LANES_AT_ONCE) {
        is_more |= find(conn, request, some, most, now, &mut candidates)?;
        if lanes.len() > LANES_AT_ONCE {
            is_more |= cut(&mut candidates, request.limit, most);
        }
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
    Ok((claimed.collect(), is_more))
}

/// Keeps the first of the candidates of several statements, as many as are requested and fit; returns `true` if any did
/// not fit.
fn cut(candidates: &mut Vec<Candidate>, limit: usize, most: usize) -> bool {
    candidates.sort_unstable_by_key(|one| {
        (
            one.claimed.priority,
            one.claimed.due_at,
            one.claimed.claim.id(),
        )
    });
    candidates.truncate(limit);
    let mut room = ClaimRoom::new(most);
    let fits = candidates.iter();
    let fits = fits.take_while(|one| room.take(claimed_bytes(&one.claimed)));
    let fitting = fits.count();
    let is_more = fitting < candidates.len();
    candidates.truncate(fitting);
    is_more
}

/// The columns that a claim needs.
pub(crate) const CANDIDATE: &str = concat!(
    "id, priority, ready_at, epoch, settled, step, step_seq, attempt, cause, timed_out, history_seq, \
    taken <> scopes >> 3 & 65537, last_error, partition_key, awaits, family, parent_id, parent_barrier, key, kind, \
    run_number, first_id, contract, inbox, aside, state, attended, policy, unfit, deaths, folding, ",
    own_scopes!(),
    ", created_at, settled_before"
);

/// The columns for its order.
pub(crate) const ORDER: &str = "id, priority, ready_at";

/// Builds the statement that finds the first rows of that many lanes. Index: `abide_claimable`. Each lane is one
/// select, whose rows come from the index in order, and SQLite merges them while it reads: it reads as many rows as
/// requested, and one more for each lane. Rows that are unfit for the worker's build are stepped over (rule 12.4);
/// almost none is, and the worker is looked up only for a row that is. Parameters: the queue, the limit, the worker,
/// then for each lane its number, machine and version.
pub(crate) fn find_in(lanes: usize, columns: &str) -> String {
    let mut sql = String::new();
    for index in 0..lanes {
        let (lane, machine, version) = (3 * index + 4, 3 * index + 5, 3 * index + 6);
        let union = if index == 0 { "" } else { " union all " };
        // Writing to a string does not fail.
        let _ = write!(
            sql,
            "{union}select {columns}, {index} from abide_instances where ready_at is not null \
             and lane = ?{lane} and queue = ?1 and machine = ?{machine} and version = ?{version} \
             and (unfit is null or ?3 is null or instr(',' || substr(unfit, 2), ',' || \
                 (select json_quote(coalesce(w.build, w.name)) from abide_workers w where w.id = ?3)) = 0)"
        );
    }
    sql.push_str(" order by priority, ready_at, id limit ?2");
    sql
}

/// Finds claimable rows, in order, and stops at the first one that exceeds the bytes; returns `true` if there was one.
fn find(
    conn: &Connection,
    request: &ClaimRequest,
    lanes: &[&Lane],
    most: usize,
    now: Timestamp,
    found: &mut Vec<Candidate>,
) -> Result<bool> {
    let mut statement = conn.prepare_cached(&find_in(lanes.len(), CANDIDATE))?;
    let worker = Some(request.worker);
    bind(&mut statement, &request.queue, lanes, request.limit, worker)?;
    let mut steps = Names::default();
    let mut room = ClaimRoom::new(most);
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        // The statement numbers its lanes.
        let Some(lane) = lanes.get(usize::from(row.get::<_, u16>(34)?)) else {
            continue;
        };
        let mut found_one = candidate(conn, row, request, lane, &mut steps)?;
        if !room.take(claimed_bytes(&found_one.claimed)) {
            return Ok(true);
        }
        found_one.row.lease = request.lease.map(|lease| Lease::new(now, lease, None));
        found.push(found_one);
    }
    Ok(false)
}

fn bind(
    statement: &mut CachedStatement<'_>,
    queue: &Name,
    lanes: &[&Lane],
    limit: usize,
    worker: Option<WorkerId>,
) -> Result<()> {
    statement.raw_bind_parameter(1, queue.as_str())?;
    statement.raw_bind_parameter(2, limited(limit))?;
    statement.raw_bind_parameter(3, worker.map(|worker| worker.0))?;
    for (index, lane) in lanes.iter().enumerate() {
        let number = columns::lane(queue, &lane.machine, lane.version);
        statement.raw_bind_parameter(3 * index + 4, number)?;
        statement.raw_bind_parameter(3 * index + 5, lane.machine.as_str())?;
        statement.raw_bind_parameter(3 * index + 6, lane.version)?;
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
        machine: lane.machine.clone(),
        created_at: cells::time(found, 32)?,
        status: Status::Executing,
        scopes: columns::from_scopes(found.get(31)?),
        behind: false,
        queue: request.queue.clone(),
        priority: cells::priority(found, 1)?,
        due_at: Some(cells::time(found, 2)?),
        partition_key: cells::maybe_key(found, 13)?,
        worker: Some(request.worker),
        lease: None,
        epoch: Epoch(found.get::<_, i64>(3)? + 1),
        settled: cells::settled(found, 4, 33)?,
        step: steps.read(found, 5)?,
        step_seq: found.get(6)?,
        attempt: found.get(7)?,
        deaths: found.get(29)?,
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
        folding: cells::folding(found, 30)?,
        last_error: found.get(12)?,
        unfit: cells::unfit(found, 28)?,
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
            deaths: row.deaths,
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
            policy: cells::policy(found, 27)?,
        },
        guarded: row.partition_key.is_some()
            || (row.scopes != Scopes::NONE && cells::flag(found, 11)?),
        row,
    })
}

/// Index: the primary key. The row leaves `abide_claimable` and enters `abide_held`.
pub(crate) const TAKE: &str = "
    update abide_instances set status = 3, ready_at = null, worker = ?2, epoch = ?3, updated_at = ?4
    where id = ?1";

/// The same, for a row that keeps the front of its partition; it may also take or free its keys.
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
        bind(&mut statement, queue, lanes, 1, None)?;
        if let Some(row) = statement.raw_query().next()? {
            let priority = cells::priority(row, 1)?;
            first = Some(first.map_or(priority, |first: Priority| first.min(priority)));
        }
    }
    Ok(first)
}

/// Index: the primary key.
pub(crate) const PARTITION_OF: &str = "select partition_key from abide_instances where id = ?1";

fn partition_of(conn: &Connection, id: InstanceId) -> Result<Option<Key>> {
    let mut statement = conn.prepare_cached(PARTITION_OF)?;
    let mut rows = statement.query(params![id.0])?;
    match rows.next()? {
        None => Ok(None),
        Some(row) => cells::maybe_key(row, 0),
    }
}
