//! Contracts, and which of them are in use.

use abide_core::model::{ContractId, InstanceId, Json, Timestamp};
use abide_kernel::{Contracts, look_up};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::limited;
use crate::cells;

/// Index: the primary key.
const DEFINE: &str = "
    insert into abide_definitions (id, contract, used_at) values (?1, ?2, ?3) on conflict do nothing";

/// Inserts contracts; existing ones stay unchanged.
pub(crate) fn define(
    conn: &Connection,
    contracts: &[(ContractId, Json)],
    now: Timestamp,
) -> Result<()> {
    let mut statement = conn.prepare_cached(DEFINE)?;
    for (id, contract) in contracts {
        statement.execute(params![id.0, contract.as_str(), now.as_micros()])?;
    }
    Ok(())
}

/// Index: the primary key.
pub(crate) const CONTRACT: &str = "select contract from abide_definitions where id = ?1";

/// Reads a contract.
pub(crate) fn contract(conn: &Connection, id: ContractId) -> Result<Option<Json>> {
    let mut statement = conn.prepare_cached(CONTRACT)?;
    statement
        .query_row([id.0], |row| cells::json(row, 0))
        .optional()
}

/// Reads the contracts with these ids.
pub(crate) fn contracts(conn: &Connection, ids: &[ContractId]) -> Result<Vec<(ContractId, Json)>> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(contract(conn, *id)?.map(|contract| (*id, contract)));
    }
    Ok(found)
}

/// Reads the first of the contracts with these ids, as many as fit into a number of bytes.
pub(crate) fn by_ids(conn: &Connection, ids: &[ContractId], bytes: usize) -> Result<Contracts> {
    let mut found = Vec::new();
    let find = |id| Ok::<_, rusqlite::Error>(contract(conn, id)?.map(|contract| (id, contract)));
    let rest = look_up(ids, bytes, find, |one| found.push(one))?;
    Ok(Contracts { found, rest })
}

/// Index: the primary key.
pub(crate) const NOTE: &str =
    "update abide_definitions set used_at = ?3 where id = ?1 and used_at < ?2";

/// Records that contracts are used.
pub(crate) fn note(
    conn: &Connection,
    ids: &[ContractId],
    before: Timestamp,
    now: Timestamp,
) -> Result<()> {
    let mut statement = conn.prepare_cached(NOTE)?;
    for id in ids {
        statement.execute(params![id.0, before.as_micros(), now.as_micros()])?;
    }
    Ok(())
}

/// Index: the primary key.
pub(crate) const NAMED: &str =
    "select id, contract from abide_instances where id > ?1 order by id limit ?2";

/// The first instances above an id, with the contract of each.
pub(crate) fn named(
    conn: &Connection,
    above: InstanceId,
    limit: usize,
) -> Result<Vec<(InstanceId, Option<ContractId>)>> {
    let mut statement = conn.prepare_cached(NAMED)?;
    let rows = statement.query_map(params![above.0, limited(limit)], |row| {
        let contract: Option<i64> = row.get(1)?;
        Ok((InstanceId(row.get(0)?), contract.map(ContractId)))
    })?;
    rows.collect()
}

/// Reads all contracts: their number is limited to those that were declared and not yet deleted.
pub(crate) const UNUSED: &str = "
    select id from abide_definitions
    where used_at < ?1 and id not in (select contract from abide_machines where contract is not null)
    order by id limit ?2";

/// Contracts that were not used since a given time and that no machine declares.
pub(crate) fn unused(
    conn: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<ContractId>> {
    let mut statement = conn.prepare_cached(UNUSED)?;
    let rows = statement.query_map(params![before.as_micros(), limited(limit)], |row| {
        Ok(ContractId(row.get(0)?))
    })?;
    rows.collect()
}

/// Index: the primary key.
pub(crate) const FORGET: &str = "delete from abide_definitions where id = ?1";

/// Deletes contracts.
pub(crate) fn forget(conn: &Connection, ids: &[ContractId]) -> Result<()> {
    let mut statement = conn.prepare_cached(FORGET)?;
    for id in ids {
        statement.execute([id.0])?;
    }
    Ok(())
}
