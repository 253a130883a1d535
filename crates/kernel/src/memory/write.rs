//! The writes of a transaction that have no answer, and those that delete old rows.

use abide_core::model::{
    BarrierNumber, Closing, Command, CommandId, CommandStatus, Declared, InstanceId, Lane, NewRow,
    RequestId, Scope, Scopes, Sequence, Timestamp, Waiter, Worker, WorkerId,
};

use super::events::spot_of;
use super::pieces::MemoryTxn;
use super::tables::{Carried, RequestKey};
use crate::{Forget, MovedHistory, Result, Write};

impl MemoryTxn<'_> {
    pub fn write_now(&mut self, what: Write<'_>) -> Result<()> {
        match what {
            Write::Declare(declared) => self.declare(declared),
            Write::MoveHistory(rows) => return self.move_history(rows),
            Write::Open(id, row) => return self.open(id, row),
            Write::Supersede(ids) => return self.supersede(ids),
            Write::Delete(ids) => return self.delete(ids),
            Write::ForgetChains(chains) => return self.forget_chains(chains),
            Write::Reorder { back, front } => {
                self.set_behind(back, true)?;
                self.set_behind(front, false)?;
            }
            Write::RewriteWorker(worker) => self.put_worker(worker.id, Some(worker.clone())),
            Write::ExpireWorkers(workers, now) => self.expire_workers(workers, now),
            Write::Define(contracts, now) => self.define_now(contracts, now),
            Write::NoteContracts { ids, before, now } => self.note_now(ids, before, now),
            Write::ForgetContracts(ids) => ids.iter().for_each(|id| self.put_contract(*id, None)),
            Write::Keep(documents, now) => self.keep_now(documents, now),
            Write::InsertCommands(commands) | Write::RewriteCommands(commands) => {
                for command in commands {
                    self.put_command(command.id, Some(command.clone()))?;
                }
            }
            Write::Close(closings, now) => return self.close(closings, now),
            Write::MovePending(moves) => return self.move_pending(moves),
            Write::OpenWaiters(waiters) => self.open_waiters(waiters),
            Write::CloseWaiters(instances) => self.close_waiters(instances),
            Write::UsePath(id, now) => self.use_path_now(id, now),
            Write::WriteTerms(terms) => self.write_terms_now(terms),
            Write::Remember(answers, now) => self.remember(answers, now),
            // Without SQL no rows can be inserted, so there is no outbox.
            Write::SettleOutbox { .. } => {}
        }
        Ok(())
    }

    pub fn forget_now(&mut self, what: Forget<'_>, limit: usize) -> Result<usize> {
        match what {
            Forget::Workers(before) => Ok(self.forget_workers(before, limit)),
            Forget::Records(before) => self.forget_records(before, limit),
            Forget::Held(now) => self.expire_held(now, limit),
            Forget::Events(before) => Ok(self.forget_events_now(before, limit)),
            Forget::Paths(before) => Ok(self.forget_paths_now(before, limit)),
            Forget::Requests(before) => Ok(self.forget_requests(before, limit)),
            Forget::Refused(_) | Forget::RefusedById { .. } => Ok(0),
            Forget::Belongings(ids) => self.trim_now(ids, limit),
        }
    }

    fn declare(&mut self, declared: &[Declared]) {
        for one in declared {
            let lane = Lane {
                machine: one.machine.clone(),
                version: one.version,
            };
            let undo = self.tables.put_declared(lane, Some(one.clone()));
            self.log.push(undo);
        }
    }

    fn move_history(&mut self, rows: &[MovedHistory]) -> Result<()> {
        for MovedHistory { was, row } in rows {
            let noted = Self::noted(row)?;
            let undo = self.tables.move_row(row.instance, *was, noted)?;
            self.log.push(undo);
        }
        Ok(())
    }

    fn open(&mut self, id: InstanceId, row: &NewRow) -> Result<()> {
        let reserved = self.copy(id)?;
        let mut record = row.clone().into_instance(id);
        record.row.created_at = reserved.created_at;
        self.reinsert(record)
    }

    fn supersede(&mut self, ids: &[InstanceId]) -> Result<()> {
        for id in ids {
            let mut record = self.copy(*id)?;
            record.scope = Scope::NEVER;
            record.unique_scope = Scope::NEVER;
            record.row.scopes = Scopes::NONE;
            record.row.parent_barrier = BarrierNumber::default();
            self.reinsert(record)?;
        }
        Ok(())
    }

    fn delete(&mut self, ids: &[InstanceId]) -> Result<()> {
        for id in ids {
            let undo = self.tables.put(*id, None)?;
            self.log.push(undo);
        }
        Ok(())
    }

    fn forget_chains(&mut self, chains: &[InstanceId]) -> Result<()> {
        for chain in chains {
            let deduped: Vec<CommandId> = self.tables.commands().deduped_in(*chain).collect();
            self.delete_commands(&deduped)?;
        }
        Ok(())
    }

    pub fn put_worker(&mut self, id: WorkerId, worker: Option<Worker>) {
        let undo = self.tables.put_worker(id, worker);
        self.log.push(undo);
    }

    fn expire_workers(&mut self, workers: &[WorkerId], now: Timestamp) {
        for id in workers {
            let worker = self.tables.workers().get(id).cloned();
            if let Some(mut worker) = worker {
                worker.lease_until = worker.lease_until.min(now);
                self.put_worker(*id, Some(worker));
            }
        }
    }

    fn close(&mut self, closings: &[Closing], now: Timestamp) -> Result<()> {
        for closing in closings {
            let mut command = self.command(closing.id)?;
            command.status = closing.status;
            command.wait_id = closing.wait_id.clone().or(command.wait_id);
            command.step_sequence = closing.step_sequence;
            command.operation = closing.operation;
            command.graph_step = closing.graph_step.clone();
            command.result = closing.result.clone();
            command.error = closing.error.clone();
            command.closed_at = Some(now);
            self.put_command(closing.id, Some(command))?;
        }
        Ok(())
    }

    fn move_pending(&mut self, moves: &[(InstanceId, InstanceId)]) -> Result<()> {
        for (from, to) in moves {
            let pending = self.tables.commands().pending(*from);
            let pending: Vec<Command> = pending.map(|one| Command::clone(one)).collect();
            for (number, mut command) in (1..).zip(pending) {
                command.instance = Some(*to);
                command.command_sequence = Some(Sequence(number));
                self.put_command(command.id, Some(command))?;
            }
        }
        Ok(())
    }

    fn open_waiters(&mut self, waiters: &[Waiter]) {
        for waiter in waiters {
            let undo = self
                .tables
                .put_waiter(spot_of(waiter), Some(waiter.clone()));
            self.log.push(undo);
        }
    }

    fn close_waiters(&mut self, instances: &[InstanceId]) {
        for id in instances {
            for spot in self.tables.events().spots(*id) {
                let undo = self.tables.put_waiter(spot, None);
                self.log.push(undo);
            }
        }
    }

    fn remember(&mut self, answers: &[(&RequestId, Option<&str>)], now: Timestamp) {
        for (id, answer) in answers {
            let carried = Carried {
                fingerprint: id.fingerprint.clone(),
                answer: answer.map(str::to_owned),
                at: now,
            };
            let undo = self.tables.put_request(request_key(id), Some(carried));
            self.log.push(undo);
        }
    }

    fn forget_workers(&mut self, before: Timestamp, limit: usize) -> usize {
        let workers = self.tables.workers().values();
        let held = &self.tables.index().held;
        let holds = |id| held.iter().any(|(worker, _)| *worker == id);
        let dead = workers.filter(|worker| worker.lease_until < before && !holds(worker.id));
        let dead: Vec<WorkerId> = dead.map(|worker| worker.id).take(limit).collect();
        dead.iter().for_each(|id| self.put_worker(*id, None));
        dead.len()
    }

    fn forget_records(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        let old = self.tables.commands().all().filter(|command| {
            command.instance.is_none()
                && command.received_at < before
                && command.status != CommandStatus::Held
        });
        let old: Vec<CommandId> = old.map(|command| command.id).take(limit).collect();
        self.delete_commands(&old)?;
        Ok(old.len())
    }

    fn delete_commands(&mut self, ids: &[CommandId]) -> Result<()> {
        for id in ids {
            self.put_command(*id, None)?;
        }
        Ok(())
    }

    fn expire_held(&mut self, now: Timestamp, limit: usize) -> Result<usize> {
        let over = self.tables.commands().all().filter(|command| {
            command.status == CommandStatus::Held
                && command.hold_until.is_some_and(|until| until <= now)
        });
        let over = over.take(limit).map(|command| Command::clone(command));
        let over: Vec<Command> = over.collect();
        let count = over.len();
        for mut command in over {
            command.status = CommandStatus::Expired;
            command.closed_at = Some(now);
            self.put_command(command.id, Some(command))?;
        }
        Ok(count)
    }

    fn forget_requests(&mut self, before: Timestamp, limit: usize) -> usize {
        let requests = self.tables.requests().iter();
        let old = requests.filter(|(_, carried)| carried.at < before);
        let old: Vec<RequestKey> = old.take(limit).map(|(key, _)| key.clone()).collect();
        let count = old.len();
        for key in old {
            let undo = self.tables.put_request(key, None);
            self.log.push(undo);
        }
        count
    }
}

/// Returns the key under which a request is stored.
pub(super) fn request_key(id: &RequestId) -> RequestKey {
    (id.caller.clone(), id.key.clone(), id.part)
}
