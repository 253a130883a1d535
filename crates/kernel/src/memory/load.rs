//! The reads of a transaction.

use std::collections::BTreeSet;
use std::ops::Bound;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandKind, ContractId, Declared, Event, EventSequence,
    Instance, InstanceId, Json, Key, Name, NewRow, Pending, Policies, Sequence, Status, Target,
    Timestamp, Waiter, Worker, WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::handing::is_handed;
use abide_core::rules::retention::Kin;

use super::pieces::{MemoryTxn, placed};
use super::record::{policies, to_pending};
use crate::{Cursor, Expiring, Found, Lapsed, Load, Partition, Surroundings, Touched, TypeTotal};

impl MemoryTxn<'_> {
    pub fn load_now(&self, what: Load<'_>) {
        match what {
            Load::Find(targets, found) => *found = self.find(targets),
            Load::Newest(chains, found) => *found = self.newest(chains),
            Load::Declared(machines, found) => *found = self.declared(machines),
            Load::Policies(ids, found) => *found = self.policies(ids),
            Load::Kin(ids, found) => *found = self.kin(ids),
            Load::Copies(ids, found) => *found = self.copies(ids),
            Load::Holders(ids, found) => *found = self.holders_of_keys(ids),
            Load::Reserved(ids, found) => *found = self.reserved(ids),
            Load::LiveChildren(parents, found) => *found = self.live_children(parents),
            Load::Above(after, limit, found) => *found = self.above(after, limit),
            Load::Around(ids, found) => *found = self.around(ids),
            Load::Children(barriers, found) => *found = self.children(barriers),
            Load::ChildrenBytes(barriers, found) => *found = self.bytes_of_children(barriers),
            Load::Partitions(keys, found) => *found = self.partitions(keys),
            Load::Waiting(queue, lanes, found) => *found = self.first_priority(queue, lanes),
            Load::Due(now, skip, limit, found) => *found = self.due(now, skip, limit),
            Load::DueAfter(now, found) => *found = self.due_after(now),
            Load::Lapsed(now, skip, limit, found) => *found = self.lapsed(now, skip, limit),
            Load::Blocked(lanes, unless, after, limit, found) => {
                *found = self.blocked_above(lanes, unless, after, limit)
            }
            Load::Held(worker, after, deaths, limit, found) => {
                *found = self.held_above(worker, after, deaths, limit)
            }
            Load::HeldBy(workers, limit, found) => *found = self.held_by(workers, limit),
            Load::Expiring(before, after, limit, found) => {
                *found = self.expiring(before, after, limit)
            }
            Load::ExpiredChildren(parents, before, limit, found) => {
                *found = self.expired_children(parents, before, limit)
            }
            Load::WorkersNamed(name, found) => *found = self.workers_named(name),
            Load::DeadHolders(now, found) => *found = self.dead_holders(now),
            Load::Builds(workers, found) => *found = self.builds_of(workers),
            Load::Pending(needs, found) => *found = self.pending(needs),
            Load::PendingBytes(ids, found) => *found = self.pending_bytes(ids),
            Load::Awaited(of, found) => *found = self.awaited(of),
            Load::Updates(of, found) => *found = self.updates(of),
            Load::Applied(of, step_sequence, found) => *found = self.applied_by(of, step_sequence),
            Load::Deduped(keys, found) => *found = self.deduped(keys),
            Load::HeldSignals(keys, found) => *found = self.held_signals(keys),
            Load::HeldSizes(keys, now, found) => *found = self.held_sizes(keys, now),
            Load::EventPaths(types, found) => *found = self.paths_now(types),
            Load::Waiters(probes, found) => *found = self.waiters(probes),
            Load::TypeTotals(types, found) => *found = self.type_totals(types),
            Load::LookUp(lookup, span, found) => *found = self.look_up_now(lookup, span),
            Load::NewestEvents(event_type, span, found)
            | Load::HoldNewestEvents(event_type, span, found) => {
                *found = self.newest_now(event_type, span)
            }
            Load::EventsAbove(event_type, above, limit, found) => {
                *found = self.events_above(event_type, above, limit)
            }
            Load::Contracts(ids, found) => *found = self.contracts(ids),
            Load::NamedContracts(above, limit, found) => *found = self.named_above(above, limit),
            Load::UnusedContracts(before, limit, found) => {
                *found = self.unused_since(before, limit)
            }
        }
    }

    fn find(&self, targets: &[Target]) -> Vec<Option<Found>> {
        let found = |target: &Target| {
            let record = self.record(self.tables.resolve(target)?)?;
            Some(Found {
                id: record.row.id,
                key: record.key.clone(),
                partition: record.row.partition_key.clone(),
            })
        };
        targets.iter().map(found).collect()
    }

    fn newest(&self, chains: &[InstanceId]) -> Vec<(InstanceId, InstanceId)> {
        let records = self.tables.records();
        let newest = |chain: &InstanceId| {
            let mut runs = records.values().rev();
            let newest = runs.find(|record| record.row.chain() == *chain)?;
            Some((*chain, newest.row.id))
        };
        chains.iter().filter_map(newest).collect()
    }

    fn declared(&self, machines: &[Name]) -> Vec<Declared> {
        let declared = self.tables.declared().values();
        declared
            .filter(|declared| machines.contains(&declared.machine))
            .cloned()
            .collect()
    }

    fn policies(&self, ids: &[InstanceId]) -> Vec<(InstanceId, Policies)> {
        let of = |id: &InstanceId| {
            let record = self.record(*id)?;
            let declared = self.tables.declared().get(&record.lane());
            Some((*id, policies(record, declared)?))
        };
        ids.iter().filter_map(of).collect()
    }

    fn kin(&self, ids: &[InstanceId]) -> Vec<(InstanceId, Kin)> {
        let records = ids.iter().filter_map(|id| self.record(*id));
        let kin = |record: &Instance| {
            let (status, parent) = (record.row.status, placed(&record.row));
            (record.row.id, Kin { status, parent })
        };
        records.map(kin).collect()
    }

    fn copies(&self, ids: &[InstanceId]) -> Vec<(InstanceId, NewRow)> {
        let records = ids.iter().filter_map(|id| self.record(*id));
        records
            .map(|record| (record.id, record.clone().into()))
            .collect()
    }

    fn reserved(&self, ids: &[InstanceId]) -> Vec<InstanceId> {
        let rows = ids.iter().filter_map(|id| self.record(*id));
        let reserved = rows.filter(|record| record.row.status == Status::Reserved);
        reserved.map(|record| record.row.id).collect()
    }

    fn live_children(&self, parents: &[InstanceId]) -> Vec<Touched> {
        let records = self.tables.records().values();
        let children = records.filter(|record| {
            !record.row.status.is_terminal()
                && record
                    .row
                    .parent
                    .is_some_and(|parent| parents.contains(&parent))
        });
        children
            .filter_map(|record| self.touched(record.row.id))
            .collect()
    }

    fn above(&self, after: InstanceId, limit: usize) -> Vec<Touched> {
        let above = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        let ids = self.tables.records().range(above).take(limit);
        ids.filter_map(|(id, _)| self.touched(*id)).collect()
    }

    fn around(&self, ids: &[InstanceId]) -> Vec<Surroundings> {
        let around = |id: &InstanceId| self.tables.around(*id);
        ids.iter().filter_map(around).collect()
    }

    fn children(&self, barriers: &[(InstanceId, BarrierNumber)]) -> Vec<(InstanceId, Child)> {
        let of = |(parent, barrier): &(InstanceId, BarrierNumber)| {
            let parent = *parent;
            self.tables
                .children(parent, *barrier)
                .map(move |child| (parent, child))
        };
        barriers.iter().flat_map(of).collect()
    }

    fn partitions(&self, keys: &[Key]) -> Vec<Partition> {
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
        keys.iter().map(partition).collect()
    }

    fn due(&self, now: Timestamp, skip: usize, limit: usize) -> Vec<Touched> {
        let due = self
            .tables
            .index()
            .due
            .iter()
            .take_while(|(due_at, _)| *due_at <= now)
            .skip(skip)
            .take(limit);
        due.filter_map(|(_, id)| self.touched(*id)).collect()
    }

    fn due_after(&self, now: Timestamp) -> Option<Timestamp> {
        let index = self.tables.index();
        let after = |times: &BTreeSet<(Timestamp, InstanceId)>| {
            let mut times = times.iter().map(|(at, _)| *at);
            times.find(|at| *at > now)
        };
        [after(&index.due), after(&index.leases)]
            .into_iter()
            .flatten()
            .min()
    }

    fn lapsed(&self, now: Timestamp, skip: usize, limit: usize) -> Vec<Lapsed> {
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
        over.filter_map(lapsed).collect()
    }

    fn held_by(&self, workers: &[WorkerId], limit: usize) -> Vec<(WorkerId, Touched)> {
        let held = self.tables.index().held.iter();
        let theirs = held
            .filter(|(worker, _)| workers.contains(worker))
            .take(limit);
        let touched = |(worker, id): &(WorkerId, InstanceId)| Some((*worker, self.touched(*id)?));
        theirs.filter_map(touched).collect()
    }

    fn expiring(&self, before: Timestamp, after: Option<Cursor>, limit: usize) -> Vec<Expiring> {
        let start = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let finished = self
            .tables
            .index()
            .finished
            .range((start, std::ops::Bound::Unbounded));
        let old = finished
            .take_while(|cursor| cursor.finished_at < before)
            .take(limit);
        old.filter_map(|cursor| self.expiring_row(cursor.id))
            .collect()
    }

    fn expired_children(
        &self,
        parents: &[InstanceId],
        before: Timestamp,
        limit: usize,
    ) -> Vec<Expiring> {
        let below = |parent: &InstanceId| {
            let from = (*parent, BarrierNumber(1), InstanceId(i64::MIN));
            let to = (*parent, BarrierNumber(i32::MAX), InstanceId(i64::MAX));
            self.tables.index().children.range(from..=to)
        };
        let found = parents.iter().flat_map(below);
        let found = found.filter_map(|(_, _, id)| self.expiring_row(*id));
        let old = found.filter(|one| one.cursor.finished_at < before);
        old.take(limit).collect()
    }

    fn workers_named(&self, name: &Name) -> Vec<Worker> {
        self.tables
            .workers()
            .values()
            .filter(|worker| worker.name == *name)
            .cloned()
            .collect()
    }

    fn dead_holders(&self, now: Timestamp) -> Vec<(WorkerId, Option<Name>)> {
        let mut holders: Vec<WorkerId> = self.tables.index().held.iter().map(|(w, _)| *w).collect();
        holders.dedup();
        let dead = |id: WorkerId| match self.tables.workers().get(&id) {
            Some(worker) if worker.lease_until > now => None,
            known => Some((id, known.map(|worker| worker.name.clone()))),
        };
        holders.into_iter().filter_map(dead).collect()
    }

    fn pending(&self, needs: &[(InstanceId, InboxNeeds)]) -> Vec<(InstanceId, Pending)> {
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
        found
    }

    fn pending_bytes(&self, ids: &[InstanceId]) -> Vec<(InstanceId, u64)> {
        let commands = self.tables.commands();
        let sizes = ids.iter().map(|id| {
            let sizes = commands.pending(*id).map(|one| one.arguments.size() as u64);
            (*id, sizes.sum())
        });
        sizes.collect()
    }

    fn awaited(&self, of: &[(InstanceId, Vec<Name>, Sequence)]) -> Vec<Command> {
        let commands = self.tables.commands();
        let mut found = Vec::new();
        for (id, names, upto) in of {
            let handed = commands.pending(*id).filter(|command| {
                command.kind == CommandKind::Signal
                    && is_handed(names, *upto, &command.name, command.sequence)
            });
            found.extend(handed.map(|command| Command::clone(command)));
        }
        found
    }

    fn updates(&self, of: &[InstanceId]) -> Vec<Command> {
        let commands = self.tables.commands();
        let pending = of.iter().flat_map(|id| commands.pending(*id));
        let updates = pending.filter(|command| command.kind != CommandKind::Signal);
        updates.map(|command| Command::clone(command)).collect()
    }

    fn deduped(&self, keys: &[(InstanceId, CommandKind, Name)]) -> Vec<Command> {
        let found = keys
            .iter()
            .filter_map(|slot| self.tables.commands().deduped(slot));
        found.map(|command| Command::clone(command)).collect()
    }

    fn held_signals(&self, keys: &[Key]) -> Vec<Command> {
        let commands = self.tables.commands();
        let mut held: Vec<Command> = keys
            .iter()
            .flat_map(|key| commands.held(key))
            .map(|command| Command::clone(command))
            .collect();
        held.sort_unstable_by_key(|command| command.id);
        held
    }

    fn held_sizes(&self, keys: &[Key], now: Timestamp) -> Vec<(Key, usize, u64)> {
        let commands = self.tables.commands();
        let sizes = keys.iter().map(|key| {
            let held = commands.held(key);
            let held = held.filter(|one| one.hold_until.is_some_and(|until| until > now));
            let sizes = held.map(|one| one.arguments.size() as u64);
            let (count, bytes) =
                sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
            (key.clone(), count, bytes)
        });
        sizes.collect()
    }

    fn waiters(&self, probes: &[(Name, String, String)]) -> Vec<Waiter> {
        let events = self.tables.events();
        let found = probes.iter().flat_map(|probe| events.at(probe));
        found.cloned().collect()
    }

    fn type_totals(&self, types: &[Name]) -> Vec<(Name, TypeTotal)> {
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
        totals.collect()
    }

    fn events_above(&self, event_type: &Name, above: EventSequence, limit: usize) -> Vec<Event> {
        let events = self.tables.events().events();
        let events = events.range((Bound::Excluded(above), Bound::Unbounded));
        let of_type = events.filter(|(_, event)| event.event_type == *event_type);
        of_type
            .take(limit)
            .map(|(_, event)| event.clone())
            .collect()
    }

    fn contracts(&self, ids: &[ContractId]) -> Vec<(ContractId, Json)> {
        let contract = |id: &ContractId| Some((*id, self.tables.contracts().get(id)?.0.clone()));
        ids.iter().filter_map(contract).collect()
    }
}
