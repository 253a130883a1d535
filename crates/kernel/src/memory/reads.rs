//! The read side: what the tables answer without being changed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use abide_core::model::{
    BarrierNumber, Child, HistoryRow, Instance, InstanceId, Name, Status, Timestamp, Worker,
};

use super::record::Record;
use super::tables::{Noted, Tables};
use crate::{Ending, Filter, Page, QueueDepth, Target};

impl Tables {
    /// The run that a target stands for; by key, the newest that has it.
    pub fn resolve(&self, target: &Target) -> Option<InstanceId> {
        match target {
            Target::Id(id) => Some(*id),
            Target::Key(key) => {
                let ids = (key.clone(), InstanceId(i64::MIN))..=(key.clone(), InstanceId(i64::MAX));
                Some(self.index().named.range(ids).next_back()?.1)
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
        unseen.map(|Noted { row, .. }| row.clone()).collect()
    }

    /// The children of a barrier, by id.
    pub fn children(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
    ) -> impl Iterator<Item = Child> {
        let ids = (parent, barrier, InstanceId(i64::MIN))..=(parent, barrier, InstanceId(i64::MAX));
        let ids = self.index().children.range(ids).map(|(_, _, id)| id);
        ids.filter_map(|id| self.records().get(id))
            .map(|record| record.to_child())
    }

    /// How those ended that have, and which are not there.
    pub fn endings(&self, ids: &[InstanceId]) -> (Vec<Ending>, Vec<InstanceId>) {
        let (mut endings, mut missing) = (Vec::new(), Vec::new());
        for id in ids {
            match self.records().get(id) {
                None => missing.push(*id),
                Some(record) if record.row.status.is_terminal() => endings.push(Ending {
                    id: *id,
                    status: record.row.status,
                    result: record.result.clone(),
                    last_error: record.row.last_error.clone(),
                }),
                Some(_) => {}
            }
        }
        (endings, missing)
    }

    /// The earliest moment at which anything is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.index().due.first().map(|(due_at, _)| *due_at)
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
        let mut counts: BTreeMap<(&Name, Status), u64> = BTreeMap::new();
        let live = self
            .records()
            .values()
            .filter(|record| !record.row.status.is_terminal());
        for Record { row, .. } in live.map(Arc::as_ref) {
            *counts.entry((&row.queue, row.status)).or_default() += 1;
        }
        let depth = |((queue, status), count): ((&Name, Status), u64)| QueueDepth {
            queue: queue.clone(),
            status,
            count,
        };
        counts.into_iter().map(depth).collect()
    }
}

fn meets(record: &Record, filter: &Filter) -> bool {
    let Filter {
        status,
        machine,
        queue,
        key_prefix,
        parent,
        chain,
    } = filter;
    status.is_none_or(|status| record.row.status == status)
        && machine
            .as_ref()
            .is_none_or(|machine| record.lane.machine == *machine)
        && queue
            .as_ref()
            .is_none_or(|queue| record.row.queue == *queue)
        && parent.is_none_or(|parent| record.row.parent == Some(parent))
        && chain.is_none_or(|chain| record.row.chain() == chain)
        && key_prefix.as_ref().is_none_or(|prefix| {
            record
                .key
                .as_ref()
                .is_some_and(|key| key.as_str().starts_with(prefix.as_str()))
        })
}
