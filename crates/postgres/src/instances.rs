//! The table of instances: the columns that statements read and write, and how each is read and bound. A new column of a
//! row is added here.

use std::borrow::Cow;

use abide_core::model::{
    Extra, Instance, Json, Key, Lease, NewRow, Policy, Row, Run, Scope, Scopes, Settled, UniqueKey,
};
use abide_core::sql;
use abide_kernel::{Advance, Error, Finish, Move, Result, Wake};

use crate::arrays::columns;
use crate::cells::Cells;
use crate::param::without_nul;

/// The columns that rules use, in the order in which [`row`] reads them.
pub(crate) const LOCK_COLUMNS: &str = "\
        id, machine, step, queue, created_at, kind, status, case when key is not null then key_scope end, \
        case when unique_key is not null then unique_scope end, step_seq, attempt, priority, due_at, \
        partition_key, behind, worker, lease_until, limit_until, epoch, settled, settled_before, cause, contract_id, \
        first_id, parent_id, parent_barrier, history, history_seq, last_error, finished_at, extra";

/// The columns of an instance, in the order in which [`instance`] reads them.
pub(crate) const INSTANCE_COLUMNS: &str = sql!(
    LOCK_COLUMNS,
    ", key, key_scope, unique_key, unique_scope, version, first_step, state, result, policy, updated_at"
);

/// Reads an instance.
pub(crate) fn instance(cells: &mut Cells<'_>) -> Result<Instance> {
    Ok(Instance {
        row: row(cells)?,
        key: cells.next()?,
        scope: cells.next()?,
        unique_key: cells.next()?,
        unique_scope: cells.next()?,
        version: cells.next()?,
        first_step: cells.next()?,
        state: cells.next()?,
        result: cells.next()?,
        policy: cells.next()?,
        updated_at: cells.next()?,
    })
}

/// Reads the part of an instance that rules use.
pub(crate) fn row(cells: &mut Cells<'_>) -> Result<Row> {
    let plain = Row::new(
        cells.next()?,
        cells.next()?,
        cells.next()?,
        cells.next()?,
        cells.next()?,
    );
    let mut row = Row {
        kind: cells.next()?,
        status: cells.next()?,
        scopes: Scopes {
            key: scope(cells)?,
            unique_key: scope(cells)?,
        },
        step_seq: cells.next()?,
        attempt: cells.next()?,
        priority: cells.next()?,
        due_at: cells.next()?,
        partition_key: cells.next()?,
        behind: cells.next()?,
        worker: cells.next()?,
        lease: lease(cells)?,
        epoch: cells.next()?,
        settled: Settled {
            last: cells.next()?,
            before: cells.next::<i64>()?.cast_unsigned(),
        },
        cause: cells.next()?,
        contract: cells.next()?,
        run: Run {
            number: 1,
            first: cells.next()?,
        },
        parent: cells.next()?,
        parent_barrier: cells.next()?,
        history: cells.next()?,
        history_seq: cells.next()?,
        last_error: cells.next()?,
        finished_at: cells.next()?,
        ..plain
    };
    if let Some(extra) = cells.next::<Option<Extra>>()? {
        extra.fill_row(&mut row);
    }
    Ok(row)
}

/// The scope of a key; null if there is no key.
fn scope(cells: &mut Cells<'_>) -> Result<Scope> {
    Ok(cells.next::<Option<_>>()?.unwrap_or(Scope::NEVER))
}

fn lease(cells: &mut Cells<'_>) -> Result<Option<Lease>> {
    let Some(until) = cells.next()? else {
        cells.skip(1);
        return Ok(None);
    };
    let limit = cells.next()?;
    Ok(Some(Lease { until, limit }))
}

columns! {
    /// The columns that every start writes. The first step, the number of events and the update time follow from them.
    Start: |row: &NewRow| {
        1 created_at timestamptz: row.created_at,
        2 kind smallint: row.kind.code(),
        3 machine text: row.machine.as_str(),
        4 version int: row.version,
        5 step text: row.step.as_str(),
        6 state text: row.state.as_str(),
        7 status smallint: row.status.code(),
        8 cause smallint: row.cause.code(),
        9 key text: row.key.as_ref().map(Key::as_str),
        10 key_scope int: row.scope.bits(),
        11 unique_key bytea: row.unique_key.as_ref().map(UniqueKey::as_bytes),
        12 unique_scope int: row.unique_scope.bits(),
        13 queue text: row.queue.as_str(),
        14 priority smallint: row.priority,
        15 due_at timestamptz: row.due_at,
        16 partition_key text: row.partition_key.as_ref().map(Key::as_str),
        17 behind boolean: row.behind,
        18 parent_id bigint: row.parent,
        19 parent_barrier int: row.parent_barrier,
        20 history boolean: row.history,
        21 contract_id bigint: row.contract,
    }
}

columns! {
    /// The columns of a start that has a policy of its own or continues a chain.
    Chained: |row: &NewRow| {
        22 first_id bigint: row.run.first,
        23 policy text: written(row.policy.as_ref())?,
        24 extra text: stored(&Extra::from(*row))?,
    }
}

columns! {
    /// The columns of a step that continues under the same worker.
    Advanced: |one: Advance<'_>| {
        2 id bigint: one.row.id,
        3 step text: one.row.step.as_str(),
        4 step_seq int: one.row.step_seq,
        5 attempt int: one.row.attempt,
        6 epoch bigint: one.row.epoch,
        7 settled bigint: one.row.settled.last,
        8 cause smallint: one.row.cause.code(),
        9 history_seq int: one.row.history_seq,
        10 state text: one.state.map(Json::as_str),
        11 settled_before bigint: one.row.settled.before.cast_signed(),
    }
}

columns! {
    /// The columns of an instance that ended.
    Finished: |one: Finish<'_>| {
        2 id bigint: one.row.id,
        3 status smallint: one.row.status.code(),
        4 epoch bigint: one.row.epoch,
        5 settled bigint: one.row.settled.last,
        6 history_seq int: one.row.history_seq,
        7 last_error text: last_error(one.row),
        8 finished_at timestamptz: one.row.finished_at,
        9 result text: one.result.map(Json::as_str),
        10 settled_before bigint: one.row.settled.before.cast_signed(),
        11 extra text: stored(&Extra::from(one.row))?,
    }
}

columns! {
    /// The columns of an instance that received a signal.
    Woken: |one: Wake<'_>| {
        2 id bigint: one.row.id,
        3 status smallint: one.row.status.code(),
        4 due_at timestamptz: one.row.due_at,
        5 behind boolean: one.row.behind,
        6 cause smallint: one.row.cause.code(),
        7 history_seq int: one.row.history_seq,
        8 extra text: stored(&Extra::from(one.row))?,
    }
}

columns! {
    /// Every column that can change.
    Moved: |one: Move<'_>| {
        2 id bigint: one.row.id,
        3 status smallint: one.row.status.code(),
        4 step text: one.row.step.as_str(),
        5 step_seq int: one.row.step_seq,
        6 attempt int: one.row.attempt,
        7 queue text: one.row.queue.as_str(),
        8 priority smallint: one.row.priority,
        9 due_at timestamptz: one.row.due_at,
        10 behind boolean: one.row.behind,
        11 worker bigint: one.row.worker,
        12 epoch bigint: one.row.epoch,
        13 settled bigint: one.row.settled.last,
        14 cause smallint: one.row.cause.code(),
        15 history_seq int: one.row.history_seq,
        16 last_error text: last_error(one.row),
        17 finished_at timestamptz: one.row.finished_at,
        18 state text: one.state.map(Json::as_str),
        19 result text: one.result.map(Json::as_str),
        20 kind smallint: one.row.kind.code(),
        21 settled_before bigint: one.row.settled.before.cast_signed(),
        22 extra text: stored(&Extra::from(one.row))?,
    }
}

fn last_error(row: &Row) -> Option<Cow<'_, str>> {
    row.last_error.as_deref().map(without_nul)
}

/// A policy in its stored form.
pub(crate) fn written(policy: Option<&Policy>) -> Result<Option<String>> {
    let written = policy.map(serde_json::to_string).transpose();
    written.map_err(|error| Error::Broken(format!("a policy cannot be written: {error}")))
}

/// The stored form of the values that are the default in nearly every row.
pub(crate) fn stored(extra: &Extra) -> Result<Option<String>> {
    let stored = extra.stored();
    stored.map_err(|error| Error::Broken(format!("a row cannot be written: {error}")))
}
