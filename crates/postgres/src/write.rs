//! Writes locked rows, histories and declarations. Nothing here waits for a result.

use std::collections::BTreeMap;

use abide_core::model::{BarrierNumber, Declared, HistoryRow, InstanceId, Json, Lease, Timestamp};
use abide_core::sql;
use abide_kernel::{Changes, MovedHistory, Result};

use crate::arrays::{Forms, arrays, columns, forms};
use crate::instances::{Advanced, Finished, Moved, Woken, written};
use crate::keys;
use crate::param::{Param, parts};
use crate::txn::Transaction;

// The arrays are hidden in sub-selects: a planner that sees their length joins with a hash over the whole table while
// the table is small, and keeps that plan when it has grown.

/// Writes steps that continued under the same worker.
///
/// Index: `instances_pkey`. The rows are locked already. It changes no indexed column, so the new version is stored
/// beside the old one and no index is written. A large state that stays the same is not written again: both versions
/// point to it.
pub const ADVANCE: Forms = forms!(
    "\
update abide.instances i set step = c.step, step_seq = c.step_seq, attempt = c.attempt, \
    epoch = c.epoch, settled = c.settled, settled_before = c.settled_before, cause = c.cause, \
    history_seq = c.history_seq, state = coalesce(c.state, i.state), updated_at = $1 \
from ";
    Advanced;
    " c \
where i.id = c.id"
);

/// Writes instances that ended.
///
/// Index: `instances_pkey`. The rows are locked already.
pub const FINISH: Forms = forms!(
    "\
update abide.instances i set status = c.status, epoch = c.epoch, settled = c.settled, \
    settled_before = c.settled_before, history_seq = c.history_seq, last_error = c.last_error, finished_at = c.finished_at, \
    result = c.result, updated_at = $1, worker = null, lease_until = null, limit_until = null, due_at = null, \
    extra = c.extra, behind = false \
from ";
    Finished;
    " c \
where i.id = c.id"
);

/// Writes instances that received signals.
///
/// Index: `instances_pkey`. Locks: nothing that is not locked already.
pub const WAKE: Forms = forms!(
    "\
update abide.instances i set status = c.status, due_at = c.due_at, behind = c.behind, cause = c.cause, \
    history_seq = c.history_seq, extra = c.extra, updated_at = $1 \
from ";
    Woken;
    " c \
where i.id = c.id"
);

/// Writes all other changes: every column that can change.
///
/// Index: `instances_pkey`. The rows are locked already.
pub const MOVE: Forms = forms!(
    "\
update abide.instances i set status = c.status, step = c.step, step_seq = c.step_seq, \
    attempt = c.attempt, queue = c.queue, priority = c.priority, due_at = c.due_at, \
    behind = c.behind, worker = c.worker, epoch = c.epoch, settled = c.settled, cause = c.cause, \
    history_seq = c.history_seq, last_error = c.last_error, finished_at = c.finished_at, \
    state = coalesce(c.state, i.state), result = coalesce(c.result, i.result), kind = c.kind, \
    settled_before = c.settled_before, extra = c.extra, updated_at = $1, \
    lease_until = case when c.status = @executing then i.lease_until end, \
    limit_until = case when c.status = @executing then i.limit_until end \
from ";
    Moved;
    " c \
where i.id = c.id"
);

/// Writes the leases of rows that are held. The lease of a row that is no longer held is removed by the statement that
/// ended the hold.
///
/// Index: `instances_pkey`. The rows are locked already, or were claimed in this transaction.
pub const LEASE: &str = sql! {
    "\
update abide.instances i set lease_until = c.lease_until, limit_until = c.limit_until, \
    updated_at = $1 \
from ", arrays!(2 id bigint, 3 lease_until timestamptz, 4 limit_until timestamptz), " c \
where i.id = c.id"
};

/// Appends to histories.
///
/// Index: `history_pkey`, which also ensures that event numbers are unique.
pub const APPEND: Forms = forms!(
    "\
insert into abide.history (instance_id, seq, at, events) \
select * from ";
    [1 instance_id bigint, 2 seq int, 3 at timestamptz, 4 events text];
    " r"
);

/// Replaces rows of histories by others.
///
/// Index: `history_pkey`, one look-up for each, also before the table has statistics. The instances are locked already.
pub const MOVE_HISTORY: &str = sql! {
    "\
update abide.history h set seq = f.seq, at = f.at, events = f.events \
from ( \
    select x.place, c.seq, c.at, c.events \
    from ", arrays!(1 instance_id bigint, 2 was int, 3 seq int, 4 at timestamptz, 5 events text), " c \
    cross join lateral ( \
        select x.ctid as place from abide.history x where x.instance_id = c.instance_id and x.seq = c.was offset 0 \
    ) x \
) f \
where h.ctid = f.place"
};

columns! {
    /// The columns of a declaration.
    Declaration: |one: &Declared| {
        1 machine text: one.machine.as_str(),
        2 version int: one.version,
        3 kind smallint: one.kind.code(),
        4 first_step text: one.first_step.as_str(),
        5 queue text: one.queue.as_str(),
        6 history boolean: one.history,
        7 contract_id bigint: one.contract,
        8 policy text: written(one.policy().as_ref())?,
    }
}

/// Inserts or overwrites declarations by machine and version; writes nothing if nothing differs.
///
/// Index: `machines_pkey`. Locks: the rows, by machine and version.
pub const DECLARE: &str = sql! {
    "insert into abide.machines as m (", Declaration::NAMES, ") \
select * from (select ", Declaration::MANY, ") c \
on conflict (machine, version) do update \
    set kind = excluded.kind, first_step = excluded.first_step, queue = excluded.queue, \
        history = excluded.history, contract_id = excluded.contract_id, \
        policy = excluded.policy \
    where (m.kind, m.first_step, m.queue, m.history, m.contract_id, m.policy) is distinct from \
        (excluded.kind, excluded.first_step, excluded.queue, excluded.history, \
        excluded.contract_id, excluded.policy)"
};

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
        txn.write_rows(ADVANCE, part.len(), at(now, Advanced::params(part)?))?;
    }
    for part in parts(&changes.finishes, |one| size(one.result)) {
        txn.write_rows(FINISH, part.len(), at(now, Finished::params(part)?))?;
    }
    for part in parts(&changes.wakes, |_| 0) {
        txn.write_rows(WAKE, part.len(), at(now, Woken::params(part)?))?;
    }
    for part in parts(&changes.moves, |one| size(one.state) + size(one.result)) {
        txn.write_rows(MOVE, part.len(), at(now, Moved::params(part)?))?;
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
        txn.write_rows(APPEND, part.len(), params)?;
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
    let declared: Vec<&Declared> = sorted.into_values().collect();
    txn.write(DECLARE, Declaration::params(&declared)?)
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

/// The parameters of a statement whose first one is the time.
fn at(now: Timestamp, columns: Vec<Param>) -> Vec<Param> {
    let mut params = Vec::with_capacity(columns.len() + 1);
    params.push(Param::one(now));
    params.extend(columns);
    params
}

fn leases(list: &[(InstanceId, Lease)], now: Timestamp) -> Vec<Param> {
    vec![
        Param::one(now),
        Param::list(list.iter().map(|(id, _)| *id)),
        Param::list(list.iter().map(|(_, lease)| lease.until)),
        Param::list(list.iter().map(|(_, lease)| lease.limit)),
    ]
}
