//! The records of signals and updates: statements that write, close, move and list them.

use abide_core::model::{
    Closing, Command, CommandId, CommandKind, CommandStatus, InstanceId, Key, Name, Rejection,
    Sequence, Timestamp, WaitId,
};
use abide_core::sql;
use abide_kernel::{CommandFilter, Records, gather, look_up};
use rusqlite::types::Value;
use rusqlite::{
    CachedStatement, Connection, OptionalExtension, Result, Row, params, params_from_iter,
};

use super::{Conditions, columns, limited, one, sweep};
use crate::cells;
use crate::columns::NEVER;

/// Index: the primary key. A transaction that draws ids has written here, so it is the only writer until it commits; a
/// rollback returns the ids.
pub(crate) const NUMBER: &str =
    "update abide_numbers set last = last + ?1 where name = 'signals' returning last";

/// Draws that many ids for records, ascending. No record has, has had, or is about to get one of them.
pub(crate) fn number(conn: &Connection, count: usize) -> Result<Vec<CommandId>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let count = limited(count);
    let mut statement = conn.prepare_cached(NUMBER)?;
    let last: i64 = statement.query_row([count], |row| row.get(0))?;
    Ok((last - count + 1..=last).map(CommandId).collect())
}

columns! {
    /// The columns of a record.
    Record: |command: &Command| {
        1 id: command.id.0,
        2 status: command.status.code(),
        3 kind: command.kind.code(),
        4 instance_id: command.instance.map(|instance| instance.0),
        5 chain_id: command.chain.map(|chain| chain.0),
        6 sequence: command.sequence.map(|sequence| sequence.0),
        7 pending_in: pending_in(command),
        8 held_until: held_until(command),
        9 name: command.name.as_str(),
        10 key: command.key.as_ref().map(Key::as_str),
        11 dedup_key: command.dedup_key.as_ref().map(Name::as_str),
        12 wait_id: command.wait_id.as_ref().map(WaitId::as_str),
        13 step_seq: command.step_sequence,
        14 received_at: command.received_at.as_micros(),
        15 hold_until: command.hold_until.map(Timestamp::as_micros),
        16 closed_at: command.closed_at.map(Timestamp::as_micros),
        17 rejection: command.rejection.map(Rejection::code),
        18 source: command.source.as_deref(),
        19 error: command.error.as_deref(),
        20 validation_errors: command.validation_errors.as_ref().map(|errors| errors.as_str()),
        21 result: command.result.as_ref().map(|result| result.as_str()),
        22 arguments: command.arguments.as_str(),
        23 claimed_source: command.claimed_source.as_deref(),
        24 command_sequence: command.command_sequence.map(|number| number.0),
        25 operation: command.operation,
        26 graph_step: command.graph_step.as_ref().map(Name::as_str),
    }
}

/// The instance in whose inbox the record is pending.
fn pending_in(command: &Command) -> Option<i64> {
    let pending = command.status.is_pending() && command.sequence.is_some();
    command
        .instance
        .filter(|_| pending)
        .map(|instance| instance.0)
}

/// When a held record expires.
fn held_until(command: &Command) -> Option<i64> {
    let held = command.status == CommandStatus::Held;
    held.then(|| command.hold_until.map_or(NEVER, Timestamp::as_micros))
}

/// The record enters the indexes that apply to it. A dedup key that is taken is an error: `abide_signals_deduped`.
pub(crate) const INSERT: &str = sql! {
    "insert into abide_signals (", Record::NAMES, ") values (", Record::VALUES, ")"
};

/// Index: the primary key. Uses the same values as the insert.
pub(crate) const REWRITE: &str = sql!("update abide_signals set ", Record::SET, " where id = ?1");

/// Inserts records.
pub(crate) fn insert(conn: &Connection, commands: &[Command]) -> Result<()> {
    let mut statement = conn.prepare_cached(INSERT)?;
    write_all(&mut statement, commands)
}

/// Overwrites existing records completely.
pub(crate) fn rewrite(conn: &Connection, commands: &[Command]) -> Result<()> {
    let mut statement = conn.prepare_cached(REWRITE)?;
    write_all(&mut statement, commands)
}

fn write_all(statement: &mut CachedStatement<'_>, commands: &[Command]) -> Result<()> {
    for command in commands {
        Record::bind(statement, command)?;
        one(statement.raw_execute()?)?;
    }
    Ok(())
}

/// Index: the primary key. The record leaves `abide_signals_pending`; no other index is written.
pub(crate) const CLOSE: &str = "
    update abide_signals
    set status = ?2, pending_in = null, wait_id = coalesce(?3, wait_id), step_seq = ?4, closed_at = ?5, error = ?6,
        result = ?7, operation = ?8, graph_step = ?9
    where id = ?1";

/// Closes pending records.
pub(crate) fn close(conn: &Connection, closings: &[Closing], now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(CLOSE)?;
    for closing in closings {
        one(statement.execute(params![
            closing.id.0,
            closing.status.code(),
            closing.wait_id.as_ref().map(WaitId::as_str),
            closing.step_sequence,
            now.as_micros(),
            closing.error.as_deref(),
            closing.result.as_ref().map(|result| result.as_str()),
            closing.operation,
            closing.graph_step.as_ref().map(Name::as_str),
        ])?)?;
    }
    Ok(())
}

/// Index: `abide_signals_pending`, which covers all columns that are read.
pub(crate) const PENDING: &str = "
    select sequence, id from abide_signals where pending_in = ?1 and pending_in is not null";

/// Index: the primary key. The record moves in `abide_signals_pending` and `abide_signals_of_run`.
pub(crate) const MOVE_PENDING: &str = "
    update abide_signals set instance_id = ?2, pending_in = ?2, command_sequence = ?3 where id = ?1";

/// Moves the pending commands of the first run of each pair to the second, which numbers them anew, in the same order.
pub(crate) fn move_pending(conn: &Connection, moves: &[(InstanceId, InstanceId)]) -> Result<()> {
    let mut pending = conn.prepare_cached(PENDING)?;
    let mut statement = conn.prepare_cached(MOVE_PENDING)?;
    for (from, to) in moves {
        let found = pending.query_map([from.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut found: Vec<(i64, i64)> = found.collect::<Result<_>>()?;
        found.sort_unstable();
        for (number, (_, id)) in (1_i64..).zip(found) {
            one(statement.execute([id, to.0, number])?)?;
        }
    }
    Ok(())
}

/// All columns of a record, in the order in which [`read`] reads them.
macro_rules! select {
    ($where:literal) => {
        abide_core::sql! {
            "select id, kind, name, status, rejection, instance_id, chain_id, key, sequence, arguments,
                    validation_errors, dedup_key, source, wait_id, step_seq, received_at, hold_until, closed_at, result,
                    error, claimed_source, command_sequence, operation, graph_step
             from abide_signals", $where
        }
    };
}
pub(super) use select;

/// Reads a record with all its columns.
pub(super) fn read(row: &Row<'_>) -> Result<Command> {
    Ok(Command {
        id: CommandId(row.get(0)?),
        kind: cells::code(row, 1, CommandKind::from_code)?,
        name: cells::name(row, 2)?,
        status: cells::known(row, 3, CommandStatus::from_code)?,
        rejection: row.get::<_, Option<i16>>(4)?.and_then(Rejection::from_code),
        instance: cells::maybe_id(row, 5)?,
        chain: cells::maybe_id(row, 6)?,
        key: cells::maybe_key(row, 7)?,
        sequence: row.get::<_, Option<i64>>(8)?.map(Sequence),
        arguments: cells::json(row, 9)?,
        validation_errors: cells::maybe_json(row, 10)?,
        dedup_key: cells::maybe_name(row, 11)?,
        source: row.get(12)?,
        wait_id: cells::maybe_wait(row, 13)?,
        step_sequence: row.get(14)?,
        received_at: cells::time(row, 15)?,
        hold_until: cells::maybe_time(row, 16)?,
        closed_at: cells::maybe_time(row, 17)?,
        result: cells::maybe_json(row, 18)?,
        error: row.get(19)?,
        claimed_source: row.get(20)?,
        command_sequence: row.get::<_, Option<i64>>(21)?.map(Sequence),
        operation: row.get(22)?,
        graph_step: cells::maybe_name(row, 23)?,
    })
}

/// Index: `abide_signals_deduped`, which has at most one entry for each.
pub(crate) const DEDUPED: &str = select!(
    " where chain_id = ?1 and kind = ?2 and dedup_key = ?3 and dedup_key is not null and sequence is not null"
);

/// The records that were accepted in these chains with these dedup keys.
pub(crate) fn deduped(
    conn: &Connection,
    keys: &[(InstanceId, CommandKind, Name)],
) -> Result<Vec<Command>> {
    let mut statement = conn.prepare_cached(DEDUPED)?;
    let mut found = Vec::new();
    for (chain, kind, key) in keys {
        let values = params![chain.0, kind.code(), key.as_str()];
        found.extend(statement.query_row(values, read).optional()?);
    }
    Ok(found)
}

/// Index: `abide_signals_held`.
pub(crate) const HELD: &str =
    select!(" indexed by abide_signals_held where key = ?1 and held_until is not null");

/// The records that are held for these keys, by id.
pub(crate) fn held(conn: &Connection, keys: &[Key]) -> Result<Vec<Command>> {
    let mut statement = conn.prepare_cached(HELD)?;
    let mut held = Vec::new();
    for key in keys {
        for command in statement.query_map([key.as_str()], read)? {
            held.push(command?);
        }
    }
    held.sort_unstable_by_key(|command| command.id);
    Ok(held)
}

/// Index: `abide_signals_held`. Only the length of the arguments is read.
pub(crate) const HELD_SIZES: &str = "
    select count(*), coalesce(sum(octet_length(arguments)), 0) from abide_signals indexed by abide_signals_held
    where key = ?1 and held_until is not null and held_until > ?2";

/// Number and bytes of the records that are held for each key.
pub(crate) fn held_sizes(
    conn: &Connection,
    keys: &[Key],
    now: Timestamp,
) -> Result<Vec<(Key, usize, u64)>> {
    let mut statement = conn.prepare_cached(HELD_SIZES)?;
    let mut sizes = Vec::with_capacity(keys.len());
    for key in keys {
        let (count, bytes): (i64, i64) = statement
            .query_row(params![key.as_str(), now.as_micros()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        sizes.push((key.clone(), count, bytes.unsigned_abs()));
    }
    Ok(sizes)
}

/// Index: `abide_signals_held_until`, read from its beginning.
pub(crate) const OVER: &str = "
    select id from abide_signals
    where held_until is not null and held_until <= ?1 order by held_until, id limit ?2";

/// Index: the primary key. The record leaves the indexes of held records and enters `abide_signals_adrift`.
pub(crate) const EXPIRE: &str = sql!(
    "update abide_signals set status = @expired, held_until = null, closed_at = ?2 where id = ?1"
);

/// Marks held records as expired if their time is over; returns how many.
pub(crate) fn expire_held(conn: &Connection, now: Timestamp, limit: usize) -> Result<usize> {
    let over = sweep::ids(conn, OVER, now, limit)?;
    if !over.is_empty() {
        let mut statement = conn.prepare_cached(EXPIRE)?;
        for id in &over {
            one(statement.execute([*id, now.as_micros()])?)?;
        }
    }
    Ok(over.len())
}

/// Index: `abide_signals_adrift`, read from its beginning.
pub(crate) const ADRIFT: &str = "
    select id from abide_signals
    where instance_id is null and held_until is null and received_at < ?1 order by received_at, id limit ?2";

/// Index: the primary key.
pub(crate) const DELETE: &str = "delete from abide_signals where id = ?1";

/// Index: the primary key.
pub(crate) const BY_ID: &str = select!(" where id = ?1");

/// The first of the records with these ids, as many as fit into a number of bytes; those that do not exist are left
/// out.
pub(crate) fn by_ids(conn: &Connection, ids: &[CommandId], bytes: usize) -> Result<Records> {
    let mut statement = conn.prepare_cached(BY_ID)?;
    let mut found = Vec::new();
    let find = |id: CommandId| statement.query_row([id.0], read).optional();
    let rest = look_up(ids, bytes, find, |record| found.push(record))?;
    Ok(Records { found, rest })
}

/// Records that match all given conditions, newest first, below `before`.
pub(crate) fn list(
    conn: &Connection,
    filter: &CommandFilter,
    before: Option<CommandId>,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Command>> {
    let (sql, values) = listing(filter, before, limit);
    let mut statement = conn.prepare_cached(&sql)?;
    gather(statement.query_map(params_from_iter(values), read)?, bytes)
}

/// The records of the runs of a chain. Indexes: `abide_chain` and `abide_signals_of_run`. Records that the chain keeps
/// of deleted runs are in no list.
const OF_CHAIN: &str = "
    id in (select id from abide_signals indexed by abide_signals_of_run
           where instance_id in (select id from abide_instances where first_id = ?
                                 union all select id from abide_instances where id = ?))
    and chain_id = ?";

/// The records of the runs with a key (indexes `abide_key` and `abide_signals_of_run`), the signals that are held for
/// it (`abide_signals_held`), and the records that belong to no run (`abide_signals_adrift`). All of the latter are
/// read, but they are not kept for long.
const OF_KEY: &str = "
    id in (select id from abide_signals indexed by abide_signals_of_run
           where instance_id in (select id from abide_instances where key = ?)
           union all
           select id from abide_signals indexed by abide_signals_held
           where key = ? and held_until is not null
           union all
           select id from abide_signals indexed by abide_signals_adrift
           where key = ? and instance_id is null and held_until is null)";

/// Builds the statement of a list, and its values. A record has the chain and the key of its run, so the records of a
/// chain or a key are found through their runs. Without any of these, the table is read from its end until the page is
/// full.
pub(crate) fn listing(
    filter: &CommandFilter,
    before: Option<CommandId>,
    limit: usize,
) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    if let Some(before) = before {
        conditions.add("id < ?", before.0);
    }
    if let Some(instance) = filter.instance {
        conditions.add("instance_id = ?", instance.0);
    }
    if let Some(chain) = filter.chain {
        conditions.add(OF_CHAIN, chain.0);
    }
    if let Some(key) = &filter.key {
        conditions.add(OF_KEY, key.as_str().to_owned());
    }
    if let Some(kind) = filter.kind {
        conditions.add("kind = ?", kind.code());
    }
    if let Some(name) = &filter.name {
        conditions.add("name = ?", name.as_str().to_owned());
    }
    if let Some(status) = filter.status {
        conditions.add("status = ?", status.code());
    }
    conditions.newest_first(select!(""), limit)
}
