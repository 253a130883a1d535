//! The read side: queries that do not change the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;

use abide_core::model::{
    BarrierNumber, Child, HistoryRow, Instance, InstanceId, Kind, Name, OperationWait, Row, Status,
    Timestamp, WaitKind, Worker,
};
use abide_core::rules::liveness::FAILURES_HEALTHY;

use super::tables::{Noted, Tables};
use crate::{
    ENDED_COUNTED, Ending, Endings, Filter, HISTORY_BYTES, Page, QueueDepth, READY_LANES,
    ReadyLane, Tally, Target, gather, look_up,
};

impl Tables {
    /// Returns the run that a target refers to; for a key, the newest run that has it.
    pub fn resolve(&self, target: &Target) -> Option<InstanceId> {
        match target {
            Target::Id(id) => Some(*id),
            Target::Key(key) => {
                // rule 2.5: a live holder of the key takes precedence over a run that was started later.
                let lives = |id: &InstanceId| {
                    let record = self.records().get(id);
                    record.is_some_and(|record| !record.row.status.is_terminal())
                };
                let holder = self.index().keys.get(key).copied().filter(lives);
                let ids = (key.clone(), InstanceId(i64::MIN))..=(key.clone(), InstanceId(i64::MAX));
                let newest = || self.index().named.range(ids).next_back().map(|(_, id)| *id);
                holder.or_else(newest)
            }
        }
    }

    /// Returns one instance.
    pub fn get(&self, target: &Target) -> Option<Instance> {
        let record = self.records().get(&self.resolve(target)?)?;
        Some(Instance::clone(record))
    }

    /// Returns a page of instances, newest first.
    pub fn list(
        &self,
        filter: &Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> Page<Instance> {
        let below = before.map_or(Bound::Unbounded, Bound::Excluded);
        let records = self.records().range((Bound::Unbounded, below)).rev();
        let found = records
            .map(|(_, record)| record)
            .filter(|record| meets(record, filter));
        let items = found.take(limit.saturating_add(1));
        let items = items.map(|record| Instance::clone(record)).collect();
        Page::of(items, limit, usize::MAX, |last| last.id)
    }

    /// Returns the rows of a history whose last event is after `after`.
    pub fn history_after(&self, id: InstanceId, after: u32, limit: usize) -> Vec<HistoryRow> {
        let rows = self.history(id);
        let seen = rows.partition_point(|noted| noted.last <= after);
        let unseen = rows.iter().skip(seen).take(limit);
        let unseen = unseen.map(|Noted { row, .. }| Ok::<_, Infallible>(row.clone()));
        gather(unseen, HISTORY_BYTES).unwrap_or_default()
    }

    /// Returns the children of a barrier, by id.
    pub fn children(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
    ) -> impl Iterator<Item = Child> {
        self.children_above(parent, barrier, InstanceId(i64::MIN))
    }

    /// Returns the children of a barrier above an id, by id.
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
            .map(|record| record.child())
    }

    /// Returns the endings of those instances that have ended, and the instances that do not exist, as many as fit in
    /// `most` bytes.
    pub fn endings(&self, ids: &[InstanceId], most: usize) -> Endings {
        let (mut ended, mut missing) = (Vec::new(), Vec::new());
        let find = |id: InstanceId| {
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
        let Ok(rest) = look_up(ids, most, find, |ending| ended.push(ending));
        Endings {
            ended,
            missing,
            rest,
        }
    }

    /// Returns the earliest time at which anything is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let index = self.index();
        let first = [index.due.first(), index.leases.first()];
        first.into_iter().flatten().map(|(due_at, _)| *due_at).min()
    }

    /// Returns the workers whose lease has not expired.
    pub fn living_workers(&self, now: Timestamp) -> Vec<Worker> {
        self.workers()
            .values()
            .filter(|worker| worker.lease_until > now)
            .cloned()
            .collect()
    }

    /// Returns the number of open instances per queue, status and kind of wait.
    pub fn depths(&self) -> Vec<QueueDepth> {
        type Group<'r> = (&'r Name, i16, Option<i16>);
        let mut depths: BTreeMap<Group<'_>, QueueDepth> = BTreeMap::new();
        let live = self
            .records()
            .values()
            .filter(|record| !record.row.status.is_terminal());
        for Instance { row, .. } in live.map(Arc::as_ref) {
            let wait_kind = waits_for(row).filter(|_| row.aside.is_none());
            let group = (&row.queue, row.status.code(), wait_kind.map(WaitKind::code));
            let depth = depths.entry(group).or_insert_with(|| QueueDepth {
                queue: row.queue.clone(),
                status: row.status,
                wait_kind,
                count: 0,
                blocked: 0,
                oldest: None,
            });
            depth.count += 1;
            depth.blocked += u64::from(row.is_blocked());
            if row.status == Status::Runnable {
                let oldest = depth.oldest.into_iter().chain(row.due_at).min();
                depth.oldest = oldest;
            }
        }
        depths.into_values().collect()
    }

    /// Returns the lanes that have something to claim.
    pub fn ready_lanes(&self) -> Vec<ReadyLane> {
        let is_ready = |row: &Row| row.status == Status::Runnable && !row.behind;
        let records = self.records().values();
        let ready = records.filter(|record| is_ready(&record.row));
        let lanes: BTreeSet<ReadyLane> = ready
            .map(|record| ReadyLane {
                queue: record.row.queue.clone(),
                lane: record.lane(),
            })
            .collect();
        lanes.into_iter().take(READY_LANES).collect()
    }

    /// Returns the number of blocked, failing and ended instances.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let mut counted = 0;
        for row in self.records().values().map(|record| &record.row) {
            let is_ended = row.status.is_terminal();
            if is_ended && counted < ENDED_COUNTED {
                counted += 1;
                *tally.ended.entry(row.status).or_default() += 1;
            }
            let is_blocked = row.status == Status::Scheduled && row.due_at.is_none();
            let failures = row.attempt.saturating_sub(row.deaths);
            let fails = row.kind == Kind::Workflow || failures > FAILURES_HEALTHY;
            let is_failing = !is_ended && !is_blocked && fails && row.last_error.is_some();
            tally.blocked += u64::from(is_blocked);
            tally.failing += u64::from(is_failing);
        }
        tally
    }
}

/// Returns the kind of wait of an instance, if it waits; also while it runs only for updates.
fn waits_for(row: &Row) -> Option<WaitKind> {
    let kind = row.awaits.as_ref()?.kind;
    row.stands().waits_for(kind).then_some(kind)
}

/// `true` if an instance waits for a signal of this name, an event of this type or a condition of this key.
fn awaits(row: &Row, name: &Name) -> bool {
    let names = row.awaits.iter().flat_map(|awaits| &awaits.names);
    let mut texts = names.map(|one| one.event_type().unwrap_or(one.as_str()));
    let mut waits = row.awaits.iter().flat_map(|awaits| &awaits.waits);
    let is_it =
        |wait: &OperationWait| wait.kind == WaitKind::Condition && wait.name.as_ref() == Some(name);
    waits_for(row).is_some() && (texts.any(|text| text == name.as_str()) || waits.any(is_it))
}

fn meets(record: &Instance, filter: &Filter) -> bool {
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
            .is_none_or(|machine| record.machine == *machine)
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
