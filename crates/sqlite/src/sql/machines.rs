//! The declarations of machines.

use abide_core::model::{Declared, InstanceId, Kind, Lane, Name, Policies};
use abide_core::sql;
use abide_kernel::gather;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::{columns, limited};
use crate::cells;

/// Index: the primary key.
pub(crate) const DECLARED: &str = "
    select kind, machine, version, first_step, queue, history, contract, policy from abide_machines where machine = ?1";

/// The declarations of the given machines.
pub(crate) fn declared(conn: &Connection, machines: &[Name]) -> Result<Vec<Declared>> {
    let mut statement = conn.prepare_cached(DECLARED)?;
    let mut found = Vec::new();
    for machine in machines {
        for one in statement.query_map([machine.as_str()], read)? {
            found.push(one?);
        }
    }
    Ok(found)
}

/// Index: the primary key, in its order, from a machine and a version on.
pub(crate) const LIST: &str = "
    select kind, machine, version, first_step, queue, history, contract, policy from abide_machines
    where (machine, version) > (?1, ?2) order by machine, version limit ?3";

/// The declarations above a machine and a version, in that order, as many as fit in that many bytes and one more.
pub(crate) fn list(
    conn: &Connection,
    after: Option<&Lane>,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Declared>> {
    let mut statement = conn.prepare_cached(LIST)?;
    // No name is empty.
    let (machine, version) = after.map_or(("", 0), |lane| (lane.machine.as_str(), lane.version));
    let params = params![machine, version, limited(limit)];
    gather(statement.query_map(params, read)?, bytes)
}

/// The machine and the version of a declaration.
pub(crate) fn lane(declared: &Declared) -> Lane {
    Lane {
        machine: declared.machine.clone(),
        version: declared.version,
    }
}

fn read(row: &Row<'_>) -> Result<Declared> {
    Ok(Declared {
        kind: cells::code(row, 0, Kind::from_code)?,
        machine: cells::name(row, 1)?,
        version: row.get(2)?,
        first_step: cells::name(row, 3)?,
        queue: cells::name(row, 4)?,
        history: cells::flag(row, 5)?,
        contract: cells::maybe_contract(row, 6)?,
        retry: None,
        step_timeout_ms: None,
        max_deaths: None,
    }
    .with_policy(cells::policy(row, 7)?))
}

/// Indexes: the primary keys of both tables.
pub(crate) const POLICY: &str = "
    select i.policy, m.policy from abide_instances i
    left join abide_machines m on m.machine = i.machine and m.version = i.version
    where i.id = ?1";

/// The failure policies that these instances were started with, and those that their machines declare.
pub(crate) fn policies(
    conn: &Connection,
    ids: &[InstanceId],
) -> Result<Vec<(InstanceId, Policies)>> {
    let mut statement = conn.prepare_cached(POLICY)?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let of = statement.query_row([id.0], |row| {
            Ok(Policies {
                own: cells::policy(row, 0)?,
                declared: cells::policy(row, 1)?,
            })
        });
        let of = of.optional()?.filter(|of| *of != Policies::default());
        found.extend(of.map(|of| (*id, of)));
    }
    Ok(found)
}

columns! {
    /// The columns of a declaration.
    Declaration: |one: &Declared| {
        1 machine: one.machine.as_str(),
        2 version: one.version,
        3 kind: one.kind.code(),
        4 first_step: one.first_step.as_str(),
        5 queue: one.queue.as_str(),
        6 history: one.history,
        7 contract: one.contract.map(|contract| contract.0),
        8 policy: one.policy().as_ref().map(cells::written).transpose()?,
    }
}

/// Index: the primary key. A declaration that equals the stored one writes nothing.
const DECLARE: &str = sql!(
    "insert into abide_machines (", Declaration::NAMES, ") values (", Declaration::VALUES, ")
    on conflict (machine, version) do update
    set kind = excluded.kind, first_step = excluded.first_step, queue = excluded.queue, history = excluded.history,
        contract = excluded.contract, policy = excluded.policy
    where (kind, first_step, queue, history, contract, policy)
       is not (excluded.kind, excluded.first_step, excluded.queue, excluded.history, excluded.contract,
               excluded.policy)"
);

/// Inserts or overwrites declarations by machine and version.
pub(crate) fn declare(conn: &Connection, declared: &[Declared]) -> Result<()> {
    let mut statement = conn.prepare_cached(DECLARE)?;
    for one in declared {
        Declaration::bind(&mut statement, one)?;
        statement.raw_execute()?;
    }
    Ok(())
}
