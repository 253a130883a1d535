//! The outbox: rows that callers insert in transactions of their own, and refused requests (rule 17.3).

use abide_core::model::{OutboxId, Timestamp};
use abide_kernel::{OutboxDepth, OutboxProblem, OutboxRow, RefusedPage, RefusedRequest, Result};

use crate::arrays::arrays;
use crate::cells::{Cells, each};
use crate::param::{Param, parts};
use crate::pool::Pool;
use crate::read::ask;
use crate::txn::Transaction;

/// Takes the lock for taking rows, unless another transaction has it. An arbitrary number that other programs are
/// unlikely to use.
pub const TRY_OUTBOX: &str = "select pg_try_advisory_xact_lock(4710327810593620482)";

/// Those of the rows that still exist, locked.
///
/// Index: `outbox_pkey`. Locks: the rows, by id. Nothing waits for them: only the holder of the lock above takes rows,
/// and callers only insert. A row that is locked nevertheless is skipped.
pub const HOLD_OUTBOX: &str = "\
select id from abide.outbox where id = any((select $1::bigint[])::bigint[]) order by id for update skip locked";

/// Deletes rows that were taken. Index: `outbox_pkey`.
pub const TAKE_OUTBOX: &str =
    "delete from abide.outbox where id = any((select $1::bigint[])::bigint[])";

/// Records rows as refused. Index: `outbox_pkey`.
pub const REFUSE_OUTBOX: &str = concat!(
    "\
insert into abide.outbox_refused (outbox_id, created_at, refused_at, role, reason, problem, request) \
select r.id, o.created_at, $1, o.role, r.reason, r.problem, o.request \
from ",
    arrays!(2 id bigint, 3 reason text, 4 problem text),
    " r \
cross join lateral (select created_at, role, request from abide.outbox o where o.id = r.id limit 1) o \
order by r.id"
);

/// The first rows except given ones, up to a number of bytes in total, but at least one.
///
/// Index: `outbox_pkey`, read from its beginning. The size of a text is known without reading it.
pub const OUTBOX: &str = "\
select id, request, role from ( \
    select id, request, role, sum(octet_length(request)) over (order by id) - octet_length(request) as before \
    from (select id, request, role from abide.outbox \
        where id <> all((select $1::bigint[])::bigint[]) order by id limit $2) first) counted \
where before < $3::bigint order by id";

/// A page of refused requests, newest first, up to a number of bytes in total, but at least one; one more row shows
/// that there is a next page. Index: `outbox_refused_pkey`, read backwards.
pub const REFUSED: &str = "\
select id, outbox_id, request, role, created_at, refused_at, reason, problem from ( \
    select *, sum(octet_length(request)) over (order by id desc) - octet_length(request) as before \
    from (select * from abide.outbox_refused where id < $1 order by id desc limit $2) first) counted \
where before < $3::bigint order by id desc";

/// Deletes refused requests. Index: `outbox_refused_pkey`.
pub const FORGET_SOME_REFUSED: &str =
    "delete from abide.outbox_refused where id = any((select $1::bigint[])::bigint[]) returning id";

/// Moves refused requests to the end of the outbox, in the same order. Index: `outbox_refused_pkey`.
pub const TAKE_REFUSED_AGAIN: &str = "\
with again as ( \
    delete from abide.outbox_refused where id = any((select $1::bigint[])::bigint[]) \
    returning id, created_at, role, request) \
insert into abide.outbox (created_at, role, request) \
select created_at, role, request from again order by id returning id";

/// Deletes requests that were refused long ago.
///
/// Index: `outbox_refused_at`, read from its beginning. Locks: the rows; those that another sweep has locked are
/// skipped.
pub const FORGET_REFUSED: &str = "\
delete from abide.outbox_refused \
where id = any(array( \
    select r.id from abide.outbox_refused r where r.refused_at < $1 \
    order by r.refused_at, r.id limit (select $2::bigint) for update skip locked)) \
returning id";

/// Number of waiting rows, insertion time of the first, and number of refused requests; counted up to a limit.
pub const OUTBOX_DEPTH: &str = "\
select (select count(*) from (select 1 from abide.outbox limit $1) w), \
    (select created_at from abide.outbox order by id limit 1), \
    (select count(*) from (select 1 from abide.outbox_refused limit $1) r)";

/// Locks those of these rows that exist. Returns `None` if another transaction takes rows.
pub(crate) async fn hold(
    txn: &mut Transaction<'_>,
    ids: &[OutboxId],
) -> Result<Option<Vec<OutboxId>>> {
    let locked = txn.read(TRY_OUTBOX, Vec::new()).await?;
    let locked = each(&locked, |cells| cells.next::<bool>())?;
    if locked.first() != Some(&true) {
        return Ok(None);
    }
    // Sent only after the first statement has its lock. So rows that others took before are gone, and a transaction
    // without the lock never locks a row; otherwise the rows behind that row would be taken before it.
    let which = vec![Param::list(ids.iter().copied())];
    let rows = txn.read(HOLD_OUTBOX, which).await?;
    each(&rows, |cells| cells.next()).map(Some)
}

/// Records rows as refused, and deletes all held rows.
pub(crate) fn settle(
    txn: &mut Transaction<'_>,
    held: &[OutboxId],
    refused: &[(OutboxId, OutboxProblem)],
    now: Timestamp,
) -> Result<()> {
    for part in parts(refused, |(_, problem)| problem.problem.len()) {
        let problems = || part.iter().map(|(_, problem)| problem);
        let params = vec![
            Param::one(now),
            Param::list(part.iter().map(|(id, _)| *id)),
            Param::list(problems().map(|problem| &*problem.reason)),
            Param::list(problems().map(|problem| problem.problem.as_str())),
        ];
        txn.write(REFUSE_OUTBOX, params)?;
    }
    txn.write(TAKE_OUTBOX, vec![Param::list(held.iter().copied())])
}

/// Deletes refused requests, and inserts them into the outbox again if `again` is set; returns how many.
pub(crate) async fn settle_refused(
    txn: &mut Transaction<'_>,
    ids: &[OutboxId],
    again: bool,
) -> Result<usize> {
    let sql = match again {
        true => TAKE_REFUSED_AGAIN,
        false => FORGET_SOME_REFUSED,
    };
    let ids = vec![Param::list(ids.iter().copied())];
    Ok(txn.read(sql, ids).await?.len())
}

/// Reads the first rows except given ones.
pub(crate) async fn rows(
    pool: &Pool,
    passed_over: &[OutboxId],
    limit: usize,
    bytes: usize,
) -> Result<Vec<OutboxRow>> {
    let params = vec![
        Param::list(passed_over.iter().copied()),
        Param::one(limit),
        Param::one(bytes),
    ];
    let rows = ask(pool, OUTBOX, params).await?;
    each(&rows, |cells| {
        Ok(OutboxRow {
            id: cells.next()?,
            request: cells.next()?,
            role: cells.next()?,
        })
    })
}

/// Reads a page of refused requests, newest first.
pub(crate) async fn refused(
    pool: &Pool,
    before: Option<OutboxId>,
    limit: usize,
    bytes: usize,
) -> Result<RefusedPage> {
    let params = vec![
        Param::one(before.unwrap_or(OutboxId(i64::MAX))),
        Param::one(limit.saturating_add(1)),
        Param::one(bytes.saturating_mul(2)),
    ];
    let items = each(&ask(pool, REFUSED, params).await?, read_refused)?;
    Ok(RefusedPage::of(items, limit, bytes, |last| last.id))
}

fn read_refused(cells: &mut Cells<'_>) -> Result<RefusedRequest> {
    Ok(RefusedRequest {
        id: cells.next()?,
        outbox_id: cells.next()?,
        request: cells.next()?,
        role: cells.next()?,
        created_at: cells.next()?,
        refused_at: cells.next()?,
        problem: OutboxProblem::new(cells.next::<String>()?, cells.next::<String>()?),
    })
}

/// Counts waiting and refused requests.
pub(crate) async fn depth(pool: &Pool) -> Result<OutboxDepth> {
    let most = usize::try_from(OutboxDepth::COUNTED_MAX).unwrap_or(usize::MAX);
    let rows = ask(pool, OUTBOX_DEPTH, vec![Param::one(most)]).await?;
    let depth = each(&rows, |cells| {
        Ok(OutboxDepth {
            waiting: cells.next()?,
            oldest: cells.next()?,
            refused: cells.next()?,
        })
    })?;
    Ok(depth.first().copied().unwrap_or_default())
}
