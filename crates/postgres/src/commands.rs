//! The records of signals, updates and cancellations: inserts, finds and closes them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use abide_core::model::{
    Closing, Command, CommandId, CommandKind, InstanceId, Json, Key, Name, Pending, Sequence,
    Timestamp, WaitId,
};
use abide_core::rules::commit::Look;
use abide_kernel::Result;
use tokio_postgres::Row;

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
        s.claimed_source"
    };
}
pub(crate) use command_columns;

/// Numbers for records.
pub const NUMBER: &str = "\
select nextval('abide.signals_id_seq') from generate_series(1, (select $1::bigint))";

/// The records that were accepted in chains with dedup keys (rule 7.3); not locked: the chain's run is.
///
/// Index: `signals_dedup`.
pub const DEDUPED: &str = concat!(
    "select ",
    command_columns!(),
    " from unnest((select $1::bigint[]), (select $2::smallint[]), (select $3::text[])) \
        as k(chain, kind, dedup_key) \
    cross join lateral ( \
        select * from abide.signals s where s.chain_id = k.chain and s.kind = k.kind \
            and s.dedup_key = k.dedup_key and s.message_sequence is not null limit 1 \
    ) s"
);

/// What is held for keys (rule 7.8).
///
/// Index: `signals_held`. Locks: the records, by key and id, so that nobody else hands them over, or lets them expire,
/// meanwhile. The keys are locked before.
pub const HELD_SIGNALS: &str = concat!(
    "select ",
    command_columns!(),
    " from unnest((select $1::text[])) as k(key) \
    cross join lateral ( \
        select * from abide.signals s where s.status = 0 and s.key = k.key \
        order by s.id for no key update \
    ) s"
);

/// How much is held for keys beyond a moment (rule 16.4). The arguments are not read: their length stands beside them.
///
/// Index: `signals_held`. The keys are locked before.
pub const HELD_SIZES: &str = "\
select k.key, s.count, s.bytes from unnest((select $1::text[])) as k(key) \
cross join lateral ( \
    select count(*) as count, coalesce(sum(octet_length(s.arguments)), 0)::bigint as bytes \
    from abide.signals s where s.status = 0 and s.key = k.key and s.hold_until > $2 \
) s";

/// How much is pending in inboxes (rule 16.4). The arguments are not read: their length stands beside them.
///
/// Index: `signals_pending`. The runs are locked.
pub const PENDING_BYTES: &str = "\
select l.instance, s.bytes from unnest((select $1::bigint[])) as l(instance) \
cross join lateral ( \
    select coalesce(sum(octet_length(s.arguments)), 0)::bigint as bytes from abide.signals s \
    where s.instance_id = l.instance and s.status in (1, 2) \
) s";

/// Inserts records.
///
/// Index: `signals_dedup` keeps two in a chain from having one dedup key. The runs that have them are locked.
pub const INSERT_COMMANDS: &str = "\
insert into abide.signals (id, kind, name, status, rejection, instance_id, chain_id, key, \
    message_sequence, arguments, validation_errors, dedup_key, source, wait_id, step_sequence, \
    received_at, hold_until, closed_at, result, error, claimed_source) \
select * from unnest($1::bigint[], $2::smallint[], $3::text[], $4::smallint[], $5::smallint[], \
    $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::text[], $11::text[], $12::text[], \
    $13::text[], $14::text[], $15::int[], $16::timestamptz[], $17::timestamptz[], \
    $18::timestamptz[], $19::text[], $20::text[], $21::text[])";

/// Writes records over that were held.
///
/// Index: `signals_pkey`. They are locked already.
pub const REWRITE_COMMANDS: &str = "\
update abide.signals s set kind = c.kind, name = c.name, status = c.status, \
    rejection = c.rejection, instance_id = c.instance_id, chain_id = c.chain_id, key = c.key, \
    message_sequence = c.message_sequence, arguments = c.arguments, \
    validation_errors = c.validation_errors, dedup_key = c.dedup_key, source = c.source, \
    wait_id = c.wait_id, step_sequence = c.step_sequence, received_at = c.received_at, \
    hold_until = c.hold_until, closed_at = c.closed_at, result = c.result, error = c.error, \
    claimed_source = c.claimed_source \
from unnest((select $1::bigint[]), (select $2::smallint[]), (select $3::text[]), \
    (select $4::smallint[]), (select $5::smallint[]), (select $6::bigint[]), \
    (select $7::bigint[]), (select $8::text[]), (select $9::bigint[]), (select $10::text[]), \
    (select $11::text[]), (select $12::text[]), (select $13::text[]), (select $14::text[]), \
    (select $15::int[]), (select $16::timestamptz[]), (select $17::timestamptz[]), \
    (select $18::timestamptz[]), (select $19::text[]), (select $20::text[]), \
    (select $21::text[])) \
    as c(id, kind, name, status, rejection, instance_id, chain_id, key, message_sequence, \
    arguments, validation_errors, dedup_key, source, wait_id, step_sequence, received_at, \
    hold_until, closed_at, result, error, claimed_source) \
where s.id = c.id";

/// Ends the life of records that are pending.
///
/// Index: `signals_pkey`. The runs that have them are locked.
pub const CLOSE: &str = "\
update abide.signals s set status = c.status, wait_id = coalesce(c.wait_id, s.wait_id), \
    step_sequence = c.step_sequence, result = c.result, error = c.error, closed_at = $1 \
from unnest((select $2::bigint[]), (select $3::smallint[]), (select $4::text[]), \
    (select $5::int[]), (select $6::text[]), (select $7::text[])) \
    as c(id, status, wait_id, step_sequence, result, error) \
where s.id = c.id";

/// The signals of some names that are pending in inboxes. The runs are locked, and it is another statement than the one
/// that locked them: that one sees what was committed before it waited.
///
/// Index: `signals_pending`, read from where a name begins to where it ends. The order makes it worth it where one name
/// in one inbox is most of the table: a look for another would else read them all.
pub const PENDING_NAMED: &str = "\
select s.instance_id, s.id, s.kind, s.name, s.message_sequence \
from unnest((select $1::bigint[]), (select $2::text[])) as l(instance, name) \
cross join lateral ( \
    select s.instance_id, s.id, s.kind, s.name, s.message_sequence from abide.signals s \
    where s.instance_id = l.instance and s.kind = 0 and s.name = l.name and s.status in (1, 2) \
    order by s.message_sequence offset 0 \
) s";

/// All that is pending in inboxes of the kinds from a number on: from 0 all, from 1 all but the signals.
///
/// Index: `signals_pending`, read from where the kind begins to where the inbox ends.
pub const PENDING_ALL: &str = "\
select s.instance_id, s.id, s.kind, s.name, s.message_sequence \
from unnest((select $1::bigint[]), (select $2::smallint[])) as l(instance, kind) \
cross join lateral ( \
    select s.instance_id, s.id, s.kind, s.name, s.message_sequence from abide.signals s \
    where s.instance_id = l.instance and s.kind >= l.kind and s.status in (1, 2) offset 0 \
) s";

/// The pending signals of some names up to a sequence, whole (rule 7.4).
///
/// Index: `signals_pending`, read from where a name begins to that sequence.
pub const AWAITED: &str = concat!(
    "select ",
    command_columns!(),
    " from unnest((select $1::bigint[]), (select $2::text[]), (select $3::bigint[])) \
        as l(instance, name, upto) \
    cross join lateral ( \
        select * from abide.signals s where s.instance_id = l.instance and s.kind = 0 \
            and s.name = l.name and s.message_sequence <= l.upto and s.status in (1, 2) offset 0 \
    ) s"
);

/// The pending messages of the kinds from a number on, whole: from 0 all, from 1 all but the signals.
///
/// Index: `signals_pending`, read from where the kind begins to where the inbox ends.
pub const PENDING_FROM_KIND: &str = concat!(
    "select ",
    command_columns!(),
    " from unnest((select $1::bigint[])) as l(instance) \
    cross join lateral ( \
        select * from abide.signals s where s.instance_id = l.instance and s.kind >= $2 \
            and s.status in (1, 2) offset 0 \
    ) s"
);

/// Gives what is pending with one run to another (rule 2.4).
///
/// Index: `signals_pending`. Both runs are locked, or new.
pub const MOVE_PENDING: &str = "\
update abide.signals s set instance_id = ( \
    select m.heir from unnest($1::bigint[], $2::bigint[]) as m(giver, heir) \
    where m.giver = s.instance_id) \
where s.id = any(array( \
    select q.id from unnest((select $1::bigint[])) as m(giver) cross join lateral ( \
        select p.id from abide.signals p where p.instance_id = m.giver and p.status in (1, 2) \
        order by p.kind, p.name, p.message_sequence offset 0 \
    ) q))";

/// Marks held records whose time is up.
///
/// Index: `signals_hold_until`, read from its beginning. Locks: the records, passing over those that are being handed
/// over.
pub const EXPIRE_HELD: &str = "\
update abide.signals set status = 5, closed_at = $1 \
where id = any(array( \
    select s.id from abide.signals s where s.status = 0 and s.hold_until <= $1 \
    order by s.hold_until, s.id limit (select $2::bigint) for update skip locked)) \
returning id";

/// Deletes old records that no run has, apart from those that are held.
///
/// Index: `signals_lone`, read from its beginning. Locks: the records, passing over those that another sweep has.
pub const FORGET_RECORDS: &str = "\
delete from abide.signals \
where id = any(array( \
    select s.id from abide.signals s \
    where s.instance_id is null and s.status <> 0 and s.received_at < $1 \
    order by s.received_at, s.id limit (select $2::bigint) for update skip locked)) \
returning id";

/// Keeps numbers for those who ask for them next.
pub(crate) fn keep_numbers(txn: &mut Transaction<'_>, mut numbers: Vec<CommandId>) {
    numbers.sort_unstable();
    txn.numbers.extend(numbers);
}

/// Numbers for records, rising; those that came along with something else before others.
pub(crate) async fn number(txn: &mut Transaction<'_>, count: usize) -> Result<Vec<CommandId>> {
    let missing = count.saturating_sub(txn.numbers.len());
    if missing > 0 {
        let numbers = vec![Param::one(missing)];
        let rows = if txn.published.is_empty() {
            txn.read(NUMBER, numbers).await?
        } else {
            // Who publishes asks next where waiters stand.
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

/// The records that were accepted with dedup keys.
pub(crate) async fn deduped(
    txn: &mut Transaction<'_>,
    keys: &[(InstanceId, CommandKind, Name)],
) -> Result<Vec<Command>> {
    let params = vec![
        Param::list(keys.iter().map(|(chain, _, _)| *chain)),
        Param::list(keys.iter().map(|(_, kind, _)| kind.code())),
        Param::list(keys.iter().map(|(_, _, dedup_key)| dedup_key.as_str())),
    ];
    read_commands(&txn.read(DEDUPED, params).await?)
}

/// What is held for keys, by id; as it came along with the insert just before, if it did.
pub(crate) async fn held_signals(txn: &mut Transaction<'_>, keys: &[Key]) -> Result<Vec<Command>> {
    let mut held = match txn.held_ahead.take() {
        Some((asked, rows)) if keys.iter().all(|key| asked.contains(key)) => {
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

/// How many records are held for each of these keys, and of how many bytes.
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

/// How many bytes of arguments are pending in each of these inboxes.
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
    // Who was found only for a record's sake is not locked next.
    txn.locked_ahead.clear();
    for part in parts(commands, |one| one.arguments.size()) {
        txn.write(INSERT_COMMANDS, columns(part))?;
    }
    Ok(())
}

/// Writes records over that were held.
pub(crate) fn rewrite_commands(txn: &mut Transaction<'_>, commands: &[Command]) -> Result<()> {
    txn.held_ahead = None;
    for part in parts(commands, |one| one.arguments.size()) {
        txn.write(REWRITE_COMMANDS, columns(part))?;
    }
    Ok(())
}

/// Ends the life of records.
pub(crate) fn close(txn: &mut Transaction<'_>, closings: &[Closing], now: Timestamp) -> Result<()> {
    for part in parts(closings, |one| one.result.as_ref().map_or(0, Json::size)) {
        let params = vec![
            Param::one(now),
            Param::list(part.iter().map(|one| one.id)),
            Param::list(part.iter().map(|one| one.status.code())),
            Param::list(
                part.iter()
                    .map(|one| one.wait_id.as_ref().map(WaitId::as_str)),
            ),
            Param::list(part.iter().map(|one| one.step_sequence)),
            Param::list(part.iter().map(|one| one.result.as_ref().map(Json::as_str))),
            Param::list(part.iter().map(|one| clean(&one.error))),
        ];
        txn.write(CLOSE, params)?;
    }
    Ok(())
}

/// What is pending in inboxes, as far as it is asked for, by instance and sequence.
pub(crate) async fn pending(
    txn: &mut Transaction<'_>,
    looks: &[(InstanceId, Look)],
) -> Result<Vec<(InstanceId, Pending)>> {
    let mut named: BTreeSet<(InstanceId, &str)> = BTreeSet::new();
    let mut from_kind: BTreeSet<(InstanceId, i16)> = BTreeSet::new();
    for (id, look) in looks {
        if look.all {
            from_kind.insert((*id, CommandKind::Signal.code()));
            continue;
        }
        if look.updates {
            from_kind.insert((*id, CommandKind::Update.code()));
        }
        named.extend(look.names.iter().map(|name| (*id, name.as_str())));
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
        (false, true) => rows = txn.read(PENDING_NAMED, by_name).await?,
        (true, false) => rows = txn.read(PENDING_ALL, by_kind).await?,
        (false, false) => {
            let (some, others) = txn
                .read_both((PENDING_NAMED, by_name), (PENDING_ALL, by_kind))
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
        };
        Ok((instance, pending))
    })?;
    found.sort_unstable_by_key(|(instance, pending)| (*instance, pending.sequence));
    Ok(found)
}

/// The pending signals of some names up to a sequence.
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
    in_order(&txn.read(AWAITED, params).await?)
}

/// The pending updates and cancellations of instances.
pub(crate) async fn updates(txn: &mut Transaction<'_>, of: &[InstanceId]) -> Result<Vec<Command>> {
    let params = from_kind_params(of, CommandKind::Update);
    in_order(&txn.read(PENDING_FROM_KIND, params).await?)
}

/// The parameters of [`PENDING_FROM_KIND`].
pub(crate) fn from_kind_params(of: &[InstanceId], first: CommandKind) -> Vec<Param> {
    vec![Param::list(of.iter().copied()), Param::one(first.code())]
}

/// Gives what is pending with the first of each pair to the second.
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

/// Marks held records whose time is up; how many.
pub(crate) async fn expire_held(
    txn: &mut Transaction<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<usize> {
    let params = vec![Param::one(now), Param::one(limit)];
    Ok(txn.read(EXPIRE_HELD, params).await?.len())
}

/// Deletes old records that no run has; how many.
pub(crate) async fn forget_records(
    txn: &mut Transaction<'_>,
    before: Timestamp,
    limit: usize,
) -> Result<usize> {
    let params = vec![Param::one(before), Param::one(limit)];
    Ok(txn.read(FORGET_RECORDS, params).await?.len())
}

/// Reads records.
pub(crate) fn read_commands(rows: &[Row]) -> Result<Vec<Command>> {
    each(rows, command)
}

/// Reads records, and puts them in order, by instance and sequence.
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
    })
}

fn columns(list: &[Command]) -> Vec<Param> {
    let rows = || list.iter();
    vec![
        Param::list(rows().map(|one| one.id)),
        Param::list(rows().map(|one| one.kind.code())),
        Param::list(rows().map(|one| one.name.as_str())),
        Param::list(rows().map(|one| one.status.code())),
        Param::list(rows().map(|one| one.rejection.map(|why| why.code()))),
        Param::list(rows().map(|one| one.instance)),
        Param::list(rows().map(|one| one.chain)),
        Param::list(rows().map(|one| one.key.as_ref().map(Key::as_str))),
        Param::list(rows().map(|one| one.sequence)),
        Param::list(rows().map(|one| one.arguments.as_str())),
        Param::list(rows().map(|one| one.validation_errors.as_ref().map(Json::as_str))),
        Param::list(rows().map(|one| one.dedup_key.as_ref().map(Name::as_str))),
        Param::list(rows().map(|one| clean(&one.source))),
        Param::list(rows().map(|one| one.wait_id.as_ref().map(WaitId::as_str))),
        Param::list(rows().map(|one| one.step_sequence)),
        Param::list(rows().map(|one| one.received_at)),
        Param::list(rows().map(|one| one.hold_until)),
        Param::list(rows().map(|one| one.closed_at)),
        Param::list(rows().map(|one| one.result.as_ref().map(Json::as_str))),
        Param::list(rows().map(|one| clean(&one.error))),
        Param::list(rows().map(|one| one.claimed_source.as_deref())),
    ]
}

fn clean(text: &Option<String>) -> Option<Cow<'_, str>> {
    text.as_deref().map(without_nul)
}
