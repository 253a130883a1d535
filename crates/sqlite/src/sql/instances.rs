//! The table of instances: the columns that statements read and write, and how each is read and bound. A new column of a
//! row is added here.

use abide_core::model::{
    BarrierNumber, Cause, Epoch, Extra, Instance, InstanceId, Key, Kind, Lane, Name, NewRow, Row,
    Run, Status, Timestamp, UniqueKey, WorkerId,
};
use abide_core::sql;
use abide_kernel::{Advance, Finish, Move, Wake};
use rusqlite::Result;

use super::columns;
use crate::cells::{self, Names};
use crate::columns::{IndexColumns, OWN_SCOPES, from_scopes, is_behind, lane, scopes, taken};

/// The columns of a row that rules use, in the order in which [`Reader::row`] reads them.
pub(crate) const ROW_COLUMNS: &str = sql!(
    "id, status, queue, priority, due_at, worker, epoch, settled, step, step_seq, attempt, cause, history_seq, ",
    OWN_SCOPES,
    ", last_error, finished_at, partition_key, standing, parent_id, parent_barrier, first_id, contract, kind,
             lease_until, limit_until, machine, created_at, settled_before, extra"
);

/// Number of these columns.
const ROW_COLUMNS_COUNT: usize = 29;

/// The columns of an instance, in the order in which [`Reader::instance`] reads them.
pub(crate) const INSTANCE_COLUMNS: &str = sql!(
    ROW_COLUMNS,
    ", key, unique_key, scopes, version, first_step, state, result, policy, updated_at"
);

/// Reads rows, and reuses the names of the previous one.
#[derive(Default)]
pub(crate) struct Reader {
    queues: Names,
    steps: Names,
    machines: Names,
}

impl Reader {
    /// Reads the columns that rules use. Columns that cannot matter to the row are not read.
    pub fn row(&mut self, row: &rusqlite::Row<'_>) -> Result<Row> {
        let finished_at = cells::maybe_time(row, 15)?;
        let partition_key = cells::maybe_key(row, 16)?;
        let history_seq = row.get(12)?;
        let (parent, parent_barrier) = parent(row, 18)?;
        let worker = cells::maybe_worker(row, 5)?;
        let mut loaded = Row {
            kind: cells::code(row, 22, Kind::from_code)?,
            status: cells::status(row, 1)?,
            scopes: from_scopes(row.get(13)?),
            behind: partition_key.is_some() && is_behind(row.get(17)?),
            priority: cells::priority(row, 3)?,
            due_at: if finished_at.is_some() {
                None
            } else {
                cells::maybe_time(row, 4)?
            },
            partition_key,
            worker,
            lease: match worker {
                Some(_) => cells::lease(row, 23)?,
                None => None,
            },
            epoch: Epoch(row.get(6)?),
            settled: cells::settled(row, 7, 27)?,
            step_seq: row.get(9)?,
            attempt: row.get(10)?,
            cause: cells::code(row, 11, Cause::from_code)?,
            contract: cells::maybe_contract(row, 21)?,
            run: Run {
                number: 1,
                first: cells::maybe_id(row, 20)?,
            },
            parent,
            parent_barrier,
            history: history_seq > 0,
            history_seq,
            last_error: row.get(14)?,
            finished_at,
            ..Row::new(
                cells::id(row, 0)?,
                self.machines.read(row, 25)?,
                self.steps.read(row, 8)?,
                self.queues.read(row, 2)?,
                cells::time(row, 26)?,
            )
        };
        if let Some(extra) = cells::extra(row, 28)? {
            extra.fill_row(&mut loaded);
        }
        Ok(loaded)
    }

    /// Reads an instance.
    pub fn instance(&mut self, row: &rusqlite::Row<'_>) -> Result<Instance> {
        let at = ROW_COLUMNS_COUNT;
        let scopes = from_scopes(row.get(at + 2)?);
        Ok(Instance {
            row: self.row(row)?,
            key: cells::maybe_key(row, at)?,
            scope: scopes.key,
            unique_key: cells::maybe_unique_key(row, at + 1)?,
            unique_scope: scopes.unique_key,
            version: row.get(at + 3)?,
            first_step: cells::name(row, at + 4)?,
            state: cells::json(row, at + 5)?,
            result: cells::maybe_json(row, at + 6)?,
            policy: cells::policy(row, at + 7)?,
            updated_at: cells::time(row, at + 8)?,
        })
    }
}

/// The parent of a row: two columns; the second has no meaning if the first is null.
fn parent(row: &rusqlite::Row<'_>, at: usize) -> Result<(Option<InstanceId>, BarrierNumber)> {
    match cells::maybe_id(row, at)? {
        None => Ok((None, BarrierNumber::default())),
        some => Ok((some, BarrierNumber(row.get(at + 1)?))),
    }
}

/// The columns that a claim needs.
pub(crate) const CANDIDATE: &str = sql! {
    "id, priority, ready_at, epoch, settled, settled_before, step, step_seq, attempt, cause, history_seq, last_error, \
    partition_key, parent_id, parent_barrier, key, kind, first_id, contract, created_at, policy, extra, state, \
    iif(taken is null, 0, ", OWN_SCOPES, "), taken is not null and taken <> scopes >> @executing & 65537"
};

/// Reads a row that a worker claims from a queue, as it is after the claim.
pub(super) fn claimed_row(
    found: &rusqlite::Row<'_>,
    worker: WorkerId,
    queue: &Name,
    lane: &Lane,
    steps: &mut Names,
) -> Result<Row> {
    let (parent, parent_barrier) = parent(found, 13)?;
    let history_seq = found.get(10)?;
    let mut row = Row {
        kind: cells::code(found, 16, Kind::from_code)?,
        status: Status::Executing,
        scopes: from_scopes(found.get(23)?),
        priority: cells::priority(found, 1)?,
        due_at: Some(cells::time(found, 2)?),
        partition_key: cells::maybe_key(found, 12)?,
        worker: Some(worker),
        epoch: Epoch(found.get::<_, i64>(3)? + 1),
        settled: cells::settled(found, 4, 5)?,
        step_seq: found.get(7)?,
        attempt: found.get(8)?,
        cause: cells::code(found, 9, Cause::from_code)?,
        contract: cells::maybe_contract(found, 18)?,
        run: Run {
            number: 1,
            first: cells::maybe_id(found, 17)?,
        },
        parent,
        parent_barrier,
        history: history_seq > 0,
        history_seq,
        last_error: found.get(11)?,
        ..Row::new(
            cells::id(found, 0)?,
            lane.machine.clone(),
            steps.read(found, 6)?,
            queue.clone(),
            cells::time(found, 19)?,
        )
    };
    if let Some(extra) = cells::extra(found, 21)? {
        extra.fill_row(&mut row);
    }
    Ok(row)
}

columns! {
    /// The columns of a start, besides its state. The creation time is the update time, and the first step is the step.
    Start: |row: &NewRow| {
        1 status: row.status.code(),
        2 ready_at: IndexColumns::from(row).ready_at(),
        3 wake_at: IndexColumns::from(row).wake_at(),
        4 lane: lane(&row.queue, &row.machine, row.version),
        5 priority: row.priority.0,
        6 due_at: row.due_at.as_micros(),
        7 step: row.step.as_str(),
        8 cause: row.cause.code(),
        9 history_seq: row.history,
        10 partition_key: row.partition_key.as_ref().map(Key::as_str),
        11 standing: IndexColumns::from(row).standing(),
        12 parent_id: row.parent.map(|parent| parent.0),
        13 parent_barrier: row.parent_barrier.0,
        14 key: row.key.as_ref().map(Key::as_str),
        15 unique_key: row.unique_key.as_ref().map(UniqueKey::as_bytes),
        16 scopes: scopes(row.scope, row.unique_scope),
        17 taken: taken(row),
        18 queue: row.queue.as_str(),
        19 machine: row.machine.as_str(),
        20 version: row.version,
        21 kind: row.kind.code(),
        22 updated_at: row.created_at.as_micros(),
        23 first_id: row.run.first.map(|first| first.0),
        24 contract: row.contract.map(|contract| contract.0),
        25 policy: row.policy.as_ref().map(cells::written).transpose()?,
        26 extra: cells::stored(&Extra::from(row))?,
    }
}

columns! {
    /// The columns of a step that continues under the same worker, besides its state.
    Advanced: |one: &Advance<'_>| {
        1 id: one.row.id.0,
        2 epoch: one.row.epoch.0,
        3 settled: one.row.settled.last.0,
        4 settled_before: one.row.settled.before.cast_signed(),
        5 step: one.row.step.as_str(),
        6 step_seq: one.row.step_seq,
        7 attempt: one.row.attempt,
        8 cause: one.row.cause.code(),
        9 history_seq: one.row.history_seq,
    }
}

columns! {
    /// The columns of an instance that ended, besides its result.
    Finished: |one: &Finish<'_>| {
        1 id: one.row.id.0,
        2 status: one.row.status.code(),
        3 epoch: one.row.epoch.0,
        4 settled: one.row.settled.last.0,
        5 settled_before: one.row.settled.before.cast_signed(),
        6 history_seq: one.row.history_seq,
        7 finished_at: one.row.finished_at.map(Timestamp::as_micros),
        8 last_error: one.row.last_error.as_deref(),
        9 extra: cells::stored(&Extra::from(one.row))?,
    }
}

columns! {
    /// The columns of an instance that received a signal.
    Woken: |one: &Wake<'_>| {
        1 id: one.row.id.0,
        2 status: one.row.status.code(),
        3 ready_at: IndexColumns::from(one.row).ready_at(),
        4 wake_at: IndexColumns::from(one.row).wake_at(),
        5 due_at: one.row.due_at.map(Timestamp::as_micros),
        6 cause: one.row.cause.code(),
        7 history_seq: one.row.history_seq,
        8 extra: cells::stored(&Extra::from(one.row))?,
    }
}

columns! {
    /// The columns that can change, besides the state and the result.
    Moved: |one: &Move<'_>| {
        1 id: one.row.id.0,
        2 status: one.row.status.code(),
        3 ready_at: IndexColumns::from(one.row).ready_at(),
        4 wake_at: IndexColumns::from(one.row).wake_at(),
        5 due_at: one.row.due_at.map(Timestamp::as_micros),
        6 worker: one.row.worker.map(|worker| worker.0),
        7 epoch: one.row.epoch.0,
        8 settled: one.row.settled.last.0,
        9 settled_before: one.row.settled.before.cast_signed(),
        10 step: one.row.step.as_str(),
        11 step_seq: one.row.step_seq,
        12 attempt: one.row.attempt,
        13 cause: one.row.cause.code(),
        14 history_seq: one.row.history_seq,
        15 finished_at: one.row.finished_at.map(Timestamp::as_micros),
        16 last_error: one.row.last_error.as_deref(),
        17 kind: one.row.kind.code(),
        18 extra: cells::stored(&Extra::from(one.row))?,
    }
}
