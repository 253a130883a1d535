//! Finds runs by id, key or chain, and writes what one run hands over to the next.

use abide_core::model::{BarrierNumber, InstanceId, NewRow, Target};
use abide_core::sql;
use abide_kernel::{Found, Touched};
use rusqlite::{Connection, OptionalExtension, Result, Row};

use super::instances::{INSTANCE_COLUMNS, Reader};
use super::load::touched;
use super::{Lazy, one};
use crate::cells;

/// Index: the primary key.
pub(crate) const FIND_ID: &str = "select id, key, partition_key from abide_instances where id = ?1";

/// The run that a key refers to (rule 2.5): the live run that holds the key, through the index `abide_key_taken`; if
/// there is none, the newest, through `abide_key`, its last entry for the key.
pub(crate) const OF_KEY: &str = sql!(
    "coalesce(
            (select h.id from abide_instances h
                where h.key = ?1 and h.key is not null and h.taken & 1 = 1 and h.status < @first_ended),
            (select n.id from abide_instances n
                where n.key = ?1 and n.key is not null order by n.id desc limit 1))"
);

/// Indexes: the primary key, and those of [`OF_KEY`].
pub(crate) const FIND_KEY: &str = sql!(
    "select id, key, partition_key from abide_instances where id = ",
    OF_KEY
);

/// The run that each target refers to, in order.
pub(crate) fn find(conn: &Connection, targets: &[Target]) -> Result<Vec<Option<Found>>> {
    let mut by_id = Lazy::new(conn, FIND_ID);
    let mut by_key = Lazy::new(conn, FIND_KEY);
    let mut all = Vec::with_capacity(targets.len());
    for target in targets {
        let found = match target {
            Target::Id(id) => by_id.get()?.query_row([id.0], found),
            Target::Key(key) => by_key.get()?.query_row([key.as_str()], found),
        };
        all.push(found.optional()?);
    }
    Ok(all)
}

fn found(row: &Row<'_>) -> Result<Found> {
    Ok(Found {
        id: cells::id(row, 0)?,
        key: cells::maybe_key(row, 1)?,
        partition: cells::maybe_key(row, 2)?,
    })
}

/// Index: `abide_chain`, its last entry for the chain.
pub(crate) const NEWEST: &str = "
    select id from abide_instances
    where first_id = ?1 and first_id is not null order by id desc limit 1";

/// Index: the primary key. Finds the first run of the chain, for a chain without other runs.
pub(crate) const FIRST: &str = "select id from abide_instances where id = ?1 and first_id is null";

/// The newest run of each of these chains, as chain and run.
pub(crate) fn newest(
    conn: &Connection,
    chains: &[InstanceId],
) -> Result<Vec<(InstanceId, InstanceId)>> {
    let mut newest = conn.prepare_cached(NEWEST)?;
    let mut first = Lazy::new(conn, FIRST);
    let id = |row: &Row<'_>| cells::id(row, 0);
    let mut all = Vec::with_capacity(chains.len());
    for chain in chains {
        let run = match newest.query_row([chain.0], id).optional()? {
            None => first.get()?.query_row([chain.0], id).optional()?,
            newest => newest,
        };
        all.extend(run.map(|run| (*chain, run)));
    }
    Ok(all)
}

/// Index: the primary key.
pub(crate) const COPY: &str = sql! {
    "select ", INSTANCE_COLUMNS, " from abide_instances where id = ?1"
};

/// The rows with these ids as new rows to insert.
pub(crate) fn copies(conn: &Connection, ids: &[InstanceId]) -> Result<Vec<(InstanceId, NewRow)>> {
    let mut statement = conn.prepare_cached(COPY)?;
    let mut reader = Reader::default();
    let mut copies = Vec::with_capacity(ids.len());
    for id in ids {
        let found = statement.query_row([id.0], |row| reader.instance(row));
        let found = found.optional()?;
        copies.extend(found.map(|instance| (*id, instance.into())));
    }
    Ok(copies)
}

/// Index: the primary key. Frees its keys permanently, and its place in `abide_children`.
pub(crate) const SUPERSEDE: &str = "
    update abide_instances
    set scopes = 0, taken = iif(taken is null, null, 0), parent_barrier = 0
    where id = ?1";

/// Marks runs that are followed by another: they hold no key, and have no place at their parent's barrier.
pub(crate) fn supersede(conn: &Connection, ids: &[InstanceId]) -> Result<()> {
    let mut statement = conn.prepare_cached(SUPERSEDE)?;
    for id in ids {
        one(statement.execute([id.0])?)?;
    }
    Ok(())
}

/// Index: `abide_children`, one barrier. The rows move in it.
pub(crate) const ADOPT: &str = "
    update abide_instances set parent_id = ?3
    where parent_id = ?1 and parent_id is not null and parent_barrier = ?2 returning id";

/// Gives the children of a barrier to another parent, and returns them.
pub(crate) fn adopt(
    conn: &Connection,
    (parent, barrier): (InstanceId, BarrierNumber),
    by: InstanceId,
) -> Result<Vec<InstanceId>> {
    let mut statement = conn.prepare_cached(ADOPT)?;
    let moved = statement.query_map([parent.0, i64::from(barrier.0), by.0], |row| {
        cells::id(row, 0)
    })?;
    moved.collect()
}

/// Index: `abide_children`, all barriers of one parent. Children with a lower status have not ended.
pub(crate) const LIVE_CHILDREN: &str = sql!(
    "
    select id, partition_key from abide_instances
    where parent_id = ?1 and parent_id is not null and status < @first_ended"
);

/// The children of these instances, of all barriers, that have not ended, by id.
pub(crate) fn live_children(conn: &Connection, parents: &[InstanceId]) -> Result<Vec<Touched>> {
    let mut statement = conn.prepare_cached(LIVE_CHILDREN)?;
    let mut all = Vec::new();
    for parent in parents {
        for child in statement.query_map([parent.0], touched)? {
            all.push(child?);
        }
    }
    all.sort_unstable_by_key(|child| child.id);
    Ok(all)
}
