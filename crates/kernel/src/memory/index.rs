//! The indexes of the records: by position in a queue, due time, holder, partition and key.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{
    BarrierNumber, Instance, InstanceId, Key, Lane, Name, Priority, Status, Timestamp, UniqueKey,
    WorkerId,
};

use crate::{Cursor, Error, Result};

/// The order within a queue, and within a partition (rule 6.1).
pub(super) type ClaimOrder = (Priority, Timestamp, InstanceId);

/// The indexes of the records. Only [`Index::change`] changes them.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Claimable rows, by queue and lane.
    pub claimable: BTreeMap<(Name, Lane), BTreeSet<ClaimOrder>>,
    /// Rows that are due later.
    pub due: BTreeSet<(Timestamp, InstanceId)>,
    /// Rows that are held under their own lease, by its expiry.
    pub leases: BTreeSet<(Timestamp, InstanceId)>,
    /// Rows that workers hold.
    pub held: BTreeSet<(WorkerId, InstanceId)>,
    /// Ended rows, in the order in which they ended.
    pub finished: BTreeSet<Cursor>,
    /// The runnable rows of each partition, including those behind.
    pub queued: BTreeMap<Key, BTreeSet<ClaimOrder>>,
    /// The row at the front of each partition.
    pub fronts: BTreeMap<Key, InstanceId>,
    /// The children of each barrier.
    pub children: BTreeSet<(InstanceId, BarrierNumber, InstanceId)>,
    /// The instances that have a key, in any status.
    pub named: BTreeSet<(Key, InstanceId)>,
    /// The holder of each key.
    pub keys: BTreeMap<Key, InstanceId>,
    /// The holder of each unique key.
    pub unique_keys: BTreeMap<UniqueKey, InstanceId>,
}

/// The index entries of a record.
#[derive(Debug, PartialEq, Eq)]
struct Entries<'r> {
    id: InstanceId,
    claimable: Option<(&'r Name, Lane, ClaimOrder)>,
    due: Option<Timestamp>,
    lease: Option<Timestamp>,
    holder: Option<WorkerId>,
    finished: Option<Timestamp>,
    queued: Option<(&'r Key, ClaimOrder)>,
    front: Option<&'r Key>,
    key: Option<&'r Key>,
    unique_key: Option<&'r UniqueKey>,
}

impl<'r> Entries<'r> {
    fn of(record: &'r Instance) -> Self {
        let row = &record.row;
        let runnable = row.status == Status::Runnable;
        let executing = row.status == Status::Executing;
        let position = (row.priority, row.due_at.unwrap_or_default(), row.id);
        Self {
            id: row.id,
            claimable: (runnable && !row.behind).then(|| (&row.queue, record.lane(), position)),
            due: row.due_at.filter(|_| row.status.is_parked()),
            lease: row.lease.filter(|_| executing).map(|lease| lease.until),
            holder: row.worker.filter(|_| executing),
            finished: row.finished_at,
            queued: row
                .partition_key
                .as_ref()
                .filter(|_| runnable)
                .map(|key| (key, position)),
            front: row
                .partition_key
                .as_ref()
                .filter(|_| (runnable || executing) && !row.behind),
            key: record
                .key
                .as_ref()
                .filter(|_| record.scope.holds(row.status)),
            unique_key: record
                .unique_key
                .as_ref()
                .filter(|_| record.unique_scope.holds(row.status)),
        }
    }
}

impl Index {
    /// Updates the indexes from the old record to the new one; `None` is a record that does not exist. Refuses, and
    /// changes nothing, if a key or a partition's front would be held twice (rules 2.2, 6.3).
    pub fn change(&mut self, was: Option<&Instance>, is: Option<&Instance>) -> Result<()> {
        let (old, new) = (was.map(Entries::of), is.map(Entries::of));
        if let Some(new) = &new {
            self.check(new)?;
        }
        if old != new {
            old.into_iter().for_each(|old| self.remove(&old));
            new.into_iter().for_each(|new| self.add(&new));
        }
        match (was, is) {
            (None, Some(is)) => self.born(is),
            (Some(was), None) => self.gone(was),
            _ => {}
        }
        Ok(())
    }

    /// Returns the holder of a key or unique key that this record would hold if it existed.
    pub fn holder_of(&self, record: &Instance) -> Option<InstanceId> {
        let new = Entries::of(record);
        let by_key = new.key.and_then(|key| self.keys.get(key));
        by_key
            .or_else(|| new.unique_key.and_then(|key| self.unique_keys.get(key)))
            .copied()
    }

    fn check(&self, new: &Entries<'_>) -> Result<()> {
        let other =
            |holder: Option<&InstanceId>| holder.copied().filter(|holder| *holder != new.id);
        let taken = |what: &str, by: InstanceId| {
            Error::Conflict(format!("instance {by} has {what} of {}", new.id))
        };
        if let Some(by) = other(new.key.and_then(|key| self.keys.get(key))) {
            return Err(taken("the key", by));
        }
        if let Some(by) = other(new.unique_key.and_then(|key| self.unique_keys.get(key))) {
            return Err(taken("the unique key", by));
        }
        match other(new.front.and_then(|key| self.fronts.get(key))) {
            Some(by) => Err(taken("the place at the front of the partition", by)),
            None => Ok(()),
        }
    }

    fn remove(&mut self, old: &Entries<'_>) {
        let id = old.id;
        if let Some((queue, lane, position)) = &old.claimable {
            remove_from(
                &mut self.claimable,
                &((*queue).clone(), lane.clone()),
                position,
            );
        }
        if let Some((key, position)) = old.queued {
            remove_from(&mut self.queued, key, &position);
        }
        old.due.map(|due| self.due.remove(&(due, id)));
        old.lease.map(|until| self.leases.remove(&(until, id)));
        old.holder.map(|worker| self.held.remove(&(worker, id)));
        old.finished
            .map(|finished_at| self.finished.remove(&Cursor { finished_at, id }));
        old.front.map(|key| self.fronts.remove(key));
        old.key.map(|key| self.keys.remove(key));
        old.unique_key.map(|key| self.unique_keys.remove(key));
    }

    fn add(&mut self, new: &Entries<'_>) {
        let id = new.id;
        if let Some((queue, lane, position)) = &new.claimable {
            self.claimable
                .entry(((*queue).clone(), lane.clone()))
                .or_default()
                .insert(*position);
        }
        if let Some((key, position)) = new.queued {
            self.queued.entry(key.clone()).or_default().insert(position);
        }
        self.due.extend(new.due.map(|due| (due, id)));
        self.leases.extend(new.lease.map(|until| (until, id)));
        self.held.extend(new.holder.map(|worker| (worker, id)));
        self.finished
            .extend(new.finished.map(|finished_at| Cursor { finished_at, id }));
        self.fronts.extend(new.front.map(|key| (key.clone(), id)));
        self.keys.extend(new.key.map(|key| (key.clone(), id)));
        self.unique_keys
            .extend(new.unique_key.map(|key| (key.clone(), id)));
    }

    fn born(&mut self, record: &Instance) {
        let row = &record.row;
        self.children.extend(
            row.parent
                .map(|parent| (parent, row.parent_barrier, row.id)),
        );
        self.named
            .extend(record.key.clone().map(|key| (key, row.id)));
    }

    fn gone(&mut self, record: &Instance) {
        let row = &record.row;
        row.parent
            .map(|parent| self.children.remove(&(parent, row.parent_barrier, row.id)));
        record
            .key
            .clone()
            .map(|key| self.named.remove(&(key, row.id)));
    }
}

/// Removes a position, and its set if that becomes empty.
fn remove_from<K: Ord>(
    sets: &mut BTreeMap<K, BTreeSet<ClaimOrder>>,
    key: &K,
    position: &ClaimOrder,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(position);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
