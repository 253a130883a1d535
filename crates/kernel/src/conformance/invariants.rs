//! What must hold in every store at every moment, whatever has happened before.

use std::collections::BTreeMap;

use abide_core::model::{Entry, Happening, Instance, InstanceId, Key, Status, UniqueKey};

use crate::{Filter, Result, Store};

/// How many instances are looked at; larger stores are looked at in part.
const MOST: usize = 5_000;

/// What in this store breaks an invariant, each as a sentence; none if all is well. It reads the newest 5,000
/// instances with their histories, and must not run while others write.
pub async fn violations(store: &dyn Store) -> Result<Vec<String>> {
    let page = store.list(&Filter::default(), None, MOST).await?;
    let mut found = Vec::new();
    for instance in &page.items {
        found.extend(of_row(instance));
        found.extend(of_history(instance, &history(store, instance.id).await?));
    }
    found.extend(of_keys(&page.items));
    if page.next.is_none() {
        found.extend(of_partitions(&page.items));
        found.extend(of_families(&page.items));
    }
    Ok(found)
}

async fn history(store: &dyn Store, id: InstanceId) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map_or(0, |last| last.seq);
        let rows = store.history(id, after, 500).await?;
        if rows.is_empty() {
            return Ok(entries);
        }
        for row in rows {
            let read = row.unpack().map_err(|error| crate::Error::Broken(format!("history of {id}: {error}")))?;
            entries.extend(read.into_iter().filter(|entry| entry.seq > after));
        }
    }
}

/// What each status says of the other columns.
fn of_row(instance: &Instance) -> Vec<String> {
    let Instance { id, status, .. } = instance;
    let ended = status.is_terminal();
    let sleeps = matches!(status, Status::Scheduled | Status::Runnable | Status::Executing);
    let checks = [
        (ended == instance.finished_at.is_some(), "has ended exactly if it has a finish time"),
        ((*status == Status::Executing) == instance.worker.is_some(), "executes exactly if a worker holds it"),
        (!sleeps || instance.due_at.is_some(), "has a due time"),
        (!ended || instance.due_at.is_none(), "is not due when it has ended"),
        (*status != Status::Executing || !instance.behind, "does not execute behind another"),
        (*status != Status::AwaitingSignal || !instance.awaits.is_empty(), "waits for a signal that has a name"),
        (*status != Status::AwaitingChildren || instance.children_pending > 0, "waits for children that there are"),
        (instance.result.is_some() <= (*status == Status::Done), "has a result only when it is done"),
        (*status != Status::Failed || instance.last_error.is_some(), "says what it failed of"),
    ];
    let broken = checks.into_iter().filter(|(holds, _)| !holds);
    broken.map(|(_, rule)| format!("instance {id} ({status}) is one of which it is not true that it {rule}")).collect()
}

/// A history is numbered without gaps after `started`, tells each step in its turn, and ends as the instance did.
fn of_history(instance: &Instance, entries: &[Entry]) -> Vec<String> {
    let Instance { id, status, .. } = instance;
    let mut found = Vec::new();
    if !instance.history {
        if !entries.is_empty() {
            found.push(format!("instance {id} keeps no history and has one"));
        }
        return found;
    }
    let (mut seq, mut step, mut at_least) = (1, 1, 1);
    for entry in entries {
        seq += 1;
        if entry.seq != seq {
            found.push(format!("the history of {id} has event {} where {seq} should be", entry.seq));
        }
        match &entry.what {
            Happening::StepCompleted { step_sequence, outcome, .. } => {
                if *step_sequence < at_least || *step_sequence > step {
                    found.push(format!("the history of {id} tells of step {step_sequence} where {step} should be"));
                }
                step = step_sequence + u32::from(outcome != "retry");
                at_least = step;
            }
            Happening::StepFailed { step_sequence, .. } => {
                // What its handler answered may have gone on, or not.
                (at_least, step) = (*step_sequence, step_sequence + 1);
            }
            _ => {}
        }
    }
    if status.is_terminal() {
        let told = entries.last().map(|entry| entry.what.kind());
        if told != Some(status.name()) {
            found.push(format!("the history of {id}, which is {status}, ends with {told:?}"));
        }
    } else if instance.step_seq < at_least || instance.step_seq > step {
        found.push(format!("instance {id} is at step {}, and its history at {step}", instance.step_seq));
    }
    found
}

/// A key is held once among those whose scope holds their status (rule 2.2).
fn of_keys(instances: &[Instance]) -> Vec<String> {
    let mut keys: BTreeMap<&Key, InstanceId> = BTreeMap::new();
    let mut unique_keys: BTreeMap<&UniqueKey, InstanceId> = BTreeMap::new();
    let mut found = Vec::new();
    for instance in instances {
        if let Some(key) = instance.key.as_ref().filter(|_| instance.scope.holds(instance.status))
            && let Some(other) = keys.insert(key, instance.id)
        {
            found.push(format!("key {key} is held by {other} and by {}", instance.id));
        }
        if let Some(key) = instance.unique_key.as_ref().filter(|_| instance.unique_scope.holds(instance.status))
            && let Some(other) = unique_keys.insert(key, instance.id)
        {
            found.push(format!("unique key {key:?} is held by {other} and by {}", instance.id));
        }
    }
    found
}

/// A partition in which anything is runnable or executing has exactly one front, and nobody waits behind one that comes
/// later in order unless that executes (rule 6.3).
fn of_partitions(instances: &[Instance]) -> Vec<String> {
    let mut partitions: BTreeMap<&Key, Vec<&Instance>> = BTreeMap::new();
    for instance in instances.iter().filter(|one| matches!(one.status, Status::Runnable | Status::Executing)) {
        if let Some(key) = &instance.partition_key {
            partitions.entry(key).or_default().push(instance);
        }
    }
    let mut found = Vec::new();
    for (key, all) in partitions {
        let fronts: Vec<&&Instance> = all.iter().filter(|one| !one.behind).collect();
        let order = |one: &Instance| (one.priority, one.due_at, one.id);
        match fronts.as_slice() {
            [front] if front.status == Status::Runnable => {
                if let Some(first) = all.iter().find(|one| order(one) < order(front)) {
                    found.push(format!("partition {key}: {} is in front of {}", front.id, first.id));
                }
            }
            [_] => {}
            fronts => found.push(format!("partition {key} of {} has {} fronts", all.len(), fronts.len())),
        }
    }
    found
}

/// A parent counts exactly the children of its last barrier that have not ended (rules 10.1, 10.2).
fn of_families(instances: &[Instance]) -> Vec<String> {
    let mut living: BTreeMap<_, u32> = BTreeMap::new();
    for child in instances.iter().filter(|one| !one.status.is_terminal()) {
        if let Some(parent) = child.parent {
            *living.entry((parent, child.parent_barrier)).or_default() += 1;
        }
    }
    let mut found = Vec::new();
    for parent in instances.iter().filter(|one| !one.status.is_terminal()) {
        let real = living.get(&(parent.id, parent.barrier)).copied().unwrap_or(0);
        if parent.children_pending != real {
            let (id, counted) = (parent.id, parent.children_pending);
            found.push(format!("instance {id} counts {counted} children, and {real} have not ended"));
        }
    }
    found
}
