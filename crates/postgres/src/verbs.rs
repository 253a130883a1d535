//! The kernel's verbs, each handed to the file that has its statement.

use abide_core::model::{
    BarrierNumber, Child, Claimed, Declared, HistoryRow, InstanceId, Key, Lane, Name, NewRow,
    Priority, Row, Started, Timestamp, Worker, WorkerId,
};
use abide_kernel::{
    Changes, ClaimRequest, Cursor, Expiring, NewWorker, Partition, Result, Touched, Txn,
};

use crate::txn::Transaction;
use crate::{claim, insert, load, partition, sweep, workers, write};

impl Txn for Transaction<'_> {
    async fn insert(&mut self, rows: &[NewRow]) -> Result<Vec<Started>> {
        insert::insert(self, rows).await
    }

    async fn declared(&mut self, machines: &[Name]) -> Result<Vec<Declared>> {
        load::declared(self, machines).await
    }

    async fn declare(&mut self, declared: &[Declared]) -> Result<()> {
        write::declare(self, declared)
    }

    async fn lock(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        load::lock(self, ids).await
    }

    async fn update(&mut self, changes: &Changes<'_>, now: Timestamp) -> Result<()> {
        write::update(self, changes, now)
    }

    async fn append(&mut self, rows: &[HistoryRow]) -> Result<()> {
        write::append(self, rows)
    }

    async fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Result<Vec<Claimed>> {
        claim::claim(self, request, now).await
    }

    async fn waiting(&mut self, queue: &Name, lanes: &[Lane]) -> Result<Option<Priority>> {
        claim::waiting(self, queue, lanes).await
    }

    async fn children(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Result<Vec<(InstanceId, Child)>> {
        claim::children(self, barriers).await
    }

    async fn due(&mut self, now: Timestamp, limit: usize) -> Result<Vec<Touched>> {
        load::due(self, now, limit).await
    }

    async fn lock_partitions(&mut self, keys: &[Key]) -> Result<()> {
        partition::lock_partitions(self, keys)
    }

    async fn partitions(&mut self, keys: &[Key]) -> Result<Vec<Partition>> {
        partition::partitions(self, keys).await
    }

    async fn reorder(&mut self, back: &[InstanceId], front: &[InstanceId]) -> Result<()> {
        partition::reorder(self, back, front)
    }

    async fn insert_worker(&mut self, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
        workers::insert_worker(self, worker, now).await
    }

    async fn workers_named(&mut self, name: &Name) -> Result<Vec<Worker>> {
        workers::workers_named(self, name).await
    }

    async fn dead_workers(&mut self, now: Timestamp) -> Result<Vec<Worker>> {
        workers::dead_workers(self, now).await
    }

    async fn renew(&mut self, worker: WorkerId, now: Timestamp, until: Timestamp) -> Result<bool> {
        workers::renew(self, worker, now, until).await
    }

    async fn expire_workers(&mut self, workers: &[WorkerId], now: Timestamp) -> Result<()> {
        workers::expire_workers(self, workers, now)
    }

    async fn delete_workers(&mut self, workers: &[WorkerId]) -> Result<()> {
        workers::delete_workers(self, workers)
    }

    async fn held(
        &mut self,
        worker: WorkerId,
        after: InstanceId,
        limit: usize,
    ) -> Result<Vec<Touched>> {
        load::held(self, worker, after, limit).await
    }

    async fn expiring(
        &mut self,
        before: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<Expiring>> {
        sweep::expiring(self, before, after, limit).await
    }

    async fn delete(&mut self, ids: &[InstanceId]) -> Result<()> {
        sweep::delete(self, ids)
    }
}
