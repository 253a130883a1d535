//! The pending commands of inboxes. Index: `abide_signals_pending`; commands that are closed or have another name are
//! never stepped over.

use abide_core::model::{
    Command, CommandId, CommandKind, CommandStatus, InstanceId, Name, Pending, Sequence,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::sql;
use rusqlite::{Connection, Params, Result, Row, params};

use super::commands::{read, select};
use super::{Lazy, distinct};
use crate::cells;

/// All pending commands.
pub(crate) const ALL: &str = "
    select id, kind, name, sequence, command_sequence, wait_id from abide_signals
    where pending_in = ?1 and pending_in is not null";

/// All pending commands except signals.
pub(crate) const UPDATES: &str = sql!(
    "
    select id, kind, name, sequence, command_sequence, wait_id from abide_signals
    where pending_in = ?1 and pending_in is not null and kind >= @update"
);

/// The pending signals of one name.
pub(crate) const NAMED: &str = sql!(
    "
    select id, kind, name, sequence, command_sequence, wait_id from abide_signals
    where pending_in = ?1 and pending_in is not null and kind = @signal and name = ?2"
);

/// The pending commands of these inboxes that `needs` names, in the order of `needs` and by sequence.
pub(crate) fn pending(
    conn: &Connection,
    needs: &[(InstanceId, InboxNeeds)],
) -> Result<Vec<(InstanceId, Pending)>> {
    let mut all = Lazy::new(conn, ALL);
    let mut updates = Lazy::new(conn, UPDATES);
    let mut named = Lazy::new(conn, NAMED);
    let mut found = Vec::new();
    let mut inbox: Vec<Pending> = Vec::new();
    for (id, need) in needs {
        if need.all {
            gather(&mut all, params![id.0], brief, &mut inbox)?;
        } else {
            if need.updates {
                gather(&mut updates, params![id.0], brief, &mut inbox)?;
            }
            for name in distinct(&need.names) {
                gather(&mut named, params![id.0, name.as_str()], brief, &mut inbox)?;
            }
        }
        inbox.sort_unstable_by_key(|pending| pending.sequence);
        found.extend(inbox.drain(..).map(|pending| (*id, pending)));
    }
    Ok(found)
}

/// Index: `abide_signals_pending`. Only the length of the arguments is read.
pub(crate) const BYTES: &str = "
    select coalesce(sum(octet_length(arguments)), 0) from abide_signals
    where pending_in = ?1 and pending_in is not null";

/// Bytes of the arguments that are pending in each inbox.
pub(crate) fn bytes(conn: &Connection, ids: &[InstanceId]) -> Result<Vec<(InstanceId, u64)>> {
    let mut statement = conn.prepare_cached(BYTES)?;
    let mut sizes = Vec::with_capacity(ids.len());
    for id in ids {
        let bytes: i64 = statement.query_row([id.0], |row| row.get(0))?;
        sizes.push((*id, bytes.unsigned_abs()));
    }
    Ok(sizes)
}

fn brief(row: &Row<'_>) -> Result<Pending> {
    Ok(Pending {
        id: CommandId(row.get(0)?),
        kind: cells::code(row, 1, CommandKind::from_code)?,
        name: cells::name(row, 2)?,
        sequence: Sequence(row.get(3)?),
        command_sequence: row.get::<_, Option<i64>>(4)?.map(Sequence),
        wait_id: cells::maybe_wait(row, 5)?,
    })
}

/// The signals of one name up to a sequence, with all columns.
pub(crate) const AWAITED: &str = select!(
    " where pending_in = ?1 and pending_in is not null and kind = @signal and name = ?2 and sequence <= ?3"
);

/// The pending signals of these names up to that sequence, with all columns, in the given order and by sequence.
pub(crate) fn awaited(
    conn: &Connection,
    of: &[(InstanceId, Vec<Name>, Sequence)],
) -> Result<Vec<Command>> {
    let mut statement = Lazy::new(conn, AWAITED);
    let mut found = Vec::new();
    let mut inbox = Vec::new();
    for (id, names, upto) in of {
        for name in distinct(names) {
            let values = params![id.0, name.as_str(), upto.0];
            gather(&mut statement, values, read, &mut inbox)?;
        }
        in_order(&mut inbox, &mut found);
    }
    Ok(found)
}

/// The commands whose kind is at least a given number, with all columns.
pub(crate) const FROM_KIND: &str =
    select!(" where pending_in = ?1 and pending_in is not null and kind >= ?2");

/// The pending updates and cancellations of these instances, with all columns, in the given order and by sequence.
pub(crate) fn updates(conn: &Connection, of: &[InstanceId]) -> Result<Vec<Command>> {
    from_kind(conn, of, CommandKind::Update)
}

/// All pending commands of an instance, with all columns, by sequence.
pub(crate) fn whole(conn: &Connection, of: InstanceId) -> Result<Vec<Command>> {
    from_kind(conn, &[of], CommandKind::Signal)
}

/// Index: `abide_signals_of_run`: all records of the run are read.
pub(crate) const APPLIED: &str = select!(
    " where instance_id = ?1 and instance_id is not null and kind = @signal and status = ?2 and step_seq = ?3"
);

/// The signals that a step of a run has consumed, with all columns, by sequence.
pub(crate) fn applied(
    conn: &Connection,
    instance: InstanceId,
    step_sequence: u32,
) -> Result<Vec<Command>> {
    let mut found = Vec::new();
    let values = params![instance.0, CommandStatus::Applied.code(), step_sequence];
    gather(&mut Lazy::new(conn, APPLIED), values, read, &mut found)?;
    found.sort_unstable_by_key(|command| command.sequence);
    Ok(found)
}

fn from_kind(conn: &Connection, of: &[InstanceId], first: CommandKind) -> Result<Vec<Command>> {
    let mut statement = Lazy::new(conn, FROM_KIND);
    let mut found = Vec::new();
    let mut inbox = Vec::new();
    for id in of {
        let values = params![id.0, first.code()];
        gather(&mut statement, values, read, &mut inbox)?;
        in_order(&mut inbox, &mut found);
    }
    Ok(found)
}

fn in_order(inbox: &mut Vec<Command>, found: &mut Vec<Command>) {
    inbox.sort_unstable_by_key(|command| command.sequence);
    found.append(inbox);
}

fn gather<T>(
    statement: &mut Lazy<'_>,
    values: impl Params,
    read: fn(&Row<'_>) -> Result<T>,
    into: &mut Vec<T>,
) -> Result<()> {
    for one in statement.get()?.query_map(values, read)? {
        into.push(one?);
    }
    Ok(())
}
