//! Contracts, and which of them are in use.

use abide_core::model::{ContractId, InstanceId, Json, Timestamp};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::limited;
use crate::cells;

/// By primary key.
const DEFINE: &str = "
    insert into abide_definitions (id, contract, used_at) values (?1, ?2, ?3) on conflict do nothing";

/// Writes contracts; those that are there stay as they are.
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

/// By primary key.
pub(crate) const CONTRACT: &str = "select contract from abide_definitions where id = ?1";

/// A contract.
pub(crate) fn contract(conn: &Connection, id: ContractId) -> Result<Option<Json>> {
    let mut statement = conn.prepare_cached(CONTRACT)?;
    statement
        .query_row([id.0], |row| cells::json(row, 0))
        .optional()
}

/// The contracts with these ids.
pub(crate) fn contracts(conn: &Connection, ids: &[ContractId]) -> Result<Vec<(ContractId, Json)>> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(contract(conn, *id)?.map(|contract| (*id, contract)));
    }
    Ok(found)
}

/// By primary key.
pub(crate) const NOTE: &str =
    "update abide_definitions set used_at = ?3 where id = ?1 and used_at < ?2";

/// Notes that contracts are used.
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

/// By primary key.
pub(crate) const NAMED: &str =
    "select id, contract from abide_instances where id > ?1 order by id limit ?2";

/// The first instances above an id, with the contract that each names.
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

/// All contracts are looked at: there are as many as were ever declared and not yet deleted.
pub(crate) const UNUSED: &str = "
    select id from abide_definitions
    where used_at < ?1 and id not in (select contract from abide_machines where contract is not null)
    order by id limit ?2";

/// Contracts that nobody has used since a moment, and no machine declares.
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

/// By primary key.
pub(crate) const FORGET: &str = "delete from abide_definitions where id = ?1";

/// Deletes contracts.
pub(crate) fn forget(conn: &Connection, ids: &[ContractId]) -> Result<()> {
    let mut statement = conn.prepare_cached(FORGET)?;
    for id in ids {
        statement.execute([id.0])?;
    }
    Ok(())
}
