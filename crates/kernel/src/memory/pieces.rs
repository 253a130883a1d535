//! The parts of a transaction on the tables: copies to change, writes with their undo log, positions in queues.

use std::ops::Bound;
use std::sync::Arc;

use abide_core::model::{
    AnyKey, Command, CommandId, CommandKind, CommandStatus, Event, EventSequence, HistoryRow,
    Instance, InstanceId, Json, Lane, Name, ParentRef, Row, Status, Timestamp, WorkerId,
};
use abide_core::rules::partition::Contender;

use super::index::ClaimOrder;
use super::tables::{Noted, Tables, Undo};
use crate::{Cursor, Error, Expiring, Holder, NewEvent, Result, Touched};

/// A transaction on the tables. If it is dropped without a [`commit`](Self::commit), it undoes its changes.
pub(super) struct MemoryTxn<'t> {
    pub tables: &'t mut Tables,
    pub log: Vec<Undo>,
}

impl<'t> MemoryTxn<'t> {
    pub fn begin(tables: &'t mut Tables) -> Self {
        Self {
            tables,
            log: Vec::new(),
        }
    }

    pub fn commit(mut self) {
        self.log.clear();
    }

    pub fn put(&mut self, record: Instance) -> Result<()> {
        let undo = self.tables.put(record.row.id, Some(Arc::new(record)))?;
        self.log.push(undo);
        Ok(())
    }

    /// Removes a record and inserts it again, because only that changes the index of children.
    pub fn reinsert(&mut self, record: Instance) -> Result<()> {
        let undo = self.tables.put(record.row.id, None)?;
        self.log.push(undo);
        self.put(record)
    }

    pub fn put_command(&mut self, id: CommandId, command: Option<Command>) -> Result<()> {
        let undo = self.tables.put_command(id, command.map(Arc::new))?;
        self.log.push(undo);
        Ok(())
    }

    /// Returns a copy of a command's record, to change and put back.
    pub fn command(&self, id: CommandId) -> Result<Command> {
        self.tables
            .commands()
            .get(id)
            .map(|command| Command::clone(command))
            .ok_or_else(|| Error::Broken(format!("record {id} is written to and not there")))
    }

    pub fn record(&self, id: InstanceId) -> Option<&Instance> {
        self.tables.records().get(&id).map(Arc::as_ref)
    }

    /// Converts a history row to its stored form.
    pub fn noted(row: &HistoryRow) -> Result<Noted> {
        let id = row.instance;
        let last = row
            .last()
            .map_err(|error| Error::Broken(format!("history of instance {id}: {error}")))?;
        let row = row.clone();
        Ok(Noted { row, last })
    }

    /// Returns a copy of a record, to change and put back.
    pub fn copy(&self, id: InstanceId) -> Result<Instance> {
        self.record(id)
            .cloned()
            .ok_or_else(|| Error::Broken(format!("instance {id} is written to and not there")))
    }

    /// Refuses a row that differs in more than its shape allows, because the databases would not write the rest.
    pub fn expect(&self, row: &Row, shaped: fn(&Row, &Row) -> Row) -> Result<()> {
        let was = self.copy(row.id)?.row;
        let written = shaped(&was, row);
        if written == *row {
            return Ok(());
        }
        let problem = format!("of {row:?}, no more than {written:?} would be written");
        Err(Error::Broken(problem))
    }

    pub fn put_row(
        &mut self,
        row: &Row,
        state: Option<&Json>,
        result: Option<&Json>,
        now: Timestamp,
    ) -> Result<()> {
        let old = self.copy(row.id)?;
        self.put(Instance {
            row: row.clone(),
            state: state.cloned().unwrap_or(old.state),
            result: result.cloned().or(old.result),
            updated_at: now,
            ..old
        })
    }

    /// Returns the first position of a queue, over all lanes.
    pub fn first_position(&self, queue: &Name, lanes: &[Lane]) -> Option<ClaimOrder> {
        let positions = lanes.iter().filter_map(|lane| {
            self.tables
                .index()
                .claimable
                .get(&(queue.clone(), lane.clone()))
                .and_then(|positions| positions.first())
        });
        positions.min().copied()
    }

    /// Returns the first position of a queue, over all lanes, of an instance that is not unfit for this build
    /// (rule 12.4).
    pub fn first_fit(
        &self,
        queue: &Name,
        lanes: &[Lane],
        build: Option<&Name>,
    ) -> Option<ClaimOrder> {
        let fits = |position: &&ClaimOrder| {
            let record = self.record(position.2);
            record.is_some_and(|one| {
                one.row.unfit.is_empty()
                    || build.is_some_and(|build| !one.row.unfit.contains(build))
            })
        };
        let positions = lanes.iter().filter_map(|lane| {
            let lane = (queue.clone(), lane.clone());
            let positions = self.tables.index().claimable.get(&lane)?;
            positions.iter().find(fits)
        });
        positions.min().copied()
    }

    /// Returns the instances of these lanes above an id that are scheduled without a due time, except those that are
    /// unfit for a build.
    pub fn blocked_above(
        &self,
        lanes: &[Lane],
        unless: Option<&Name>,
        after: InstanceId,
        limit: usize,
    ) -> Vec<Touched> {
        let above = (Bound::Excluded(after), Bound::Unbounded);
        let above = self.tables.records().range(above).map(|(_, record)| record);
        let blocked = above.filter(|record| {
            record.row.status == Status::Scheduled
                && record.row.due_at.is_none()
                && lanes.contains(&record.lane())
                && unless.is_none_or(|build| !record.row.unfit.contains(build))
        });
        let touched = blocked.filter_map(|record| self.touched(record.row.id));
        touched.take(limit).collect()
    }

    /// Returns the builds of those of these workers that are known.
    pub fn builds_of(&self, workers: &[WorkerId]) -> Vec<(WorkerId, Name)> {
        let known = |id: &WorkerId| self.tables.workers().get(id);
        let known = workers.iter().filter_map(known);
        known
            .map(|worker| (worker.id, worker.build().clone()))
            .collect()
    }

    /// Returns the signals that a step of a run has consumed, by sequence.
    pub fn applied_by(&self, of: InstanceId, step_sequence: u32) -> Vec<Command> {
        let commands = self.tables.commands();
        let of_run = commands.of_run(of).filter_map(|id| commands.get(id));
        let applied = of_run.filter(|one| {
            one.kind == CommandKind::Signal
                && one.status == CommandStatus::Applied
                && one.step_sequence == Some(step_sequence)
        });
        let mut applied: Vec<Command> = applied.map(|one| Command::clone(one)).collect();
        applied.sort_unstable_by_key(|one| one.sequence);
        applied
    }

    pub fn contender(&self, id: InstanceId) -> Option<(Contender, Name)> {
        let row = &self.record(id)?.row;
        let (status, priority, due_at) = (row.status, row.priority, row.due_at.unwrap_or_default());
        Some((
            Contender {
                id,
                status,
                priority,
                due_at,
            },
            row.queue.clone(),
        ))
    }

    /// Returns the keys of instances, each with its holder.
    pub fn holders_of_keys(&self, ids: &[InstanceId]) -> Vec<Holder> {
        let index = self.tables.index();
        let mut holders = Vec::new();
        for record in ids.iter().filter_map(|id| self.record(*id)) {
            let of = record.row.id;
            holders.extend(record.key.clone().map(|key| Holder {
                of,
                holder: index.keys.get(&key).copied(),
                key: AnyKey::Key(key),
            }));
            holders.extend(record.unique_key.clone().map(|key| Holder {
                of,
                holder: index.unique_keys.get(&key).copied(),
                key: AnyKey::UniqueKey(key),
            }));
        }
        holders
    }

    pub fn parent_of(&self, row: &Row) -> Option<ParentRef> {
        row.parent.map(|id| {
            let parent = self.record(id);
            let partition = parent.and_then(|parent| parent.row.partition_key.clone());
            ParentRef { id, partition }
        })
    }

    pub fn touched(&self, id: InstanceId) -> Option<Touched> {
        Some(Touched {
            id,
            partition: self.record(id)?.row.partition_key.clone(),
        })
    }

    /// Returns the rows that a worker holds above `after`, by id, in whose step workers have died at least that often.
    pub fn held_above(
        &self,
        worker: WorkerId,
        after: InstanceId,
        deaths: u32,
        limit: usize,
    ) -> Vec<Touched> {
        let above = (
            Bound::Excluded((worker, after)),
            Bound::Included((worker, InstanceId(i64::MAX))),
        );
        let held = self.tables.index().held.range(above).map(|(_, id)| *id);
        let died = |id: &InstanceId| {
            let record = self.record(*id);
            record.is_some_and(|record| record.row.deaths >= deaths)
        };
        held.filter(died)
            .filter_map(|id| self.touched(id))
            .take(limit)
            .collect()
    }

    pub fn expiring_row(&self, id: InstanceId) -> Option<Expiring> {
        let row = &self.record(id)?.row;
        let finished_at = row.finished_at?;
        Some(Expiring {
            cursor: Cursor { finished_at, id },
            chain: row.chain(),
            parent: placed(row),
        })
    }

    pub fn set_behind(&mut self, ids: &[InstanceId], behind: bool) -> Result<()> {
        for id in ids {
            let mut record = self.copy(*id)?;
            record.row.behind = behind;
            self.put(record)?;
        }
        Ok(())
    }

    /// Deletes histories and records of runs, at most `limit` rows.
    pub fn trim_now(&mut self, ids: &[InstanceId], limit: usize) -> Result<usize> {
        let mut left = limit;
        for id in ids {
            let rest: Vec<Noted> = self
                .tables
                .history(*id)
                .iter()
                .skip(left)
                .cloned()
                .collect();
            left -= self.tables.history(*id).len().min(left);
            let undo = self.tables.forget(*id);
            self.log.extend(undo);
            for noted in rest {
                let undo = self.tables.append(*id, noted);
                self.log.push(undo);
            }
        }
        for id in ids {
            let of_run = self.tables.commands().of_run(*id);
            let loose: Vec<CommandId> = of_run
                .filter(|command| !self.tables.commands().is_deduped(*command))
                .take(left)
                .collect();
            left -= loose.len();
            for command in loose {
                self.put_command(command, None)?;
            }
        }
        Ok(limit - left)
    }

    /// Stores events. Returns the sequence of each, and `true` if it is new.
    pub fn store_now(&mut self, events: &[NewEvent], now: Timestamp) -> Vec<(EventSequence, bool)> {
        let mut stored = Vec::with_capacity(events.len());
        for event in events {
            let known = self
                .tables
                .events()
                .known(&event.event_type, &event.event_id);
            if let Some(sequence) = known {
                stored.push((sequence, false));
                continue;
            }
            let sequence = self.tables.next_event();
            let kept = Event {
                sequence,
                event_type: event.event_type.clone(),
                event_id: event.event_id.clone(),
                payload: event.payload.clone(),
                published_at: now,
            };
            let undo = self.tables.put_event(sequence, Some(kept));
            self.log.push(undo);
            stored.push((sequence, true));
        }
        stored
    }
}

impl Drop for MemoryTxn<'_> {
    fn drop(&mut self) {
        self.tables.undo(&mut self.log);
    }
}

/// Returns the parent at one of whose barriers a row is counted.
pub(super) fn placed(row: &Row) -> Option<InstanceId> {
    row.parent.filter(|_| row.parent_barrier.0 != 0)
}
