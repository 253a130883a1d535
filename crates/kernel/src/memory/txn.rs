//! A transaction on the tables. Each change is made at once and logged, so that it can be undone if the transaction
//! fails.

use abide_core::model::{
    BarrierNumber, Child, Claimed, CommandId, EventSequence, HistoryRow, InstanceId, Name, NewRow,
    RequestId, Row, Started, Timestamp, Worker, WorkerId,
};

use super::pieces::MemoryTxn;
use super::shapes;
use super::write::request_key;
use crate::{
    Changes, ClaimRequest, Forget, GivenUp, Load, NewEvent, NewWorker, PathId, Recall, Result, Txn,
    Write,
};

impl Txn for MemoryTxn<'_> {
    async fn insert(&mut self, rows: &[NewRow]) -> Result<Vec<Started>> {
        let mut started = Vec::with_capacity(rows.len());
        for row in rows {
            let mut record = row.clone().into_instance(InstanceId(0));
            started.push(match self.tables.index().holder_of(&record) {
                Some(holder) => Started::Duplicate(holder),
                None => {
                    record.row.id = self.tables.next_id();
                    let id = record.row.id;
                    self.put(record)?;
                    Started::New(id)
                }
            });
        }
        Ok(started)
    }

    async fn lock(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        Ok(ids
            .iter()
            .filter_map(|id| self.record(*id))
            .map(|record| record.row.clone())
            .collect())
    }

    async fn update(&mut self, changes: &Changes<'_>, now: Timestamp) -> Result<()> {
        for GivenUp { id, scopes } in &changes.given_up {
            let mut record = self.copy(*id)?;
            record.scope = record.scope.without(scopes.key);
            record.unique_scope = record.unique_scope.without(scopes.unique_key);
            record.row.scopes = record.row.scopes.without(*scopes);
            self.put(record)?;
        }
        for advance in &changes.advances {
            self.expect(advance.row, shapes::advanced)?;
            self.put_row(advance.row, advance.state, None, now)?;
        }
        for finish in &changes.finishes {
            self.expect(finish.row, shapes::finished)?;
            self.put_row(finish.row, None, finish.result, now)?;
        }
        for wake in &changes.wakes {
            self.expect(wake.row, shapes::woken)?;
            self.put_row(wake.row, None, None, now)?;
        }
        for change in &changes.moves {
            self.put_row(change.row, change.state, change.result, now)?;
        }
        for leased in &changes.leases {
            let mut record = self.copy(leased.id)?;
            record.row.lease = leased.lease;
            record.updated_at = now;
            self.put(record)?;
        }
        Ok(())
    }

    async fn append(&mut self, rows: &[HistoryRow]) -> Result<()> {
        for row in rows {
            let noted = Self::noted(row)?;
            self.log.push(self.tables.append(row.instance, noted));
        }
        Ok(())
    }

    async fn load(&mut self, what: Load<'_>) -> Result<()> {
        self.load_now(what);
        Ok(())
    }

    async fn write(&mut self, what: Write<'_>) -> Result<()> {
        self.write_now(what)
    }

    async fn forget(&mut self, what: Forget<'_>, limit: usize) -> Result<usize> {
        self.forget_now(what, limit)
    }

    async fn claim(
        &mut self,
        request: &ClaimRequest,
        most: Option<usize>,
        now: Timestamp,
    ) -> Result<(Vec<Claimed>, bool)> {
        self.claim_first(request, most.unwrap_or(usize::MAX), now)
    }

    const CLAIMS_WITHIN: bool = true;

    async fn insert_worker(&mut self, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
        let worker = Worker {
            id: self.tables.next_worker(),
            name: worker.name.clone(),
            lease_until: now + worker.lease,
            started_at: now,
            queues: worker.queues.clone(),
            lanes: worker.lanes.clone(),
            build: worker.build.clone(),
        };
        self.put_worker(worker.id, Some(worker.clone()));
        Ok(worker)
    }

    async fn renew(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<WorkerId>> {
        let mut renewed = Vec::with_capacity(workers.len());
        for id in workers {
            let worker = self.tables.workers().get(id);
            let Some(worker) = worker.filter(|worker| worker.lease_until > now) else {
                continue;
            };
            let worker = Worker {
                lease_until: worker.lease_until.max(until),
                ..worker.clone()
            };
            self.put_worker(*id, Some(worker));
            renewed.push(*id);
        }
        Ok(renewed)
    }

    async fn number(&mut self, count: usize) -> Result<Vec<CommandId>> {
        Ok((0..count).map(|_| self.tables.next_command()).collect())
    }

    async fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<Vec<(EventSequence, bool)>> {
        Ok(self.store_now(events, now))
    }

    async fn add_path(
        &mut self,
        event_type: &Name,
        path: &str,
        most: usize,
        now: Timestamp,
    ) -> Result<Option<PathId>> {
        Ok(self.add_path_now(event_type, path, most, now))
    }

    async fn recall(&mut self, ids: &[&RequestId]) -> Result<Vec<Recall>> {
        let known = ids.iter().map(|id| {
            let found = self.tables.requests().get(&request_key(id));
            found.map_or(Recall::New, |carried| Recall::Done {
                fingerprint: carried.fingerprint.clone(),
                answer: carried.answer.clone(),
            })
        });
        Ok(known.collect())
    }

    async fn adopt(&mut self, from: (InstanceId, BarrierNumber), by: InstanceId) -> Result<u32> {
        let children: Vec<Child> = self.tables.children(from.0, from.1).collect();
        for child in &children {
            let mut record = self.copy(child.id)?;
            record.row.parent = Some(by);
            self.reinsert(record)?;
        }
        Ok(u32::try_from(children.len()).unwrap_or(u32::MAX))
    }
}
