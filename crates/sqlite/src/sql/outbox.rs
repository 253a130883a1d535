//! The outbox: rows that callers insert in transactions of their own, and refused requests (rule 17.3).

use abide_core::model::{OutboxId, Timestamp};
use abide_kernel::{OutboxDepth, OutboxProblem, OutboxRow, RefusedRequest, gather};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::limited;
use crate::cells;

/// Index: the primary key.
pub(crate) const THERE: &str = "select 1 from abide_outbox where id = ?1";

/// Those of the rows that exist. No other transaction can write meanwhile.
pub(crate) fn hold(conn: &Connection, ids: &[OutboxId]) -> Result<Vec<OutboxId>> {
    let mut statement = conn.prepare_cached(THERE)?;
    let mut there = Vec::with_capacity(ids.len());
    for id in ids {
        if statement.exists([id.0])? {
            there.push(*id);
        }
    }
    Ok(there)
}

/// Index: the primary key.
pub(crate) const REFUSE: &str = "
    insert into abide_outbox_refused (outbox_id, created_at, refused_at, reason, problem, request)
    select id, created_at, ?2, ?3, ?4, request from abide_outbox where id = ?1";

/// Index: the primary key.
pub(crate) const TAKE: &str = "delete from abide_outbox where id = ?1";

/// Records some rows as refused, and deletes all of them.
pub(crate) fn settle(
    conn: &Connection,
    held: &[OutboxId],
    refused: &[(OutboxId, OutboxProblem)],
    now: Timestamp,
) -> Result<()> {
    if !refused.is_empty() {
        let mut statement = conn.prepare_cached(REFUSE)?;
        for (id, OutboxProblem { reason, problem }) in refused {
            statement.execute(params![id.0, now.as_micros(), &**reason, problem])?;
        }
    }
    let mut statement = conn.prepare_cached(TAKE)?;
    for id in held {
        statement.execute([id.0])?;
    }
    Ok(())
}

/// Index: the primary key, read from its beginning.
pub(crate) const ROWS: &str = "select id, request from abide_outbox order by id limit ?1";

/// The first rows except given ones, up to a number of bytes in total, but at least one.
pub(crate) fn rows(
    conn: &Connection,
    passed_over: &[OutboxId],
    limit: usize,
    bytes: usize,
) -> Result<Vec<OutboxRow>> {
    let mut statement = conn.prepare_cached(ROWS)?;
    let mut found = statement.query([limited(limit.saturating_add(passed_over.len()))])?;
    let (mut rows, mut met) = (Vec::new(), 0);
    while rows.len() < limit
        && met < bytes
        && let Some(row) = found.next()?
    {
        let id = OutboxId(row.get(0)?);
        if passed_over.contains(&id) {
            continue;
        }
        let request = text(row, 1)?;
        met += request.len();
        rows.push(OutboxRow {
            id,
            request,
            role: None,
        });
    }
    Ok(rows)
}

/// A text column as text: a caller may have inserted bytes that are not valid text, which no valid request has.
fn text(row: &Row<'_>, at: usize) -> Result<String> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    })
}

/// Index: the primary key, read from its end.
pub(crate) const REFUSED: &str = "
    select id, outbox_id, request, created_at, refused_at, reason, problem
    from abide_outbox_refused where id < ?1 order by id desc limit ?2";

/// The refused requests below an id, newest first, up to a number of bytes in total, and one more.
pub(crate) fn refused(
    conn: &Connection,
    before: OutboxId,
    limit: usize,
    bytes: usize,
) -> Result<Vec<RefusedRequest>> {
    let mut statement = conn.prepare_cached(REFUSED)?;
    let found = statement.query_map(params![before.0, limited(limit)], |row| {
        Ok(RefusedRequest {
            id: OutboxId(row.get(0)?),
            outbox_id: OutboxId(row.get(1)?),
            request: text(row, 2)?,
            role: None,
            created_at: cells::time(row, 3)?,
            refused_at: cells::time(row, 4)?,
            problem: OutboxProblem::new(row.get::<_, String>(5)?, row.get::<_, String>(6)?),
        })
    })?;
    gather(found, bytes)
}

/// Index: the primary key.
pub(crate) const AGAIN: &str = "
    insert into abide_outbox (created_at, request)
    select created_at, request from abide_outbox_refused where id = ?1";

/// Index: the primary key.
pub(crate) const FORGET: &str = "delete from abide_outbox_refused where id = ?1";

/// Deletes refused requests, and inserts them into the outbox again if `again` is set; returns how many.
pub(crate) fn settle_refused(conn: &Connection, ids: &[OutboxId], again: bool) -> Result<usize> {
    let mut forget = conn.prepare_cached(FORGET)?;
    let mut count = 0;
    for id in ids {
        if again {
            conn.prepare_cached(AGAIN)?.execute([id.0])?;
        }
        count += forget.execute([id.0])?;
    }
    Ok(count)
}

/// Index: `abide_outbox_refused_at`, read from its beginning.
pub(crate) const OLD_REFUSED: &str = "
    select id from abide_outbox_refused where refused_at < ?1 order by refused_at, id limit ?2";

/// Index: the primary key. Counts rows up to a limit.
pub(crate) const WAITING: &str = "select count(*) from (select 1 from abide_outbox limit ?1)";
pub(crate) const REFUSED_COUNT: &str =
    "select count(*) from (select 1 from abide_outbox_refused limit ?1)";
/// Index: the primary key.
pub(crate) const OLDEST: &str = "select created_at from abide_outbox order by id limit 1";

/// Counts waiting and refused requests.
pub(crate) fn depth(conn: &Connection) -> Result<OutboxDepth> {
    let most = i64::try_from(OutboxDepth::COUNTED_MAX).unwrap_or(i64::MAX);
    let count = |sql: &str| -> Result<u64> {
        let mut statement = conn.prepare_cached(sql)?;
        let count: i64 = statement.query_row([most], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or_default())
    };
    let mut oldest = conn.prepare_cached(OLDEST)?;
    Ok(OutboxDepth {
        waiting: count(WAITING)?,
        oldest: oldest.query_row([], |row| cells::time(row, 0)).optional()?,
        refused: count(REFUSED_COUNT)?,
    })
}
