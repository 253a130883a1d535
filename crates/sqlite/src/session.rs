//! A transaction of the kernel on a connection: every call is one or a few statements, done when it answers.

use std::ops::Deref;

use abide_core::model::{
    BarrierNumber, Child, Claimed, Declared, HistoryRow, InstanceId, Key, Lane, Name, NewRow,
    Priority, Row, Started, Timestamp, Worker, WorkerId,
};
use abide_kernel::{
    Changes, ClaimRequest, Cursor, Expiring, NewWorker, Partition, Result, Touched, Txn,
};
use rusqlite::Connection;

use crate::error::classed;
use crate::sql::{children, claim, insert, load, machines, partitions, sweep, update, workers};

/// A transaction that somebody else has begun and will commit.
///
/// SQLite has one writer at a time, from `begin immediate` to the end, so a row that was read is a row that is locked.
pub(crate) struct Session<C>(pub C);

impl<C: Deref<Target = Connection> + Send> Txn for Session<C> {
    async fn insert(&mut self, rows: &[NewRow]) -> Result<Vec<Started>> {
        insert::insert(&self.0, rows).map_err(classed)
    }

    async fn declared(&mut self, machines: &[Name]) -> Result<Vec<Declared>> {
        machines::declared(&self.0, machines).map_err(classed)
    }

    async fn declare(&mut self, declared: &[Declared]) -> Result<()> {
        machines::declare(&self.0, declared).map_err(classed)
    }

    async fn lock(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        load::lock(&self.0, ids).map_err(classed)
    }

    async fn update(&mut self, changes: &Changes<'_>, now: Timestamp) -> Result<()> {
        update::update(&self.0, changes, now).map_err(classed)
    }

    async fn append(&mut self, rows: &[HistoryRow]) -> Result<()> {
        update::append(&self.0, rows).map_err(classed)
    }

    async fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Result<Vec<Claimed>> {
        claim::claim(&self.0, request, now).map_err(classed)
    }

    async fn waiting(&mut self, queue: &Name, lanes: &[Lane]) -> Result<Option<Priority>> {
        claim::waiting(&self.0, queue, lanes).map_err(classed)
    }

    async fn children(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Result<Vec<(InstanceId, Child)>> {
        children::of_all(&self.0, barriers).map_err(classed)
    }

    async fn due(&mut self, now: Timestamp, limit: usize) -> Result<Vec<Touched>> {
        load::due(&self.0, now, limit).map_err(classed)
    }

    async fn lock_partitions(&mut self, _keys: &[Key]) -> Result<()> {
        Ok(())
    }

    async fn partitions(&mut self, keys: &[Key]) -> Result<Vec<Partition>> {
        partitions::partitions(&self.0, keys).map_err(classed)
    }

    async fn reorder(&mut self, back: &[InstanceId], front: &[InstanceId]) -> Result<()> {
        partitions::reorder(&self.0, back, front).map_err(classed)
    }

    async fn insert_worker(&mut self, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
        workers::insert(&self.0, worker, now).map_err(classed)
    }

    async fn workers_named(&mut self, name: &Name) -> Result<Vec<Worker>> {
        workers::named(&self.0, name).map_err(classed)
    }

    async fn dead_workers(&mut self, now: Timestamp) -> Result<Vec<Worker>> {
        workers::dead(&self.0, now).map_err(classed)
    }

    async fn renew(&mut self, worker: WorkerId, now: Timestamp, until: Timestamp) -> Result<bool> {
        workers::renew(&self.0, worker, now, until).map_err(classed)
    }

    async fn expire_workers(&mut self, workers: &[WorkerId], now: Timestamp) -> Result<()> {
        workers::expire(&self.0, workers, now).map_err(classed)
    }

    async fn delete_workers(&mut self, workers: &[WorkerId]) -> Result<()> {
        workers::delete(&self.0, workers).map_err(classed)
    }

    async fn held(
        &mut self,
        worker: WorkerId,
        after: InstanceId,
        limit: usize,
    ) -> Result<Vec<Touched>> {
        load::held(&self.0, worker, after, limit).map_err(classed)
    }

    async fn expiring(
        &mut self,
        before: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<Expiring>> {
        sweep::expiring(&self.0, before, after, limit).map_err(classed)
    }

    async fn delete(&mut self, ids: &[InstanceId]) -> Result<()> {
        sweep::delete(&self.0, ids).map_err(classed)
    }
}
