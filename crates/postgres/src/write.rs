//! Writes locked rows, histories and declarations. Nothing here waits for a result.

use std::borrow::Cow;
use std::collections::BTreeMap;

use abide_core::model::{
    BarrierNumber, Declared, HistoryRow, Inbox, InstanceId, Json, Lease, Name, Policy, Row,
    Timestamp, WaitId,
};
use abide_kernel::{Advance, Changes, Error, Finish, Move, MovedHistory, Result, Wake};

use crate::keys;
use crate::param::{Param, parts, some, without_nul};
use crate::txn::Transaction;

// The arrays are hidden in sub-selects: a planner that sees their length joins with a hash over the whole table while
// the table is small, and keeps that plan when it has grown.

/// Writes steps that continued under the same worker.
///
/// Index: `instances_pkey`. The rows are locked already. It changes no indexed column, so the new version is stored
/// beside the old one and no index is written. A large state that stays the same is not written again: both versions
/// point to it.
pub const ADVANCE: &str = "\
update abide.instances i set step = c.step, step_seq = c.step_seq, attempt = c.attempt, \
    epoch = c.epoch, settled = c.settled, settled_before = c.settled_before, cause = c.cause, \
    history_seq = c.history_seq, state = coalesce(c.state, i.state), updated_at = $1 \
from unnest((select $2::bigint[]), (select $3::text[]), (select $4::int[]), (select $5::int[]), \
    (select $6::bigint[]), (select $7::bigint[]), (select $8::smallint[]), (select $9::int[]), \
    (select $10::text[]), (select $11::bigint[])) \
    as c(id, step, step_seq, attempt, epoch, settled, cause, history_seq, state, settled_before) \
where i.id = c.id";

/// Writes instances that ended.
///
/// Index: `instances_pkey`. The rows are locked already.
pub const FINISH: &str = "\
update abide.instances i set status = c.status, epoch = c.epoch, settled = c.settled, \
    settled_before = c.settled_before, history_seq = c.history_seq, last_error = c.last_error, finished_at = c.finished_at, \
    result = c.result, updated_at = $1, worker = null, lease_until = null, limit_until = null, due_at = null, \
    wait_kind = null, \
    awaits = null, wait_since = null, wait_id = null, waits = null, resume_kind = null, \
    resume_command = null, behind = false \
from unnest((select $2::bigint[]), (select $3::smallint[]), (select $4::bigint[]), \
    (select $5::bigint[]), (select $6::int[]), (select $7::text[]), (select $8::timestamptz[]), \
    (select $9::text[]), (select $10::bigint[])) \
    as c(id, status, epoch, settled, history_seq, last_error, finished_at, result, settled_before) \
where i.id = c.id";

/// Writes instances that received signals.
///
/// Index: `instances_pkey`. Locks: nothing that is not locked already.
pub const WAKE: &str = "\
update abide.instances i set status = c.status, due_at = c.due_at, behind = c.behind, \
    cause = c.cause, history_seq = c.history_seq, message_sequence = c.message_sequence, \
    message_cursor = c.message_cursor, signals_pending = c.signals_pending, \
    updates_pending = c.updates_pending, handed = c.handed, pending_bytes = c.pending_bytes, \
    command_sequence = c.command_sequence, waits = c.waits, resume_kind = c.resume_kind, \
    resume_command = c.resume_command, updated_at = $1 \
from unnest((select $2::bigint[]), (select $3::smallint[]), (select $4::timestamptz[]), \
    (select $5::boolean[]), (select $6::smallint[]), (select $7::int[]), (select $8::bigint[]), \
    (select $9::bigint[]), (select $10::int[]), (select $11::int[]), (select $12::bigint[]), (select $13::bigint[]), \
    (select $14::bigint[]), (select $15::text[]), (select $16::smallint[]), \
    (select $17::bigint[])) \
    as c(id, status, due_at, behind, cause, history_seq, message_sequence, message_cursor, \
    signals_pending, updates_pending, handed, pending_bytes, command_sequence, waits, \
    resume_kind, resume_command) \
where i.id = c.id";

/// Writes all other changes: every column that can change.
///
/// Index: `instances_pkey`. The rows are locked already. Names that are waited for are joined by line feeds, which no
/// name contains: `unnest` would flatten an array of arrays.
pub const MOVE: &str = "\
update abide.instances i set status = c.status, step = c.step, step_seq = c.step_seq, \
    attempt = c.attempt, queue = c.queue, priority = c.priority, due_at = c.due_at, \
    behind = c.behind, worker = c.worker, epoch = c.epoch, settled = c.settled, cause = c.cause, \
    timed_out = c.timed_out, wait_kind = c.wait_kind, awaits = string_to_array(c.awaits, chr(10)), \
    wait_since = c.wait_since, barrier = c.barrier, children_pending = c.children_pending, \
    children_needed = c.children_needed, history_seq = c.history_seq, last_error = c.last_error, \
    finished_at = c.finished_at, state = coalesce(c.state, i.state), \
    result = coalesce(c.result, i.result), wait_id = c.wait_id, aside_status = c.aside_status, \
    aside_due_at = c.aside_due_at, aside_cause = c.aside_cause, \
    message_sequence = c.message_sequence, message_cursor = c.message_cursor, \
    signals_pending = c.signals_pending, updates_pending = c.updates_pending, handed = c.handed, \
    kind = c.kind, children_ended = c.children_ended, attended = c.attended, \
    pending_bytes = c.pending_bytes, command_sequence = c.command_sequence, waits = c.waits, \
    resume_kind = c.resume_kind, resume_command = c.resume_command, \
    unfit = string_to_array(c.unfit, chr(10)), deaths = c.deaths, folding = c.folding, \
    settled_before = c.settled_before, updated_at = $1, \
    lease_until = case when c.status = 3 then i.lease_until end, \
    limit_until = case when c.status = 3 then i.limit_until end \
from unnest((select $2::bigint[]), (select $3::smallint[]), (select $4::text[]), \
    (select $5::int[]), (select $6::int[]), (select $7::text[]), (select $8::smallint[]), \
    (select $9::timestamptz[]), (select $10::boolean[]), (select $11::bigint[]), \
    (select $12::bigint[]), (select $13::bigint[]), (select $14::smallint[]), \
    (select $15::boolean[]), (select $16::smallint[]), (select $17::text[]), \
    (select $18::timestamptz[]), (select $19::int[]), (select $20::int[]), (select $21::int[]), \
    (select $22::int[]), (select $23::text[]), (select $24::timestamptz[]), (select $25::text[]), \
    (select $26::text[]), (select $27::text[]), (select $28::smallint[]), \
    (select $29::timestamptz[]), (select $30::smallint[]), (select $31::bigint[]), \
    (select $32::bigint[]), (select $33::int[]), (select $34::int[]), (select $35::bigint[]), \
    (select $36::smallint[]), (select $37::bigint[]), (select $38::text[]), (select $39::bigint[]), \
    (select $40::bigint[]), (select $41::text[]), (select $42::smallint[]), \
    (select $43::bigint[]), (select $44::text[]), (select $45::int[]), (select $46::text[]), \
    (select $47::bigint[])) \
    as c(id, status, step, step_seq, attempt, queue, priority, due_at, behind, worker, epoch, \
    settled, cause, timed_out, wait_kind, awaits, wait_since, barrier, children_pending, \
    children_needed, history_seq, last_error, finished_at, state, result, wait_id, aside_status, \
    aside_due_at, aside_cause, message_sequence, message_cursor, signals_pending, \
    updates_pending, handed, kind, children_ended, attended, pending_bytes, command_sequence, \
    waits, resume_kind, resume_command, unfit, deaths, folding, settled_before) \
where i.id = c.id";

/// Writes the leases of rows that are held. The lease of a row that is no longer held is removed by the statement that
/// ended the hold.
///
/// Index: `instances_pkey`. The rows are locked already, or were claimed in this transaction.
pub const LEASE: &str = "\
update abide.instances i set lease_until = c.lease_until, limit_until = c.limit_until, \
    updated_at = $1 \
from unnest((select $2::bigint[]), (select $3::timestamptz[]), (select $4::timestamptz[])) \
    as c(id, lease_until, limit_until) \
where i.id = c.id";

/// Appends to histories.
///
/// Index: `history_pkey`, which also ensures that event numbers are unique.
pub const APPEND: &str = "\
insert into abide.history (instance_id, seq, at, events) \
select * from unnest($1::bigint[], $2::int[], $3::timestamptz[], $4::text[])";

/// Replaces rows of histories by others.
///
/// Index: `history_pkey`, one look-up for each, also before the table has statistics. The instances are locked already.
pub const MOVE_HISTORY: &str = "\
update abide.history h set seq = f.seq, at = f.at, events = f.events \
from ( \
    select x.place, c.seq, c.at, c.events \
    from unnest((select $1::bigint[]), (select $2::int[]), (select $3::int[]), (select $4::timestamptz[]), \
        (select $5::text[])) \
        as c(instance_id, was, seq, at, events) \
    cross join lateral ( \
        select x.ctid as place from abide.history x where x.instance_id = c.instance_id and x.seq = c.was offset 0 \
    ) x \
) f \
where h.ctid = f.place";

/// Inserts or overwrites declarations by machine and version; writes nothing if nothing differs.
///
/// Index: `machines_pkey`. Locks: the rows, by machine and version.
pub const DECLARE: &str = "\
insert into abide.machines as m \
    (machine, version, kind, first_step, queue, history, contract_id, policy) \
select * from unnest($1::text[], $2::int[], $3::smallint[], $4::text[], $5::text[], $6::boolean[], \
    $7::bigint[], $8::text[]) \
    as c(machine, version, kind, first_step, queue, history, contract_id, policy) \
on conflict (machine, version) do update \
    set kind = excluded.kind, first_step = excluded.first_step, queue = excluded.queue, \
        history = excluded.history, contract_id = excluded.contract_id, \
        policy = excluded.policy \
    where (m.kind, m.first_step, m.queue, m.history, m.contract_id, m.policy) is distinct from \
        (excluded.kind, excluded.first_step, excluded.queue, excluded.history, \
        excluded.contract_id, excluded.policy)";

/// Marks runs that are followed by another: they hold no key, and have no place at their parent's barrier (rule 2.4).
///
/// Index: `instances_pkey`. The rows are locked already.
pub const SUPERSEDE: &str = "\
update abide.instances set key_scope = 0, unique_scope = 0, parent_barrier = 0 \
where id = any((select $1::bigint[])::bigint[])";

/// Gives the children of a barrier to another parent (rule 11.2), and returns them.
///
/// Index: `instances_children`. Locks: those that have ended, by id; the others are locked already. A transaction that
/// restarts one of them has locked it, and waits for its parent.
pub const ADOPT: &str = "\
update abide.instances set parent_id = $3 \
where id = any(array( \
    select c.id from abide.instances c where c.parent_id = $1 and c.parent_barrier = $2 order by c.id for no key update)) \
returning id";

/// Writes rows, each kind of change with its own statement.
pub(crate) fn update(
    txn: &mut Transaction<'_>,
    changes: &Changes<'_>,
    now: Timestamp,
) -> Result<()> {
    keys::give_up(txn, &changes.given_up)?;
    let size = |json: Option<&Json>| json.map_or(0, Json::size);
    for part in parts(&changes.advances, |one| size(one.state)) {
        txn.write(ADVANCE, advances(part, now))?;
    }
    for part in parts(&changes.finishes, |one| size(one.result)) {
        txn.write(FINISH, finishes(part, now))?;
    }
    for part in parts(&changes.wakes, |_| 0) {
        txn.write(WAKE, wakes(part, now)?)?;
    }
    for part in parts(&changes.moves, |one| size(one.state) + size(one.result)) {
        txn.write(MOVE, moves(part, now)?)?;
    }
    let held = changes.leases.iter();
    let held: Vec<(InstanceId, Lease)> =
        held.filter_map(|one| Some((one.id, one.lease?))).collect();
    for part in parts(&held, |_| 0) {
        txn.write(LEASE, leases(part, now))?;
    }
    Ok(())
}

/// Appends to histories.
pub(crate) fn append(txn: &mut Transaction<'_>, rows: &[HistoryRow]) -> Result<()> {
    for part in parts(rows, |row| row.events.len()) {
        let params = vec![
            Param::list(part.iter().map(|row| row.instance)),
            Param::list(part.iter().map(|row| row.seq)),
            Param::list(part.iter().map(|row| row.at)),
            Param::list(part.iter().map(|row| row.events.as_str())),
        ];
        txn.write(APPEND, params)?;
    }
    Ok(())
}

/// Replaces rows of histories by others.
pub(crate) fn move_history(txn: &mut Transaction<'_>, rows: &[MovedHistory]) -> Result<()> {
    for part in parts(rows, |moved| moved.row.events.len()) {
        let params = vec![
            Param::list(part.iter().map(|moved| moved.row.instance)),
            Param::list(part.iter().map(|moved| moved.was)),
            Param::list(part.iter().map(|moved| moved.row.seq)),
            Param::list(part.iter().map(|moved| moved.row.at)),
            Param::list(part.iter().map(|moved| moved.row.events.as_str())),
        ];
        txn.write(MOVE_HISTORY, params)?;
    }
    Ok(())
}

/// Writes declarations; of two for one machine and version, the last one counts.
pub(crate) fn declare(txn: &mut Transaction<'_>, declared: &[Declared]) -> Result<()> {
    let sorted: BTreeMap<_, _> = declared
        .iter()
        .map(|one| ((&one.machine, one.version), one))
        .collect();
    let policies = sorted.values().map(|one| written(one.policy().as_ref()));
    let policies = policies.collect::<Result<Vec<Option<Json>>>>()?;
    let params = vec![
        Param::list(sorted.values().map(|one| one.machine.as_str())),
        Param::list(sorted.values().map(|one| one.version)),
        Param::list(sorted.values().map(|one| one.kind.code())),
        Param::list(sorted.values().map(|one| one.first_step.as_str())),
        Param::list(sorted.values().map(|one| one.queue.as_str())),
        Param::list(sorted.values().map(|one| one.history)),
        Param::list(sorted.values().map(|one| one.contract)),
        Param::list(policies.iter().map(|one| one.as_ref().map(Json::as_str))),
    ];
    txn.write(DECLARE, params)
}

/// A policy in its stored form.
pub(crate) fn written(policy: Option<&Policy>) -> Result<Option<Json>> {
    let written = policy.map(Json::of).transpose();
    written.map_err(|error| Error::Broken(format!("a policy cannot be written: {error}")))
}

/// Marks runs that are followed by another.
pub(crate) fn supersede(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<()> {
    txn.write(SUPERSEDE, vec![Param::list(ids.iter().copied())])
}

/// Gives the children of a barrier to another parent.
pub(crate) async fn adopt(
    txn: &mut Transaction<'_>,
    (parent, barrier): (InstanceId, BarrierNumber),
    by: InstanceId,
) -> Result<u32> {
    let params = vec![Param::one(parent), Param::one(barrier), Param::one(by)];
    let moved = txn.read(ADOPT, params).await?;
    Ok(u32::try_from(moved.len()).unwrap_or(u32::MAX))
}

fn advances(list: &[Advance<'_>], now: Timestamp) -> Vec<Param> {
    let rows = || list.iter().map(|one| one.row);
    vec![
        Param::one(now),
        Param::list(rows().map(|row| row.id)),
        Param::list(rows().map(|row| row.step.as_str())),
        Param::list(rows().map(|row| row.step_seq)),
        Param::list(rows().map(|row| row.attempt)),
        Param::list(rows().map(|row| row.epoch)),
        Param::list(rows().map(|row| row.settled.last)),
        Param::list(rows().map(|row| row.cause.code())),
        Param::list(rows().map(|row| row.history_seq)),
        Param::list(list.iter().map(|one| one.state.map(Json::as_str))),
        Param::list(rows().map(settled_before)),
    ]
}

fn finishes(list: &[Finish<'_>], now: Timestamp) -> Vec<Param> {
    let rows = || list.iter().map(|one| one.row);
    vec![
        Param::one(now),
        Param::list(rows().map(|row| row.id)),
        Param::list(rows().map(|row| row.status.code())),
        Param::list(rows().map(|row| row.epoch)),
        Param::list(rows().map(|row| row.settled.last)),
        Param::list(rows().map(|row| row.history_seq)),
        Param::list(rows().map(last_error)),
        Param::list(rows().map(|row| row.finished_at)),
        Param::list(
            list.iter()
                .map(|one| one.result.map(|result| result.as_str())),
        ),
        Param::list(rows().map(settled_before)),
    ]
}

/// The committed epochs before the last one, as bits.
fn settled_before(row: &Row) -> i64 {
    row.settled.before.cast_signed()
}

/// The pending bytes, if there are any.
pub(crate) fn pending_bytes(inbox: Inbox) -> Option<i64> {
    (inbox.bytes > 0).then(|| i64::try_from(inbox.bytes).unwrap_or(i64::MAX))
}

fn wakes(list: &[Wake<'_>], now: Timestamp) -> Result<Vec<Param>> {
    let rows = || list.iter().map(|one| one.row);
    let mut params = vec![
        Param::one(now),
        Param::list(rows().map(|row| row.id)),
        Param::list(rows().map(|row| row.status.code())),
        Param::list(rows().map(|row| row.due_at)),
        Param::list(rows().map(|row| row.behind)),
        Param::list(rows().map(|row| row.cause.code())),
        Param::list(rows().map(|row| row.history_seq)),
        Param::list(rows().map(|row| some(row.inbox.sequence))),
        Param::list(rows().map(|row| some(row.inbox.cursor))),
        Param::list(rows().map(|row| row.inbox.signals)),
        Param::list(rows().map(|row| row.inbox.updates)),
        Param::list(rows().map(|row| some(row.inbox.handed))),
        Param::list(rows().map(|row| pending_bytes(row.inbox))),
    ];
    params.extend(come_to(rows)?);
    Ok(params)
}

/// The parameters for the number of commands of rows, and for the state of their waits.
fn come_to<'r, R: Iterator<Item = &'r Row>>(rows: impl Fn() -> R) -> Result<[Param; 4]> {
    let waits: Vec<Option<String>> = rows().map(waits).collect::<Result<_>>()?;
    let resumed = || rows().map(|row| row.awaits.as_ref()?.resumed);
    Ok([
        Param::list(rows().map(|row| some(row.inbox.commands))),
        Param::list(waits),
        Param::list(resumed().map(|source| source.map(|source| source.kind.code()))),
        Param::list(resumed().map(|source| source?.command_id)),
    ])
}

fn moves(list: &[Move<'_>], now: Timestamp) -> Result<Vec<Param>> {
    let rows = || list.iter().map(|one| one.row);
    let attended: Vec<Option<String>> = rows().map(attended).collect::<Result<_>>()?;
    let mut params = vec![
        Param::one(now),
        Param::list(rows().map(|row| row.id)),
        Param::list(rows().map(|row| row.status.code())),
        Param::list(rows().map(|row| row.step.as_str())),
        Param::list(rows().map(|row| row.step_seq)),
        Param::list(rows().map(|row| row.attempt)),
        Param::list(rows().map(|row| row.queue.as_str())),
        Param::list(rows().map(|row| row.priority)),
        Param::list(rows().map(|row| row.due_at)),
        Param::list(rows().map(|row| row.behind)),
        Param::list(rows().map(|row| row.worker)),
        Param::list(rows().map(|row| row.epoch)),
        Param::list(rows().map(|row| row.settled.last)),
        Param::list(rows().map(|row| row.cause.code())),
        Param::list(rows().map(|row| row.timed_out)),
        Param::list(rows().map(|row| row.awaits.as_ref().map(|awaits| awaits.kind.code()))),
        Param::list(rows().map(awaited_names)),
        Param::list(rows().map(|row| row.awaits.as_ref().map(|awaits| awaits.since))),
        Param::list(rows().map(|row| row.family.barrier)),
        Param::list(rows().map(|row| row.family.pending)),
        Param::list(rows().map(|row| row.family.needed)),
        Param::list(rows().map(|row| row.history_seq)),
        Param::list(rows().map(last_error)),
        Param::list(rows().map(|row| row.finished_at)),
        Param::list(list.iter().map(|one| one.state.map(Json::as_str))),
        Param::list(list.iter().map(|one| one.result.map(Json::as_str))),
        Param::list(rows().map(|row| row.awaits.as_ref()?.id.as_ref().map(WaitId::as_str))),
        Param::list(rows().map(|row| row.aside.map(|aside| aside.status.code()))),
        Param::list(rows().map(|row| row.aside.and_then(|aside| aside.due_at))),
        Param::list(rows().map(|row| row.aside.map(|aside| aside.cause.code()))),
        Param::list(rows().map(|row| some(row.inbox.sequence))),
        Param::list(rows().map(|row| some(row.inbox.cursor))),
        Param::list(rows().map(|row| row.inbox.signals)),
        Param::list(rows().map(|row| row.inbox.updates)),
        Param::list(rows().map(|row| some(row.inbox.handed))),
        Param::list(rows().map(|row| row.kind.code())),
        Param::list(rows().map(|row| row.family.ended)),
        Param::list(attended),
        Param::list(rows().map(|row| pending_bytes(row.inbox))),
    ];
    params.extend(come_to(rows)?);
    params.push(Param::list(rows().map(unfit)));
    params.push(Param::list(rows().map(|row| row.deaths)));
    params.push(Param::list(
        rows().map(folding).collect::<Result<Vec<_>>>()?,
    ));
    params.push(Param::list(rows().map(settled_before)));
    Ok(params)
}

fn leases(list: &[(InstanceId, Lease)], now: Timestamp) -> Vec<Param> {
    vec![
        Param::one(now),
        Param::list(list.iter().map(|(id, _)| *id)),
        Param::list(list.iter().map(|(_, lease)| lease.until)),
        Param::list(list.iter().map(|(_, lease)| lease.limit)),
    ]
}

/// The builds that could not run a row, joined like the names that it waits for.
fn unfit(row: &Row) -> Option<String> {
    let builds: Vec<&str> = row.unfit.iter().map(Name::as_str).collect();
    (!builds.is_empty()).then(|| builds.join("\n"))
}

fn folding(row: &Row) -> Result<Option<String>> {
    let some = !row.folding.is_empty();
    some.then(|| serde_json::to_string(&row.folding))
        .transpose()
        .map_err(|error| Error::Broken(error.to_string()))
}

fn attended(row: &Row) -> Result<Option<String>> {
    let some = !row.attended.is_empty();
    some.then(|| serde_json::to_string(&row.attended))
        .transpose()
        .map_err(|error| Error::Broken(error.to_string()))
}

fn waits(row: &Row) -> Result<Option<String>> {
    let waits = row.awaits.as_ref().map(|awaits| &awaits.waits);
    waits
        .filter(|waits| !waits.is_empty())
        .map(serde_json::to_string)
        .transpose()
        .map_err(|error| Error::Broken(error.to_string()))
}

fn last_error(row: &Row) -> Option<Cow<'_, str>> {
    row.last_error.as_deref().map(without_nul)
}

fn awaited_names(row: &Row) -> Option<Cow<'_, str>> {
    let awaits = row.awaits.as_ref()?;
    let names: Vec<&str> = awaits.names.iter().map(Name::as_str).collect();
    Some(names.join("\n").into())
}
