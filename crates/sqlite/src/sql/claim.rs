//! Claims runnable instances, and reads the priority of the first waiting row.

use std::fmt::Write as _;

use abide_core::model::{
    Claim, Claimed, InstanceId, Key, Lane, Lease, Name, ParentRef, Priority, Row, Scopes,
    Timestamp, WorkerId,
};
use abide_core::sql;
use abide_kernel::{ClaimRequest, ClaimRoom, Leased, claimed_bytes};
use rusqlite::{CachedStatement, Connection, Result, params};

pub(crate) use super::instances::CANDIDATE;
use super::instances::claimed_row;
use super::load::is_fit;
use super::{Lazy, distinct, limited, update};
use crate::cells::{self, Names};
use crate::columns;

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

/// The columns for its order.
pub(crate) const ORDER: &str = "id, priority, ready_at";

/// Condition: the row is not unfit for the worker's build.
const IS_FIT: &str = is_fit!(
    "?3",
    "(select json_quote(coalesce(w.build, w.name)) from abide_workers w where w.id = ?3)"
);

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
             and {IS_FIT}"
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
        let Some(lane) = lanes.get(usize::from(row.get::<_, u16>(25)?)) else {
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
    let row = claimed_row(found, request.worker, &request.queue, lane, steps)?;
    let parent = match row.parent {
        None => None,
        Some(id) => Some(ParentRef {
            id,
            partition: partition_of(conn, id)?,
        }),
    };
    let partition = row.partition_key.clone();
    let claim = Claim::granted(row.id, row.epoch, request.worker, partition, parent);
    let (key, state) = (cells::maybe_key(found, 15)?, cells::json(found, 22)?);
    let policy = cells::policy(found, 20)?;
    Ok(Candidate {
        claimed: Claimed::new(claim, &row, lane.version, key, state, policy),
        guarded: row.partition_key.is_some()
            || (row.scopes != Scopes::NONE && cells::flag(found, 24)?),
        row,
    })
}

macro_rules! take {
    ($more:literal) => {
        sql! {
            "update abide_instances
            set status = @executing, ready_at = null, worker = ?1, epoch = epoch + 1, updated_at = ?2", $more,
            " where id between ?3 and ?4"
        }
    };
}

/// Index: the primary key. The rows leave `abide_claimable` and enter `abide_held`.
pub(crate) const TAKE: &str = take!("");

/// The same, for rows that keep the front of their partition; they may also take or free their keys.
pub(crate) const TAKE_GUARDED: &str = take!(
    ", standing = iif(partition_key is null, null, 3),
       taken = iif(taken is null, null, scopes >> @executing & 65537)"
);

/// Takes the candidates. Rows with consecutive ids, as rows that were started together have, are taken by one statement:
/// it begins, ends and opens the indexes once for all of them.
fn take(
    conn: &Connection,
    candidates: &[Candidate],
    worker: WorkerId,
    now: Timestamp,
) -> Result<()> {
    for (guarded, sql) in [(false, TAKE), (true, TAKE_GUARDED)] {
        let of_kind = candidates.iter().filter(|one| one.guarded == guarded);
        let mut ids: Vec<i64> = of_kind.map(|one| one.row.id.0).collect();
        ids.sort_unstable();
        let mut statement = Lazy::new(conn, sql);
        for run in ids.chunk_by(|one, next| one.abs_diff(*next) == 1) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                let values = params![worker.0, now.as_micros(), first, last];
                statement.get()?.execute(values)?;
            }
        }
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
