//! The records of signals and updates, and their indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use abide_core::model::{
    Command, CommandId, CommandKind, CommandStatus, InstanceId, Key, Name, Sequence,
};

use crate::{CommandFilter, CommandPage, Error, Page, Result};

/// The records of signals and updates. Only [`put`](Self::put) changes them.
#[derive(Debug, Default)]
pub(super) struct Commands {
    records: BTreeMap<CommandId, Arc<Command>>,
    /// The pending commands of inboxes.
    pending: BTreeSet<(InstanceId, Sequence, CommandId)>,
    /// The signals held for keys.
    held: BTreeSet<(Key, CommandId)>,
    /// The commands that were accepted with a dedup key.
    deduped: BTreeMap<(InstanceId, CommandKind, Name), CommandId>,
    /// The commands of each run.
    of_run: BTreeSet<(InstanceId, CommandId)>,
}

impl Commands {
    /// Writes or removes a record. Returns the previous one. If it is refused, nothing has changed.
    pub fn put(
        &mut self,
        id: CommandId,
        command: Option<Arc<Command>>,
    ) -> Result<Option<Arc<Command>>> {
        if let Some(key) = command.as_deref().and_then(dedup_slot)
            && self.deduped.get(&key).is_some_and(|other| *other != id)
        {
            return Err(Error::Conflict(format!("the dedup key of {id} is taken")));
        }
        let was = match &command {
            Some(command) => self.records.insert(id, command.clone()),
            None => self.records.remove(&id),
        };
        if let Some(was) = &was {
            if let Some(entry) = inbox_key(was) {
                self.pending.remove(&entry);
            }
            if let Some(entry) = held_key(was) {
                self.held.remove(&entry);
            }
            if let Some(slot) = dedup_slot(was) {
                self.deduped.remove(&slot);
            }
            if let Some(run) = was.instance {
                self.of_run.remove(&(run, id));
            }
        }
        if let Some(is) = &command {
            self.pending.extend(inbox_key(is));
            self.held.extend(held_key(is));
            self.deduped.extend(dedup_slot(is).map(|slot| (slot, id)));
            self.of_run.extend(is.instance.map(|run| (run, id)));
        }
        Ok(was)
    }

    pub fn get(&self, id: CommandId) -> Option<&Arc<Command>> {
        self.records.get(&id)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Command>> {
        self.records.values()
    }

    /// Returns the pending commands of an inbox, by sequence.
    pub fn pending(&self, run: InstanceId) -> impl Iterator<Item = &Arc<Command>> {
        let range = (run, Sequence(i64::MIN), CommandId(i64::MIN))
            ..=(run, Sequence(i64::MAX), CommandId(i64::MAX));
        self.pending
            .range(range)
            .filter_map(|(_, _, id)| self.records.get(id))
    }

    /// Returns the signals held for a key, by id.
    pub fn held(&self, key: &Key) -> impl Iterator<Item = &Arc<Command>> {
        let range = (key.clone(), CommandId(i64::MIN))..=(key.clone(), CommandId(i64::MAX));
        self.held
            .range(range)
            .filter_map(|(_, id)| self.records.get(id))
    }

    pub fn deduped(&self, slot: &(InstanceId, CommandKind, Name)) -> Option<&Arc<Command>> {
        self.records.get(self.deduped.get(slot)?)
    }

    /// Returns the commands that were accepted in a chain with a dedup key.
    pub fn deduped_in(&self, chain: InstanceId) -> impl Iterator<Item = CommandId> {
        let slots = self.deduped.iter();
        slots
            .filter(move |((of, _, _), _)| *of == chain)
            .map(|(_, id)| *id)
    }

    /// `true` if a record was accepted with a dedup key.
    pub fn is_deduped(&self, id: CommandId) -> bool {
        let command = self.records.get(&id);
        command.is_some_and(|command| dedup_slot(command).is_some())
    }

    /// Returns all commands of a run.
    pub fn of_run(&self, run: InstanceId) -> impl Iterator<Item = CommandId> {
        let range = (run, CommandId(i64::MIN))..=(run, CommandId(i64::MAX));
        self.of_run.range(range).map(|(_, id)| *id)
    }

    /// Returns a page of records, newest first.
    ///
    /// The records of a chain or a key are those of its runs. Records that are kept of a deleted run are not included.
    pub fn page(
        &self,
        filter: &CommandFilter,
        before: Option<CommandId>,
        limit: usize,
        is_there: impl Fn(InstanceId) -> bool,
    ) -> CommandPage {
        let by_run = filter.chain.is_some() || filter.key.is_some();
        let kept = |command: &Command| by_run && command.instance.is_some_and(|id| !is_there(id));
        let below = before.map_or(Bound::Unbounded, Bound::Excluded);
        let records = self.records.range((Bound::Unbounded, below)).rev();
        let found = records
            .map(|(_, command)| command)
            .filter(|command| meets(command, filter) && !kept(command));
        let items = found.take(limit.saturating_add(1));
        let items = items.map(|command| Command::clone(command)).collect();
        Page::of(items, limit, usize::MAX, |last| last.id)
    }
}

fn inbox_key(command: &Command) -> Option<(InstanceId, Sequence, CommandId)> {
    command
        .status
        .is_pending()
        .then_some((command.instance?, command.sequence?, command.id))
}

fn held_key(command: &Command) -> Option<(Key, CommandId)> {
    (command.status == CommandStatus::Held).then_some((command.key.clone()?, command.id))
}

/// Returns the dedup entry of an accepted record in its chain. Held and refused records have none.
fn dedup_slot(command: &Command) -> Option<(InstanceId, CommandKind, Name)> {
    command.sequence?;
    Some((command.chain?, command.kind, command.dedup_key.clone()?))
}

fn meets(command: &Command, filter: &CommandFilter) -> bool {
    let CommandFilter {
        chain,
        instance,
        key,
        kind,
        name,
        status,
    } = filter;
    chain.is_none_or(|chain| command.chain == Some(chain))
        && instance.is_none_or(|instance| command.instance == Some(instance))
        && key
            .as_ref()
            .is_none_or(|key| command.key.as_ref() == Some(key))
        && kind.is_none_or(|kind| command.kind == kind)
        && name.as_ref().is_none_or(|name| command.name == *name)
        && status.is_none_or(|status| command.status == status)
}
