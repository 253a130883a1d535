//! Contracts, and which of them are in use.

use std::collections::BTreeMap;

use abide_core::model::{ContractId, InstanceId, Json, Timestamp};
use abide_kernel::Result;
use tokio_postgres::Row as Answered;

use crate::arrays::arrays;
use crate::cells::each;
use crate::param::Param;
use crate::txn::Transaction;

/// Contracts, by id.
///
/// Index: `definitions_pkey`.
pub const DEFINITIONS: &str = "\
select id, contract from abide.definitions where id = any((select $1::bigint[])::bigint[])";

/// Contracts in order of their ids, so that the end of a page shows which are left.
///
/// Index: `definitions_pkey`.
pub const DEFINITIONS_IN_ORDER: &str = "\
select id, contract from abide.definitions where id = any((select $1::bigint[])::bigint[]) order by id";

/// Inserts contracts; existing ones stay unchanged.
///
/// Index: `definitions_pkey`. Locks: the rows, by id.
pub const DEFINE: &str = concat!(
    "\
insert into abide.definitions (id, contract, used_at) \
select id, contract, $3 from ",
    arrays!(1 id bigint, 2 contract text),
    " c \
on conflict (id) do nothing"
);

/// Records that contracts are used. It runs before they are written: it waits for a transaction that is about to delete
/// one, and then the contract is written anew.
///
/// Index: `definitions_pkey`. Locks: the rows, by id.
pub const NOTE_CONTRACTS: &str = "\
update abide.definitions d set used_at = $3 \
from (select id from abide.definitions \
    where id = any((select $1::bigint[])::bigint[]) and used_at < $2 \
    order by id for update) as old \
where d.id = old.id";

/// The first instances above an id, with the contract of each.
///
/// Index: `instances_pkey`.
pub const NAMED_CONTRACTS: &str = "\
select id, contract_id from abide.instances where id > $1 order by id limit (select $2::bigint)";

/// Contracts that were not used since a given time and that no machine declares.
///
/// Reads all contracts: their number is limited to those that were declared and not yet deleted. Locks: the rows; those
/// that another transaction has locked, to use or delete them, are skipped.
pub const UNUSED_CONTRACTS: &str = "\
select d.id from abide.definitions d \
where d.used_at < $1 \
    and not exists (select 1 from abide.machines m where m.contract_id = d.id) \
order by d.id limit (select $2::bigint) for update of d skip locked";

/// Deletes contracts.
///
/// Index: `definitions_pkey`. The rows are locked already.
pub const FORGET_CONTRACTS: &str = "\
delete from abide.definitions where id = any((select $1::bigint[])::bigint[])";

/// Reads contracts.
pub(crate) async fn contracts(
    txn: &mut Transaction<'_>,
    ids: &[ContractId],
) -> Result<Vec<(ContractId, Json)>> {
    let params = vec![Param::list(ids.iter().copied())];
    read_contracts(&txn.read(DEFINITIONS, params).await?)
}

/// Reads the rows of [`DEFINITIONS`].
pub(crate) fn read_contracts(rows: &[Answered]) -> Result<Vec<(ContractId, Json)>> {
    each(rows, |cells| Ok((cells.next()?, cells.next()?)))
}

/// Writes contracts.
pub(crate) fn define(
    txn: &mut Transaction<'_>,
    contracts: &[(ContractId, Json)],
    now: Timestamp,
) -> Result<()> {
    let sorted: BTreeMap<_, _> = contracts.iter().map(|(id, text)| (*id, text)).collect();
    let params = vec![
        Param::list(sorted.keys().copied()),
        Param::list(sorted.values().map(|text| text.as_str())),
        Param::one(now),
    ];
    txn.write(DEFINE, params)
}

/// Records that contracts are used.
pub(crate) fn note(
    txn: &mut Transaction<'_>,
    ids: &[ContractId],
    before: Timestamp,
    now: Timestamp,
) -> Result<()> {
    let params = vec![
        Param::list(ids.iter().copied()),
        Param::one(before),
        Param::one(now),
    ];
    txn.write(NOTE_CONTRACTS, params)
}

/// Reads the first instances above an id, with the contract of each.
pub(crate) async fn named(
    txn: &mut Transaction<'_>,
    above: InstanceId,
    limit: usize,
) -> Result<Vec<(InstanceId, Option<ContractId>)>> {
    let params = vec![Param::one(above), Param::one(limit)];
    let rows = txn.read(NAMED_CONTRACTS, params).await?;
    each(&rows, |cells| Ok((cells.next()?, cells.next()?)))
}

/// Finds contracts that were not used since a given time and that no machine declares.
pub(crate) async fn unused(
    txn: &mut Transaction<'_>,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<ContractId>> {
    let params = vec![Param::one(before), Param::one(limit)];
    each(&txn.read(UNUSED_CONTRACTS, params).await?, |cells| {
        cells.next()
    })
}

/// Deletes contracts.
pub(crate) fn forget(txn: &mut Transaction<'_>, ids: &[ContractId]) -> Result<()> {
    txn.write(FORGET_CONTRACTS, vec![Param::list(ids.iter().copied())])
}
