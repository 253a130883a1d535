//! A transaction on the tables. Each change is made at once and logged, so that it can be undone if the transaction
//! fails.

use std::collections::BTreeSet;
use std::ops::Bound;

use abide_core::model::{
    BarrierNumber, Child, Claimed, Command, CommandId, CommandKind, ContractId, Declared, Event,
    EventSequence, HistoryRow, Instance, InstanceId, Json, Key, Lane, Name, NewRow, Pending, Policies,
    Priority, RequestId, Row, Sequence, Started, Target, Timestamp, Waiter, Worker, WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::retention::Kin;

use super::pieces::{MemoryTxn, placed};
use super::record::{policies, to_pending};
use super::shapes;
use super::write::request_key;
use crate::{
    Changes, ClaimRequest, Cursor, EventLookup, EventPaths, Expiring, Forget, Found, FoundEvents,
    GivenUp, Holder, Lapsed, LookbackPath, NewEvent, NewWorker, Partition, PathId, Recall, Result,
    Span, Surroundings, Touched, Txn, TypeTotal, Write,
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

    async fn declared(&mut self, machines: &[Name]) -> Result<Vec<Declared>> {
        let declared = self.tables.declared().values();
        Ok(declared
            .filter(|declared| machines.contains(&declared.machine))
            .cloned()
            .collect())
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

    async fn write(&mut self, what: Write<'_>) -> Result<()> {
        self.write_now(what)
    }

    async fn forget(&mut self, what: Forget<'_>, limit: usize) -> Result<usize> {
        self.forget_now(what, limit)
    }

    async fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Result<Vec<Claimed>> {
        Ok(self.claim_first(request, usize::MAX, now)?.0)
    }

    const CLAIMS_WITHIN: bool = true;

    async fn claim_within(
        &mut self,
        request: &ClaimRequest,
        most: usize,
        now: Timestamp,
    ) -> Result<(Vec<Claimed>, bool)> {
        self.claim_first(request, most, now)
    }

    async fn waiting(&mut self, queue: &Name, lanes: &[Lane]) -> Result<Option<Priority>> {
        Ok(self.first_priority(queue, lanes))
    }

    async fn children(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Result<Vec<(InstanceId, Child)>> {
        let of = |(parent, barrier): &(InstanceId, BarrierNumber)| {
            let parent = *parent;
            self.tables
                .children(parent, *barrier)
                .map(move |child| (parent, child))
        };
        Ok(barriers.iter().flat_map(of).collect())
    }

    async fn children_bytes(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Result<Vec<(InstanceId, u64)>> {
        Ok(self.bytes_of_children(barriers))
    }

    async fn due(&mut self, now: Timestamp, skip: usize, limit: usize) -> Result<Vec<Touched>> {
        let due = self
            .tables
            .index()
            .due
            .iter()
            .take_while(|(due_at, _)| *due_at <= now)
            .skip(skip)
            .take(limit);
        Ok(due.filter_map(|(_, id)| self.touched(*id)).collect())
    }

    async fn lapsed(&mut self, now: Timestamp, skip: usize, limit: usize) -> Result<Vec<Lapsed>> {
        let leases = self.tables.index().leases.iter();
        let over = leases.take_while(|(until, _)| *until <= now);
        let over = over.skip(skip).take(limit);
        let lapsed = |(_, id): &(Timestamp, InstanceId)| {
            let row = &self.record(*id)?.row;
            let worker = row.worker.and_then(|id| self.tables.workers().get(&id));
            Some(Lapsed {
                touched: self.touched(*id)?,
                parent: self
                    .parent_of(row)
                    .filter(|parent| self.record(parent.id).is_some()),
                worker: worker.map_or_else(|| Name::stored("?"), |worker| worker.name.clone()),
            })
        };
        Ok(over.filter_map(lapsed).collect())
    }

    async fn due_after(&mut self, now: Timestamp) -> Result<Option<Timestamp>> {
        let index = self.tables.index();
        let after = |times: &BTreeSet<(Timestamp, InstanceId)>| {
            let mut times = times.iter().map(|(at, _)| *at);
            times.find(|at| *at > now)
        };
        Ok([after(&index.due), after(&index.leases)]
            .into_iter()
            .flatten()
            .min())
    }

    async fn policies(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Policies)>> {
        let of = |id: &InstanceId| {
            let record = self.record(*id)?;
            let declared = self.tables.declared().get(&record.lane());
            Some((*id, policies(record, declared)?))
        };
        Ok(ids.iter().filter_map(of).collect())
    }

    async fn lock_partitions(&mut self, _keys: &[Key]) -> Result<()> {
        Ok(())
    }

    async fn partitions(&mut self, keys: &[Key]) -> Result<Vec<Partition>> {
        let index = self.tables.index();
        let partition = |key: &Key| Partition {
            front: index
                .fronts
                .get(key)
                .and_then(|id| self.contender(*id))
                .map(|(front, _)| front),
            first: index
                .queued
                .get(key)
                .and_then(|positions| positions.first())
                .and_then(|(_, _, id)| self.contender(*id)),
        };
        Ok(keys.iter().map(partition).collect())
    }

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

    async fn workers_named(&mut self, name: &Name) -> Result<Vec<Worker>> {
        Ok(self
            .tables
            .workers()
            .values()
            .filter(|worker| worker.name == *name)
            .cloned()
            .collect())
    }

    async fn dead_holders(&mut self, now: Timestamp) -> Result<Vec<(WorkerId, Option<Name>)>> {
        let mut holders: Vec<WorkerId> = self.tables.index().held.iter().map(|(w, _)| *w).collect();
        holders.dedup();
        let dead = |id: WorkerId| match self.tables.workers().get(&id) {
            Some(worker) if worker.lease_until > now => None,
            known => Some((id, known.map(|worker| worker.name.clone()))),
        };
        Ok(holders.into_iter().filter_map(dead).collect())
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

    async fn held_by(
        &mut self,
        workers: &[WorkerId],
        limit: usize,
    ) -> Result<Vec<(WorkerId, Touched)>> {
        let held = self.tables.index().held.iter();
        let theirs = held
            .filter(|(worker, _)| workers.contains(worker))
            .take(limit);
        let touched = |(worker, id): &(WorkerId, InstanceId)| Some((*worker, self.touched(*id)?));
        Ok(theirs.filter_map(touched).collect())
    }

    async fn held(
        &mut self,
        worker: WorkerId,
        after: InstanceId,
        deaths: u32,
        limit: usize,
    ) -> Result<Vec<Touched>> {
        Ok(self.held_above(worker, after, deaths, limit))
    }

    async fn expiring(
        &mut self,
        before: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<Expiring>> {
        let start = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let finished = self
            .tables
            .index()
            .finished
            .range((start, std::ops::Bound::Unbounded));
        let old = finished
            .take_while(|cursor| cursor.finished_at < before)
            .take(limit);
        Ok(old
            .filter_map(|cursor| self.expiring_row(cursor.id))
            .collect())
    }

    async fn kin(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Kin)>> {
        let records = ids.iter().filter_map(|id| self.record(*id));
        let kin = |record: &Instance| {
            let (status, parent) = (record.row.status, placed(&record.row));
            (record.row.id, Kin { status, parent })
        };
        Ok(records.map(kin).collect())
    }

    async fn expired_children(
        &mut self,
        parents: &[InstanceId],
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Expiring>> {
        let below = |parent: &InstanceId| {
            let from = (*parent, BarrierNumber(1), InstanceId(i64::MIN));
            let to = (*parent, BarrierNumber(i32::MAX), InstanceId(i64::MAX));
            self.tables.index().children.range(from..=to)
        };
        let found = parents.iter().flat_map(below);
        let found = found.filter_map(|(_, _, id)| self.expiring_row(*id));
        let old = found.filter(|one| one.cursor.finished_at < before);
        Ok(old.take(limit).collect())
    }

    async fn named_contracts(
        &mut self,
        above: InstanceId,
        limit: usize,
    ) -> Result<Vec<(InstanceId, Option<ContractId>)>> {
        Ok(self.named_above(above, limit))
    }

    async fn unused_contracts(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<ContractId>> {
        Ok(self.unused_since(before, limit))
    }

    async fn contracts(&mut self, ids: &[ContractId]) -> Result<Vec<(ContractId, Json)>> {
        let contract = |id: &ContractId| Some((*id, self.tables.contracts().get(id)?.0.clone()));
        Ok(ids.iter().filter_map(contract).collect())
    }

    async fn lock_keys(&mut self, _shared: &[Key], _alone: &[Key]) -> Result<()> {
        Ok(())
    }

    async fn find(&mut self, targets: &[Target]) -> Result<Vec<Option<Found>>> {
        let found = |target: &Target| {
            let record = self.record(self.tables.resolve(target)?)?;
            Some(Found {
                id: record.row.id,
                key: record.key.clone(),
                partition: record.row.partition_key.clone(),
            })
        };
        Ok(targets.iter().map(found).collect())
    }

    async fn newest(&mut self, chains: &[InstanceId]) -> Result<Vec<(InstanceId, InstanceId)>> {
        let records = self.tables.records();
        let newest = |chain: &InstanceId| {
            let mut runs = records.values().rev();
            let newest = runs.find(|record| record.row.chain() == *chain)?;
            Some((*chain, newest.row.id))
        };
        Ok(chains.iter().filter_map(newest).collect())
    }

    async fn number(&mut self, count: usize) -> Result<Vec<CommandId>> {
        Ok((0..count).map(|_| self.tables.next_command()).collect())
    }

    async fn deduped(&mut self, keys: &[(InstanceId, CommandKind, Name)]) -> Result<Vec<Command>> {
        let found = keys
            .iter()
            .filter_map(|slot| self.tables.commands().deduped(slot));
        Ok(found.map(|command| Command::clone(command)).collect())
    }

    async fn held_signals(&mut self, keys: &[Key]) -> Result<Vec<Command>> {
        let commands = self.tables.commands();
        let mut held: Vec<Command> = keys
            .iter()
            .flat_map(|key| commands.held(key))
            .map(|command| Command::clone(command))
            .collect();
        held.sort_unstable_by_key(|command| command.id);
        Ok(held)
    }

    async fn held_sizes(&mut self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, usize, u64)>> {
        let commands = self.tables.commands();
        let sizes = keys.iter().map(|key| {
            let held = commands.held(key);
            let held = held.filter(|one| one.hold_until.is_some_and(|until| until > now));
            let sizes = held.map(|one| one.arguments.size() as u64);
            let (count, bytes) =
                sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
            (key.clone(), count, bytes)
        });
        Ok(sizes.collect())
    }

    async fn pending_bytes(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, u64)>> {
        let commands = self.tables.commands();
        let sizes = ids.iter().map(|id| {
            let sizes = commands.pending(*id).map(|one| one.arguments.size() as u64);
            (*id, sizes.sum())
        });
        Ok(sizes.collect())
    }

    async fn pending(
        &mut self,
        needs: &[(InstanceId, InboxNeeds)],
    ) -> Result<Vec<(InstanceId, Pending)>> {
        let commands = self.tables.commands();
        let mut found = Vec::new();
        for (id, needs) in needs {
            let wanted = |command: &Command| match command.kind {
                _ if needs.all => true,
                CommandKind::Update | CommandKind::Cancel => needs.updates,
                CommandKind::Signal => needs.names.contains(&command.name),
            };
            let pending = commands.pending(*id).filter(|command| wanted(command));
            found.extend(pending.map(|command| (*id, to_pending(command))));
        }
        Ok(found)
    }

    async fn awaited(&mut self, of: &[(InstanceId, Vec<Name>, Sequence)]) -> Result<Vec<Command>> {
        let commands = self.tables.commands();
        let mut found = Vec::new();
        for (id, names, upto) in of {
            let handed = commands.pending(*id).filter(|command| {
                command.kind == CommandKind::Signal
                    && names.contains(&command.name)
                    && command.sequence.is_some_and(|sequence| sequence <= *upto)
            });
            found.extend(handed.map(|command| Command::clone(command)));
        }
        Ok(found)
    }

    async fn updates(&mut self, of: &[InstanceId]) -> Result<Vec<Command>> {
        let commands = self.tables.commands();
        let pending = of.iter().flat_map(|id| commands.pending(*id));
        let updates = pending.filter(|command| command.kind != CommandKind::Signal);
        Ok(updates.map(|command| Command::clone(command)).collect())
    }

    async fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<Vec<(EventSequence, bool)>> {
        Ok(self.store_now(events, now))
    }

    async fn event_paths(&mut self, types: &[Name]) -> Result<EventPaths> {
        Ok(self.paths_now(types))
    }

    async fn waiters(&mut self, probes: &[(Name, String, String)]) -> Result<Vec<Waiter>> {
        let events = self.tables.events();
        let found = probes.iter().flat_map(|probe| events.at(probe));
        Ok(found.cloned().collect())
    }

    async fn type_totals(&mut self, types: &[Name]) -> Result<Vec<(Name, TypeTotal)>> {
        let events = self.tables.events();
        let newest = |of: &Name| {
            let mut newest_first = events.events().values().rev();
            newest_first.find(|event| event.event_type == *of)
        };
        let totals = types.iter().map(|of| {
            let total = TypeTotal {
                waiters: events.total(of),
                newest: newest(of).map_or(EventSequence::default(), |event| event.sequence),
            };
            (of.clone(), total)
        });
        Ok(totals.collect())
    }

    async fn events_above(
        &mut self,
        event_type: &Name,
        above: EventSequence,
        limit: usize,
    ) -> Result<Vec<Event>> {
        let events = self.tables.events().events();
        let events = events.range((Bound::Excluded(above), Bound::Unbounded));
        let of_type = events.filter(|(_, event)| event.event_type == *event_type);
        Ok(of_type
            .take(limit)
            .map(|(_, event)| event.clone())
            .collect())
    }

    async fn look_up(
        &mut self,
        lookup: &EventLookup<'_>,
        span: Span,
    ) -> Result<Option<(LookbackPath, FoundEvents)>> {
        Ok(self.look_up_now(lookup, span))
    }

    async fn newest_events(&mut self, event_type: &Name, span: Span) -> Result<FoundEvents> {
        Ok(self.newest_now(event_type, span))
    }

    async fn hold_newest_events(&mut self, event_type: &Name, span: Span) -> Result<FoundEvents> {
        Ok(self.newest_now(event_type, span))
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

    async fn copies(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, NewRow)>> {
        let records = ids.iter().filter_map(|id| self.record(*id));
        Ok(records
            .map(|record| (record.id, record.clone().into()))
            .collect())
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

    async fn holders(&mut self, ids: &[InstanceId]) -> Result<Vec<Holder>> {
        Ok(self.holders_of_keys(ids))
    }

    async fn live_children(&mut self, parents: &[InstanceId]) -> Result<Vec<Touched>> {
        let records = self.tables.records().values();
        let children = records.filter(|record| {
            !record.row.status.is_terminal()
                && record
                    .row
                    .parent
                    .is_some_and(|parent| parents.contains(&parent))
        });
        Ok(children
            .filter_map(|record| self.touched(record.row.id))
            .collect())
    }

    async fn blocked(
        &mut self,
        lanes: &[Lane],
        unless: Option<&Name>,
        after: InstanceId,
        limit: usize,
    ) -> Result<Vec<Touched>> {
        Ok(self.blocked_above(lanes, unless, after, limit))
    }

    async fn builds(&mut self, workers: &[WorkerId]) -> Result<Vec<(WorkerId, Name)>> {
        Ok(self.builds_of(workers))
    }

    async fn applied(&mut self, of: InstanceId, step_sequence: u32) -> Result<Vec<Command>> {
        Ok(self.applied_by(of, step_sequence))
    }

    async fn around(&mut self, ids: &[InstanceId]) -> Result<Vec<Surroundings>> {
        let around = |id: &InstanceId| self.tables.around(*id);
        Ok(ids.iter().filter_map(around).collect())
    }

    async fn above(&mut self, after: InstanceId, limit: usize) -> Result<Vec<Touched>> {
        let above = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        let ids = self.tables.records().range(above).take(limit);
        Ok(ids.filter_map(|(id, _)| self.touched(*id)).collect())
    }
}
