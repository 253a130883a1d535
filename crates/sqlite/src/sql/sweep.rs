//! Deletes finished instances, and other rows that are not needed any more.

use abide_core::model::{InstanceId, Timestamp};
use abide_core::rules::retention::Kin;
use abide_kernel::{Cursor, Expiring, Forget};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::{commands, events, limited, lookback, outbox, requests, workers};
use crate::cells;

/// Index: `abide_finished`, read from the cursor on.
pub(crate) const EXPIRING: &str = "
    select finished_at, id, coalesce(first_id, id), case when parent_barrier <> 0 then parent_id end
    from abide_instances
    where finished_at is not null and finished_at < ?1 and (finished_at, id) > (?2, ?3)
    order by finished_at, id limit ?4";

/// The first rows that finished before a given time, after the cursor, in that order.
pub(crate) fn expiring(
    conn: &Connection,
    before: Timestamp,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Vec<Expiring>> {
    let (at, id) = after.map_or((i64::MIN, i64::MIN), |after| {
        (after.finished_at.as_micros(), after.id.0)
    });
    let mut statement = conn.prepare_cached(EXPIRING)?;
    let rows = statement.query_map(params![before.as_micros(), at, id, limited(limit)], read)?;
    rows.collect()
}

fn read(row: &Row<'_>) -> Result<Expiring> {
    Ok(Expiring {
        cursor: Cursor {
            finished_at: cells::time(row, 0)?,
            id: cells::id(row, 1)?,
        },
        chain: cells::id(row, 2)?,
        parent: row.get::<_, Option<i64>>(3)?.map(InstanceId),
    })
}

/// Index: the primary key.
pub(crate) const KIN: &str = "
    select status, case when parent_barrier <> 0 then parent_id end from abide_instances where id = ?1";

/// The relatives of these instances.
pub(crate) fn kin(conn: &Connection, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Kin)>> {
    let mut statement = conn.prepare_cached(KIN)?;
    let mut all = Vec::with_capacity(ids.len());
    for id in ids {
        let kin = |row: &Row<'_>| {
            Ok(Kin {
                status: cells::status(row, 0)?,
                parent: row.get::<_, Option<i64>>(1)?.map(InstanceId),
            })
        };
        all.extend(
            statement
                .query_row([id.0], kin)
                .optional()?
                .map(|kin| (*id, kin)),
        );
    }
    Ok(all)
}

/// Index: `abide_children`; children that have not ended are stepped over.
pub(crate) const EXPIRED_CHILDREN: &str = "
    select finished_at, id, coalesce(first_id, id), parent_id
    from abide_instances indexed by abide_children
    where parent_id = ?1 and parent_barrier > 0 and finished_at < ?2 order by parent_barrier, id limit ?3";

/// The children of these instances that finished before a given time and have a place at a barrier.
pub(crate) fn expired_children(
    conn: &Connection,
    parents: &[InstanceId],
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Expiring>> {
    let mut statement = conn.prepare_cached(EXPIRED_CHILDREN)?;
    let mut all = Vec::new();
    for parent in parents {
        let left = limit.saturating_sub(all.len());
        let values = params![parent.0, before.as_micros(), limited(left)];
        for child in statement.query_map(values, read)? {
            all.push(child?);
        }
    }
    Ok(all)
}

/// Index: the primary key.
pub(crate) const TRIM_HISTORY: &str = "
    delete from abide_history where instance_id = ?1 and seq in
        (select seq from abide_history where instance_id = ?1 order by seq limit ?2)";

/// Index: `abide_signals_of_run`, named twice: otherwise SQLite may scan a table that was small when it was analysed.
pub(crate) const TRIM_SIGNALS: &str = "
    delete from abide_signals indexed by abide_signals_of_run
    where instance_id = ?1 and id in
        (select id from abide_signals indexed by abide_signals_of_run
         where instance_id = ?1 and (dedup_key is null or sequence is null)
         order by id limit ?2)";

/// Deletes the histories of instances, and the records of commands to them except those that belong to their chains; at
/// most that many rows. Returns how many.
fn trim(conn: &Connection, ids: &[InstanceId], limit: usize) -> Result<usize> {
    let mut history = conn.prepare_cached(TRIM_HISTORY)?;
    let mut signals = conn.prepare_cached(TRIM_SIGNALS)?;
    let mut count = 0;
    for statement in [&mut history, &mut signals] {
        for id in ids {
            let left = limit.saturating_sub(count);
            count += statement.execute(params![id.0, limited(left)])?;
            if count >= limit {
                return Ok(count);
            }
        }
    }
    Ok(count)
}

/// Index: `abide_signals_deduped`.
pub(crate) const FORGET_CHAIN: &str = "
    delete from abide_signals indexed by abide_signals_deduped
    where chain_id = ?1 and dedup_key is not null and sequence is not null";

/// Deletes the records that were accepted with a dedup key in these chains.
pub(crate) fn forget_chains(conn: &Connection, chains: &[InstanceId]) -> Result<()> {
    let mut statement = conn.prepare_cached(FORGET_CHAIN)?;
    for chain in chains {
        statement.execute([chain.0])?;
    }
    Ok(())
}

/// Index: the primary key.
pub(crate) const DELETE: &str = "delete from abide_instances where id = ?1";

/// Deletes instances.
pub(crate) fn delete(conn: &Connection, ids: &[InstanceId]) -> Result<()> {
    let mut statement = conn.prepare_cached(DELETE)?;
    for id in ids {
        statement.execute([id.0])?;
    }
    Ok(())
}

/// Deletes at most that many rows that are not needed any more; returns how many.
pub(crate) fn forget(conn: &Connection, what: Forget<'_>, limit: usize) -> Result<usize> {
    let (select, deletes, before): (&str, &[&str], Timestamp) = match what {
        Forget::Workers(before) => {
            let values = params![before.as_micros(), limited(limit)];
            return conn.prepare_cached(workers::FORGET)?.execute(values);
        }
        Forget::Records(before) => (commands::ADRIFT, &[commands::DELETE], before),
        Forget::Held(now) => return commands::expire_held(conn, now, limit),
        Forget::Events(before) => {
            let deletes = &[events::DELETE_TERMS, events::DELETE];
            (events::OLD, deletes, before)
        }
        Forget::Paths(before) => (lookback::UNUSED, &[lookback::FORGET], before),
        Forget::Requests(before) => (requests::OLD, &[requests::DELETE], before),
        Forget::Refused(before) => (outbox::OLD_REFUSED, &[outbox::FORGET], before),
        Forget::RefusedById { ids, again } => return outbox::settle_refused(conn, ids, again),
        Forget::Belongings(ids) => return trim(conn, ids, limit),
    };
    let old = ids(conn, select, before, limit)?;
    if !old.is_empty() {
        for delete in deletes {
            let mut statement = conn.prepare_cached(delete)?;
            for id in &old {
                statement.execute([id])?;
            }
        }
    }
    Ok(old.len())
}

/// The first ids that a statement selects by a time.
pub(super) fn ids(
    conn: &Connection,
    select: &str,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(select)?;
    let rows = statement.query_map(params![before.as_micros(), limited(limit)], |row| {
        row.get(0)
    })?;
    rows.collect()
}
