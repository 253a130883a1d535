//! The surroundings of an instance: its pending commands, its children, its worker, its partition.

use std::collections::BTreeMap;

use abide_core::model::{
    BarrierNumber, CommandId, CommandKind, Instance, InstanceId, Kind, Lane, Name, Status,
    Timestamp,
};
use abide_core::rules::liveness::{Around, CHILDREN_SEEN, NAMES_SEEN, Siblings, UnmatchedEvent};

use super::tables::Tables;
use crate::{Stamp, Surroundings};

/// The properties that equal children share: status, `true` if they have a due time, and the queue and lane that could
/// run them.
type Standing = (i16, bool, Option<(Name, Lane)>);

impl Tables {
    /// Returns the surroundings of an instance, if it exists.
    pub fn around(&self, id: InstanceId) -> Option<Surroundings> {
        let record = self.records().get(&id)?;
        let row = &record.row;
        let (mut signals, mut updates) = (0, 0);
        let (mut missed_signal, mut newest_update) = (None, None);
        let awaited: &[Name] = match (row.status, &row.awaits) {
            (Status::AwaitingSignal, Some(awaits)) => &awaits.names,
            _ => &[],
        };
        let mut pending: BTreeMap<&Name, CommandId> = BTreeMap::new();
        for command in self.commands().pending(id) {
            if command.kind == CommandKind::Signal {
                signals += 1;
                if row.status == Status::AwaitingSignal {
                    pending.entry(&command.name).or_insert(command.id);
                }
                let is_new = command.sequence > Some(row.inbox.handed);
                if is_new && awaited.contains(&command.name) {
                    missed_signal = missed_signal.or(Some(command.id));
                }
            } else {
                updates += 1;
                newest_update = command
                    .sequence
                    .filter(|_| row.status.is_parked())
                    .map(|at| (command.id, at));
            }
        }
        let front = row.partition_key.as_ref();
        let front = front.filter(|_| row.status == Status::Runnable && row.behind);
        let around = Around {
            signals,
            updates,
            missed_signal,
            newest_update,
            has_holder: row
                .worker
                .is_some_and(|worker| self.workers().contains_key(&worker)),
            has_front: front.is_some_and(|key| self.index().fronts.contains_key(key)),
            children: match row.status {
                Status::AwaitingChildren => self.siblings(record),
                _ => Vec::new(),
            },
            pending_names: pending
                .into_iter()
                .take(NAMES_SEEN as usize)
                .map(|(name, id)| (name.clone(), id))
                .collect(),
            unmatched_event: match row.status {
                Status::AwaitingSignal => self.unmatched(id),
                _ => None,
            },
        };
        let stamp = Stamp {
            status: row.status,
            step_seq: row.step_seq,
            attempt: row.attempt,
            inbox: row.inbox,
            children_needed: row.family.needed,
            updated_at: record.updated_at,
        };
        Some(Surroundings { id, stamp, around })
    }

    /// Returns the newest event of a type that an instance waits for, published since its waits began.
    fn unmatched(&self, id: InstanceId) -> Option<UnmatchedEvent> {
        let spots = self.events().spots(id);
        let waiters = spots
            .iter()
            .filter_map(|spot| self.events().waiters().get(spot));
        let mut types: BTreeMap<&Name, Timestamp> = BTreeMap::new();
        for waiter in waiters {
            let since = types.entry(&waiter.event_type).or_insert(waiter.since);
            *since = waiter.since.min(*since);
        }
        let newest = types
            .iter()
            .take(NAMES_SEEN as usize)
            .filter_map(|(of, since)| {
                let mut events = self.events().events().values().rev();
                let newest = events.find(|event| event.event_type == **of)?;
                (newest.published_at > *since).then_some(newest)
            });
        let newest = newest.max_by_key(|event| event.sequence)?;
        Some(UnmatchedEvent {
            sequence: newest.sequence,
            event_type: newest.event_type.clone(),
            event_id: newest.event_id.clone(),
        })
    }

    fn siblings(&self, parent: &Instance) -> Vec<Siblings> {
        let row = &parent.row;
        let first = match row.kind {
            Kind::Workflow => BarrierNumber(0),
            Kind::Machine => row.family.barrier,
        };
        let of_parent = (row.id, first, InstanceId(i64::MIN))
            ..=(row.id, BarrierNumber(i32::MAX), InstanceId(i64::MAX));
        let ids = self.index().children.range(of_parent).rev();
        let newest = ids
            .take(CHILDREN_SEEN as usize)
            .filter_map(|(_, _, id)| self.records().get(id));
        let mut counts: BTreeMap<Standing, (Status, u32)> = BTreeMap::new();
        for child in newest {
            let status = child.row.status;
            let runs_on =
                (status == Status::Runnable).then(|| (child.row.queue.clone(), child.lane()));
            let standing = (status.code(), child.row.due_at.is_some(), runs_on);
            counts.entry(standing).or_insert((status, 0)).1 += 1;
        }
        counts
            .into_iter()
            .map(|((_, is_due, runs_on), (status, count))| Siblings {
                status,
                is_due,
                runs_on,
                count,
            })
            .collect()
    }
}
