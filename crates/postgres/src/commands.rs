//! The records of signals, updates and cancellations: statements that insert, find and close them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use abide_core::model::{
    Closing, Command, CommandId, CommandKind, CommandStatus, InstanceId, Json, Key, Name, Pending,
    Sequence, Timestamp, WaitId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::sql;
use abide_kernel::Result;
use tokio_postgres::Row;

use crate::arrays::{Forms, arrays, columns, forms};
use crate::cells::{Cells, each};
use crate::param::{Param, parts, without_nul};
use crate::txn::Transaction;
use crate::waiters;

/// The columns of a record, in the order in which [`command`] reads them.
macro_rules! command_columns {
    () => {
        "s.id, s.kind, s.name, s.status, s.rejection, s.instance_id, s.chain_id, s.key, \
        s.message_sequence, s.arguments, s.validation_errors, s.dedup_key, s.source, s.wait_id, \
        s.step_sequence, s.received_at, s.hold_until, s.closed_at, s.result, s.error, \
        s.claimed_source, s.command_sequence, s.operation, s.graph_step"
    };
}
pub(crate) use command_columns;

/// Draws ids for records.
pub const NUMBER: &str = "\
select nextval('abide.signals_id_seq') from generate_series(1, (select $1::bigint))";

/// The records that were accepted in chains with dedup keys (rule 7.3). Locks nothing: the run of the chain is locked.
///
/// Index: `signals_dedup`.
pub const DEDUPED: Forms = forms!(
    "select ",
    command_columns!(),
    " from ";
    [1 chain bigint, 2 kind smallint, 3 dedup_key text];
    " k \
    cross join lateral ( \
        select * from abide.signals s where s.chain_id = k.chain and s.kind = k.kind \
            and s.dedup_key = k.dedup_key and s.message_sequence is not null limit 1 \
    ) s"
);

/// The signals that are held for keys (rule 7.8).
///
/// Index: `signals_held`. Locks: the records, by key and id, so that no other transaction hands them over or expires
/// them meanwhile. The keys are locked before.
pub const HELD_SIGNALS: &str = sql! {
    "select ", command_columns!(), " from unnest((select $1::text[])) as k(key) \
    cross join lateral ( \
        select * from abide.signals s where s.status = @held and s.key = k.key \
        order by s.id for no key update \
    ) s"
};

/// Number and size of the signals that are held for keys after a given time (rule 16.4). The arguments are not read:
/// their length is stored separately.
///
/// Index: `signals_held`. The keys are locked before.
pub const HELD_SIZES: &str = sql!(
    "\
select k.key, s.count, s.bytes from unnest((select $1::text[])) as k(key) \
cross join lateral ( \
    select count(*) as count, coalesce(sum(octet_length(s.arguments)), 0)::bigint as bytes \
    from abide.signals s where s.status = @held and s.key = k.key and s.hold_until > $2 \
) s"
);

/// Size of the commands that are pending in inboxes (rule 16.4). The arguments are not read: their length is stored
/// separately.
///
/// Index: `signals_pending`. The runs are locked.
pub const PENDING_BYTES: &str = sql!(
    "\
select l.instance, s.bytes from unnest((select $1::bigint[])) as l(instance) \
cross join lateral ( \
    select coalesce(sum(octet_length(s.arguments)), 0)::bigint as bytes from abide.signals s \
    where s.instance_id = l.instance and s.status in (@pending) \
) s"
);

columns! {
    /// The columns of a record.
    Record: |one: Command| {
        1 id bigint: one.id,
        2 kind smallint: one.kind.code(),
        3 name text: one.name.as_str(),
        4 status smallint: one.status.code(),
        5 rejection smallint: one.rejection.map(|why| why.code()),
        6 instance_id bigint: one.instance,
        7 chain_id bigint: one.chain,
        8 key text: one.key.as_ref().map(Key::as_str),
        9 message_sequence bigint: one.sequence,
        10 arguments text: one.arguments.as_str(),
        11 validation_errors text: one.validation_errors.as_ref().map(Json::as_str),
        12 dedup_key text: one.dedup_key.as_ref().map(Name::as_str),
        13 source text: clean(&one.source),
        14 wait_id text: one.wait_id.as_ref().map(WaitId::as_str),
        15 step_sequence int: one.step_sequence,
        16 received_at timestamptz: one.received_at,
        17 hold_until timestamptz: one.hold_until,
        18 closed_at timestamptz: one.closed_at,
        19 result text: one.result.as_ref().map(Json::as_str),
        20 error text: clean(&one.error),
        21 claimed_source text: one.claimed_source.as_deref(),
        22 command_sequence bigint: one.command_sequence,
        23 operation int: one.operation,
        24 graph_step text: one.graph_step.as_ref().map(Name::as_str),
    }
}

/// Inserts records.
///
/// Index: `signals_dedup` ensures that a dedup key occurs once in a chain. The runs of the records are locked.
pub const INSERT_COMMANDS: Forms = forms!(
    "insert into abide.signals (", Record::NAMES, ") select * from ";
    Record;
    " r"
);

/// Overwrites records that were held.
///
/// Index: `signals_pkey`. The records are locked already.
pub const REWRITE_COMMANDS: &str = sql! {
    "update abide.signals s set ", Record::SET, " from (select ", Record::MANY, ") c where s.id = c.id"
};

columns! {
    /// The columns that end a record's life.
    End: |one: Closing| {
        2 id bigint: one.id,
        3 status smallint: one.status.code(),
        4 wait_id text: one.wait_id.as_ref().map(WaitId::as_str),
        5 step_sequence int: one.step_sequence,
        6 result text: one.result.as_ref().map(Json::as_str),
        7 error text: clean(&one.error),
        8 operation int: one.operation,
        9 graph_step text: one.graph_step.as_ref().map(Name::as_str),
    }
}

/// Closes pending records.
///
/// Index: `signals_pkey`. The runs of the records are locked.
pub const CLOSE: Forms = forms!(
    "\
update abide.signals s set status = c.status, wait_id = coalesce(c.wait_id, s.wait_id), \
    step_sequence = c.step_sequence, result = c.result, error = c.error, closed_at = $1, \
    operation = c.operation, graph_step = c.graph_step \
from ";
    End;
    " c \
where s.id = c.id"
);

/// The pending signals of given names in inboxes. The runs are locked by an earlier, separate statement: the locking
/// statement itself sees only what was committed before it waited.
///
/// Index: `signals_pending`, read from the start of a name to its end. The `order by` makes the planner use it also if
/// one name in one inbox is most of the table; otherwise a search for another name would read all of them.
pub const PENDING_NAMED: Forms = forms!(
    "\
select s.instance_id, s.id, s.kind, s.name, s.message_sequence, s.command_sequence, s.wait_id \
from ";
    [1 instance bigint, 2 name text];
    " l \
cross join lateral ( \
    select s.instance_id, s.id, s.kind, s.name, s.message_sequence, s.command_sequence, s.wait_id \
    from abide.signals s \
    where s.instance_id = l.instance and s.kind = @signal and s.name = l.name and s.status in (@pending) \
    order by s.message_sequence offset 0 \
) s"
);

/// The pending commands in inboxes whose kind is at least a given number: 0 means all, 1 means all except signals.
///
/// Index: `signals_pending`, read from the start of the kind to the end of the inbox.
pub const PENDING_ALL: &str = sql! {
    "\
select s.instance_id, s.id, s.kind, s.name, s.message_sequence, s.command_sequence, s.wait_id \
from ", arrays!(1 instance bigint, 2 kind smallint), " l \
cross join lateral ( \
    select s.instance_id, s.id, s.kind, s.name, s.message_sequence, s.command_sequence, s.wait_id \
    from abide.signals s \
    where s.instance_id = l.instance and s.kind >= l.kind and s.status in (@pending) offset 0 \
) s"
};

/// The pending signals of given names up to a sequence, with all columns (rule 7.4).
///
/// Index: `signals_pending`, read from the start of a name to that sequence.
pub const AWAITED: Forms = forms!(
    "select ",
    command_columns!(),
    " from ";
    [1 instance bigint, 2 name text, 3 upto bigint];
    " l \
    cross join lateral ( \
        select * from abide.signals s where s.instance_id = l.instance and s.kind = @signal \
            and s.name = l.name and s.message_sequence <= l.upto and s.status in (@pending) offset 0 \
    ) s"
);

/// The pending commands whose kind is at least a given number, with all columns: 0 means all, 1 means all except
/// signals.
///
/// Index: `signals_pending`, read from the start of the kind to the end of the inbox.
pub const PENDING_FROM_KIND: &str = sql! {
    "select ", command_columns!(), " from unnest((select $1::bigint[])) as l(instance) \
    cross join lateral ( \
        select * from abide.signals s where s.instance_id = l.instance and s.kind >= $2 \
            and s.status in (@pending) offset 0 \
    ) s"
};

/// The signals that a step of a run has consumed, with all columns (rule 11.2).
///
/// Index: `signals_run`: all records of the run are read.
pub const APPLIED: &str = sql! {
    "select ", command_columns!(),
    " from abide.signals s where s.instance_id = $1 and s.kind = @signal and s.status = $2 and s.step_sequence = $3"
};

/// Moves the pending commands of one run to another (rule 2.4), which numbers them anew, in the same order (rule 7.1).
///
/// Indexes: `signals_pending` and `signals_pkey`. Both runs are locked, or new. The commands are gathered into arrays
/// first: a planner that does not know how many there are might read the whole table to join them.
pub const MOVE_PENDING: &str = sql! {
    "\
update abide.signals s set instance_id = c.heir, command_sequence = c.number \
from ( \
    select unnest(a.ids) as id, unnest(a.heirs) as heir, unnest(a.numbers) as number from ( \
        select array_agg(q.id) as ids, array_agg(q.heir) as heirs, array_agg(q.number) as numbers \
        from ( \
            select p.id, m.heir, \
                row_number() over (partition by m.giver order by p.message_sequence) as number \
            from ", arrays!(1 giver bigint, 2 heir bigint), " m \
            cross join lateral ( \
                select p.id, p.message_sequence from abide.signals p \
                where p.instance_id = m.giver and p.status in (@pending) \
                order by p.kind, p.name, p.message_sequence offset 0 \
            ) p \
        ) q \
    ) a \
) c \
where s.id = c.id"
};

/// Marks held records as expired.
///
/// Index: `signals_hold_until`, read from its beginning. Locks: the records; those that are being handed over are
/// skipped.
pub const EXPIRE_HELD: &str = sql!(
    "\
update abide.signals set status = @expired, closed_at = $1 \
where id = any(array( \
    select s.id from abide.signals s where s.status = @held and s.hold_until <= $1 \
    order by s.hold_until, s.id limit (select $2::bigint) for update skip locked)) \
returning id"
);

/// Deletes old records that belong to no run, except held ones.
///
/// Index: `signals_lone`, read from its beginning. Locks: the records; those that another sweep has locked are skipped.
pub const FORGET_RECORDS: &str = sql!(
    "\
delete from abide.signals \
where id = any(array( \
    select s.id from abide.signals s \
    where s.instance_id is null and s.status <> @held and s.received_at < $1 \
    order by s.received_at, s.id limit (select $2::bigint) for update skip locked)) \
returning id"
);

/// Keeps unused record ids for later calls in this transaction.
pub(crate) fn keep_numbers(txn: &mut Transaction<'_>, mut numbers: Vec<CommandId>) {
    numbers.sort_unstable();
    txn.numbers.extend(numbers);
}

/// Returns ids for records, in ascending order. Uses ids first that an earlier statement has drawn.
pub(crate) async fn number(txn: &mut Transaction<'_>, count: usize) -> Result<Vec<CommandId>> {
    let missing = count.saturating_sub(txn.numbers.len());
    if missing > 0 {
        let numbers = vec![Param::one(missing)];
        let rows = if txn.published.is_empty() {
            txn.read(NUMBER, numbers).await?
        } else {
            // A transaction that publishes reads the paths of waiters next.
            let types = waiters::types_params(&txn.published);
            let (rows, paths) = txn
                .read_both((NUMBER, numbers), (waiters::EVENT_PATHS, types))
                .await?;
            txn.paths_ahead = Some(waiters::read_paths(&paths)?);
            rows
        };
        keep_numbers(txn, each(&rows, |cells| cells.next())?);
    }
    let count = count.min(txn.numbers.len());
    Ok(txn.numbers.drain(..count).collect())
}

/// Reads the records that were accepted with dedup keys.
pub(crate) async fn deduped(
    txn: &mut Transaction<'_>,
    keys: &[(InstanceId, CommandKind, Name)],
) -> Result<Vec<Command>> {
    let params = vec![
        Param::list(keys.iter().map(|(chain, _, _)| *chain)),
        Param::list(keys.iter().map(|(_, kind, _)| kind.code())),
        Param::list(keys.iter().map(|(_, _, dedup_key)| dedup_key.as_str())),
    ];
    read_commands(&txn.read_rows(DEDUPED, keys.len(), params).await?)
}

/// Reads the signals that are held for keys, by id. Uses the rows that the insert just before has read, if any.
pub(crate) async fn held_signals(txn: &mut Transaction<'_>, keys: &[Key]) -> Result<Vec<Command>> {
    let mut held = match txn.held_ahead.take() {
        Some((known_keys, rows)) if keys.iter().all(|key| known_keys.contains(key)) => {
            let mut held = read_commands(&rows)?;
            if !held.is_empty() {
                let keys: BTreeSet<&Key> = keys.iter().collect();
                held.retain(|one| one.key.as_ref().is_some_and(|key| keys.contains(key)));
            }
            held
        }
        _ => read_commands(&txn.read(HELD_SIGNALS, held_params(keys)).await?)?,
    };
    held.sort_unstable_by_key(|command| command.id);
    Ok(held)
}

/// Number and bytes of the records that are held for each key.
pub(crate) async fn held_sizes(
    txn: &mut Transaction<'_>,
    keys: &[Key],
    now: Timestamp,
) -> Result<Vec<(Key, usize, u64)>> {
    let params = vec![Param::list(keys.iter().map(Key::as_str)), Param::one(now)];
    each(&txn.read(HELD_SIZES, params).await?, |cells| {
        let (key, count, bytes): (_, i64, i64) = (cells.next()?, cells.next()?, cells.next()?);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Ok((key, count, bytes.unsigned_abs()))
    })
}

/// Bytes of the arguments that are pending in each inbox.
pub(crate) async fn pending_bytes(
    txn: &mut Transaction<'_>,
    ids: &[InstanceId],
) -> Result<Vec<(InstanceId, u64)>> {
    let params = vec![Param::list(ids.iter().copied())];
    each(&txn.read(PENDING_BYTES, params).await?, |cells| {
        let (id, bytes): (_, i64) = (cells.next()?, cells.next()?);
        Ok((id, bytes.unsigned_abs()))
    })
}

/// The parameters of [`HELD_SIGNALS`].
pub(crate) fn held_params<'k>(keys: impl IntoIterator<Item = &'k Key>) -> Vec<Param> {
    vec![Param::list(keys.into_iter().map(Key::as_str))]
}

/// Inserts records.
pub(crate) fn insert_commands(txn: &mut Transaction<'_>, commands: &[Command]) -> Result<()> {
    txn.held_ahead = None;
    // Rows that were found only to write their record are not locked next.
    txn.locked_ahead.clear();
    for part in parts(commands, |one| one.arguments.size()) {
        txn.write_rows(INSERT_COMMANDS, part.len(), Record::params(part)?)?;
    }
    Ok(())
}

/// Overwrites records that were held.
pub(crate) fn rewrite_commands(txn: &mut Transaction<'_>, commands: &[Command]) -> Result<()> {
    txn.held_ahead = None;
    for part in parts(commands, |one| one.arguments.size()) {
        txn.write(REWRITE_COMMANDS, Record::params(part)?)?;
    }
    Ok(())
}

/// Closes records.
pub(crate) fn close(txn: &mut Transaction<'_>, closings: &[Closing], now: Timestamp) -> Result<()> {
    for part in parts(closings, |one| one.result.as_ref().map_or(0, Json::size)) {
        let mut params = vec![Param::one(now)];
        params.extend(End::params(part)?);
        txn.write_rows(CLOSE, part.len(), params)?;
    }
    Ok(())
}

/// Reads the pending commands that `needs` names, by instance and sequence.
pub(crate) async fn pending(
    txn: &mut Transaction<'_>,
    needs: &[(InstanceId, InboxNeeds)],
) -> Result<Vec<(InstanceId, Pending)>> {
    let mut named: BTreeSet<(InstanceId, &str)> = BTreeSet::new();
    let mut from_kind: BTreeSet<(InstanceId, i16)> = BTreeSet::new();
    for (id, need) in needs {
        if need.all {
            from_kind.insert((*id, CommandKind::Signal.code()));
            continue;
        }
        if need.updates {
            from_kind.insert((*id, CommandKind::Update.code()));
        }
        named.extend(need.names.iter().map(|name| (*id, name.as_str())));
    }
    let by_name = vec![
        Param::list(named.iter().map(|(id, _)| *id)),
        Param::list(named.iter().map(|(_, name)| *name)),
    ];
    let by_kind = vec![
        Param::list(from_kind.iter().map(|(id, _)| *id)),
        Param::list(from_kind.iter().map(|(_, kind)| *kind)),
    ];
    let mut rows = Vec::new();
    match (named.is_empty(), from_kind.is_empty()) {
        (true, true) => {}
        (false, true) => {
            rows = txn.read_rows(PENDING_NAMED, named.len(), by_name).await?;
        }
        (true, false) => rows = txn.read(PENDING_ALL, by_kind).await?,
        (false, false) => {
            let (some, others) = txn
                .read_both(
                    PENDING_NAMED.of(named.len(), by_name),
                    (PENDING_ALL, by_kind),
                )
                .await?;
            rows.extend(some);
            rows.extend(others);
        }
    }
    let mut found = each(&rows, |cells| {
        let instance: InstanceId = cells.next()?;
        let pending = Pending {
            id: cells.next()?,
            kind: cells.next()?,
            name: cells.next()?,
            sequence: cells.next()?,
            command_sequence: cells.next()?,
            wait_id: cells.next()?,
        };
        Ok((instance, pending))
    })?;
    found.sort_unstable_by_key(|(instance, pending)| (*instance, pending.sequence));
    Ok(found)
}

/// Reads the pending signals of given names up to a sequence.
pub(crate) async fn awaited(
    txn: &mut Transaction<'_>,
    of: &[(InstanceId, Vec<Name>, Sequence)],
) -> Result<Vec<Command>> {
    let mut named: BTreeSet<(InstanceId, &str, Sequence)> = BTreeSet::new();
    for (id, names, upto) in of {
        named.extend(names.iter().map(|name| (*id, name.as_str(), *upto)));
    }
    let params = vec![
        Param::list(named.iter().map(|(id, _, _)| *id)),
        Param::list(named.iter().map(|(_, name, _)| *name)),
        Param::list(named.iter().map(|(_, _, upto)| *upto)),
    ];
    in_order(&txn.read_rows(AWAITED, named.len(), params).await?)
}

/// Reads the pending updates and cancellations of instances.
pub(crate) async fn updates(txn: &mut Transaction<'_>, of: &[InstanceId]) -> Result<Vec<Command>> {
    let params = from_kind_params(of, CommandKind::Update);
    in_order(&txn.read(PENDING_FROM_KIND, params).await?)
}

/// Reads the signals that a step of a run has consumed.
pub(crate) async fn applied(
    txn: &mut Transaction<'_>,
    instance: InstanceId,
    step_sequence: u32,
) -> Result<Vec<Command>> {
    let params = vec![
        Param::one(instance),
        Param::one(CommandStatus::Applied.code()),
        Param::one(step_sequence),
    ];
    in_order(&txn.read(APPLIED, params).await?)
}

/// The parameters of [`PENDING_FROM_KIND`].
pub(crate) fn from_kind_params(of: &[InstanceId], first: CommandKind) -> Vec<Param> {
    vec![Param::list(of.iter().copied()), Param::one(first.code())]
}

/// Moves the pending commands of the first run of each pair to the second.
pub(crate) fn move_pending(
    txn: &mut Transaction<'_>,
    moves: &[(InstanceId, InstanceId)],
) -> Result<()> {
    let params = vec![
        Param::list(moves.iter().map(|(giver, _)| *giver)),
        Param::list(moves.iter().map(|(_, heir)| *heir)),
    ];
    txn.write(MOVE_PENDING, params)
}

/// Reads records.
pub(crate) fn read_commands(rows: &[Row]) -> Result<Vec<Command>> {
    each(rows, command)
}

/// Reads records, and sorts them by instance and sequence.
pub(crate) fn in_order(rows: &[Row]) -> Result<Vec<Command>> {
    let mut commands = read_commands(rows)?;
    commands.sort_unstable_by_key(|one| (one.instance, one.sequence));
    Ok(commands)
}

fn command(cells: &mut Cells<'_>) -> Result<Command> {
    Ok(Command {
        id: cells.next()?,
        kind: cells.next()?,
        name: cells.next()?,
        status: cells.next()?,
        rejection: cells.next()?,
        instance: cells.next()?,
        chain: cells.next()?,
        key: cells.next()?,
        sequence: cells.next()?,
        arguments: cells.next()?,
        validation_errors: cells.next()?,
        dedup_key: cells.next()?,
        source: cells.next()?,
        wait_id: cells.next()?,
        step_sequence: cells.next()?,
        received_at: cells.next()?,
        hold_until: cells.next()?,
        closed_at: cells.next()?,
        result: cells.next()?,
        error: cells.next()?,
        claimed_source: cells.next()?,
        command_sequence: cells.next()?,
        operation: cells.next()?,
        graph_step: cells.next()?,
    })
}

fn clean(text: &Option<String>) -> Option<Cow<'_, str>> {
    text.as_deref().map(without_nul)
}
