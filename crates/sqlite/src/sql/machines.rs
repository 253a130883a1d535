//! What is declared of machines.

use abide_core::model::{Declared, Name};
use rusqlite::{Connection, Result, Row, params};

use crate::cells;

/// By primary key.
pub(crate) const DECLARED: &str = "
    select machine, version, first_step, queue, history from abide_machines where machine = ?1";

/// The declarations of the machines named.
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

fn read(row: &Row<'_>) -> Result<Declared> {
    Ok(Declared {
        machine: cells::name(row, 0)?,
        version: row.get(1)?,
        first_step: cells::name(row, 2)?,
        queue: cells::name(row, 3)?,
        history: cells::flag(row, 4)?,
    })
}

/// By primary key. One that says what is there already writes nothing.
const DECLARE: &str = "
    insert into abide_machines (machine, version, first_step, queue, history) values (?1, ?2, ?3, ?4, ?5)
    on conflict (machine, version) do update
    set first_step = excluded.first_step, queue = excluded.queue, history = excluded.history
    where (first_step, queue, history) is not (excluded.first_step, excluded.queue, excluded.history)";

/// Writes declarations, over those of the same machine and version.
pub(crate) fn declare(conn: &Connection, declared: &[Declared]) -> Result<()> {
    let mut statement = conn.prepare_cached(DECLARE)?;
    for one in declared {
        statement.execute(params![
            one.machine.as_str(),
            one.version,
            one.first_step.as_str(),
            one.queue.as_str(),
            one.history,
        ])?;
    }
    Ok(())
}
