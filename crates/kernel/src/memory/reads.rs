//! The read side: what the tables answer without being changed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;

use abide_core::model::{
    BarrierNumber, Child, HistoryRow, Instance, InstanceId, Name, Row, Status, Timestamp, WaitKind,
    Worker,
};

use super::record::Record;
use super::tables::{Noted, Tables};
use crate::{Ending, Endings, Filter, HISTORY_BYTES, Page, QueueDepth, Target, gather, look_up};

impl Tables {
    /// The run that a target stands for; by key, the newest that has it.
    pub fn resolve(&self, target: &Target) -> Option<InstanceId> {
        match target {
            Target::Id(id) => Some(*id),
            Target::Key(key) => {
                let lives = |id: &InstanceId| {
                    let record = self.records().get(id);
                    record.is_some_and(|record| !record.row.status.is_terminal())
                };
                let ids = (key.clone(), InstanceId(i64::MIN))..=(key.clone(), InstanceId(i64::MAX));
                let newest = self.index().named.range(ids).next_back()?.1;
                // rule 2.5: one that has ended gives way to one that lives and holds the key.
                let holder = self.index().keys.get(key).copied().filter(lives);
                Some(holder.filter(|_| !lives(&newest)).unwrap_or(newest))
            }
        }
    }

    /// One instance.
    pub fn get(&self, target: &Target) -> Option<Instance> {
        let record = self.records().get(&self.resolve(target)?)?;
        Some(record.to_instance())
    }

    /// A page of instances, newest first.
    pub fn list(
        &self,
        filter: &Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> Page<Instance> {
        let below = before.map_or(Bound::Unbounded, Bound::Excluded);
        let records = self.records().range((Bound::Unbounded, below)).rev();
        let mut found = records
            .map(|(_, record)| record)
            .filter(|record| meets(record, filter));
        let items: Vec<Instance> = found
            .by_ref()
            .take(limit)
            .map(|record| record.to_instance())
            .collect();
        let next = items
            .last()
            .map(|last| last.id)
            .filter(|_| found.next().is_some());
        Page { items, next }
    }

    /// The rows of a history whose last event is after `after`.
    pub fn history_after(&self, id: InstanceId, after: u32, limit: usize) -> Vec<HistoryRow> {
        let rows = self.history(id);
        let seen = rows.partition_point(|noted| noted.last <= after);
        let unseen = rows.iter().skip(seen).take(limit);
        let unseen = unseen.map(|Noted { row, .. }| Ok::<_, Infallible>(row.clone()));
        gather(unseen, HISTORY_BYTES).unwrap_or_default()
    }

    /// The children of a barrier, by id.
    pub fn children(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
    ) -> impl Iterator<Item = Child> {
        self.children_above(parent, barrier, InstanceId(i64::MIN))
    }

    /// The children of a barrier above that one, by id.
    pub fn children_above(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: InstanceId,
    ) -> impl Iterator<Item = Child> {
        let above = Bound::Excluded((parent, barrier, after));
        let last = Bound::Included((parent, barrier, InstanceId(i64::MAX)));
        let ids = self.index().children.range((above, last));
        let ids = ids.map(|(_, _, id)| id);
        ids.filter_map(|id| self.records().get(id))
            .map(|record| record.to_child())
    }

    /// How those ended that have, and which are not there, as many as fit into so many bytes.
    pub fn endings(&self, ids: &[InstanceId], most: usize) -> Endings {
        let (mut ended, mut missing) = (Vec::new(), Vec::new());
        let look = |id: InstanceId| {
            let record = self.records().get(&id);
            if record.is_none() {
                missing.push(id);
            }
            let over = record.filter(|record| record.row.status.is_terminal());
            Ok::<_, Infallible>(over.map(|record| Ending {
                id,
                status: record.row.status,
                result: record.result.clone(),
                last_error: record.row.last_error.clone(),
            }))
        };
        let Ok(rest) = look_up(ids, most, look, |ending| ended.push(ending));
        Endings {
            ended,
            missing,
            rest,
        }
    }

    /// The earliest moment at which anything is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let index = self.index();
        let first = [index.due.first(), index.leases.first()];
        first.into_iter().flatten().map(|(due_at, _)| *due_at).min()
    }

    /// The workers whose lease has not run out.
    pub fn living_workers(&self, now: Timestamp) -> Vec<Worker> {
        self.workers()
            .values()
            .filter(|worker| worker.lease_until > now)
            .cloned()
            .collect()
    }

    /// How many stand where that have not ended.
    pub fn depths(&self) -> Vec<QueueDepth> {
        type Place<'r> = (&'r Name, i16, Option<i16>);
        let mut depths: BTreeMap<Place<'_>, QueueDepth> = BTreeMap::new();
        let live = self
            .records()
            .values()
            .filter(|record| !record.row.status.is_terminal());
        for Record { row, .. } in live.map(Arc::as_ref) {
            let wait_kind = waits_for(row).filter(|_| row.aside.is_none());
            let place = (&row.queue, row.status.code(), wait_kind.map(WaitKind::code));
            let depth = depths.entry(place).or_insert_with(|| QueueDepth {
                queue: row.queue.clone(),
                status: row.status,
                wait_kind,
                count: 0,
                oldest: None,
            });
            depth.count += 1;
            if row.status == Status::Runnable {
                let oldest = depth.oldest.into_iter().chain(row.due_at).min();
                depth.oldest = oldest;
            }
        }
        depths.into_values().collect()
    }
}

/// What kind of thing an instance waits for, when it does; also while it runs for nothing but updates.
fn waits_for(row: &Row) -> Option<WaitKind> {
    let kind = row.awaits.as_ref()?.kind;
    let waits = match row.stands() {
        Status::AwaitingSignal | Status::AwaitingChildren => true,
        // A step that is tried again later still knows of the wait that it was woken from.
        Status::Scheduled => kind == WaitKind::Timer,
        _ => false,
    };
    waits.then_some(kind)
}

/// Whether an instance waits for a signal of that name, an event of that type or a condition of that key.
fn awaits(row: &Row, name: &Name) -> bool {
    let names = row.awaits.iter().flat_map(|awaits| &awaits.names);
    let mut texts = names.map(|one| one.event_type().unwrap_or(one.as_str()));
    waits_for(row).is_some() && texts.any(|text| text == name.as_str())
}

fn meets(record: &Record, filter: &Filter) -> bool {
    let Filter {
        status,
        machine,
        queue,
        key_prefix,
        parent,
        chain,
        wait_kind,
        waiting_for,
    } = filter;
    status.is_none_or(|status| record.row.status == status)
        && machine
            .as_ref()
            .is_none_or(|machine| record.lane.machine == *machine)
        && queue
            .as_ref()
            .is_none_or(|queue| record.row.queue == *queue)
        && parent.is_none_or(|parent| record.row.parent == Some(parent))
        && wait_kind.is_none_or(|kind| waits_for(&record.row) == Some(kind))
        && waiting_for
            .as_ref()
            .is_none_or(|name| awaits(&record.row, name))
        && chain.is_none_or(|chain| record.row.chain() == chain)
        && key_prefix.as_ref().is_none_or(|prefix| {
            record
                .key
                .as_ref()
                .is_some_and(|key| key.as_str().starts_with(prefix.as_str()))
        })
}
