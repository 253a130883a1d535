//! The invariants of every store: they hold at every moment, whatever has happened before.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{
    Command, Entry, HistoryEvent, Instance, InstanceId, Key, Kind, Row, Status, UniqueKey, WaitKind,
};
use abide_core::rules::liveness::Liveness;

use super::inboxes::{Tallies, of_messages};
use super::waiters::{of_waiters, standing};
use crate::{Answer, CommandFilter, Filter, Finding, Op, Result, Store, describe_page};

/// The most instances that are checked; larger stores are checked in part.
const MOST: usize = 1_500;

/// Finds what breaks an invariant in this store, each as a sentence; none if all is well. Reads the newest 1,500
/// instances with their messages and histories, examines them, and must not run while others write.
pub async fn violations(store: &dyn Store) -> Result<Vec<String>> {
    let mut page = store.list(&Filter::default(), None, MOST).await?;
    while let (Some(before), true) = (page.next, page.items.len() < MOST) {
        // A page of large states ends before.
        let left = MOST - page.items.len();
        let more = store.list(&Filter::default(), Some(before), left).await?;
        page.items.extend(more.items);
        page.next = more.next;
    }
    let whole = page.next.is_none();
    let mut found = of_rows(&page.items, whole);
    let records = records(store).await?;
    found.extend(of_messages(&page.items, &records, whole));
    let mut tallies = Tallies::default();
    for instance in &page.items {
        let entries = history(store, instance.id).await?;
        found.extend(of_history(instance, &entries));
        tallies.note(&entries);
    }
    if whole {
        found.extend(tallies.unlike(&page.items, &records));
        found.extend(of_waiters(&page.items, &standing(store).await?));
        found.extend(examined(store).await?);
        found.extend(unwell(store).await?);
    }
    Ok(found)
}

/// The instances of which readers are shown that they need repair (rules 11.3 and 13.1).
async fn unwell(store: &dyn Store) -> Result<Vec<String>> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = describe_page(store, &Filter::default(), before, MOST).await?;
        for (instance, health) in page.items {
            if health.liveness == Liveness::RepairNeeded {
                found.push(format!("instance {}: {:?}", instance.id, health.reason));
            }
        }
        before = page.next;
        if before.is_none() {
            return Ok(found);
        }
    }
}

/// All records of signals and updates.
pub async fn records(store: &dyn Store) -> Result<Vec<Command>> {
    let all = CommandFilter::default();
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = store.commands(&all, before, usize::from(u16::MAX)).await?;
        found.extend(page.items);
        before = page.next;
        if before.is_none() {
            return Ok(found);
        }
    }
}

/// The findings of an examination of the whole store (rule 11.3).
pub async fn examined(store: &dyn Store) -> Result<Vec<String>> {
    let (mut found, mut after) = (Vec::new(), InstanceId(0));
    loop {
        let examine = Op::Examine { after, limit: 500 };
        let mut answers = store.run([examine].into()).await?;
        let Some(Answer::Examined { findings, next, .. }) = answers.pop() else {
            return Err(crate::Error::Broken("an examination has no answer".into()));
        };
        let sentence =
            |finding: Finding| format!("instance {}: {}", finding.instance, finding.problem);
        found.extend(findings.into_iter().map(sentence));
        match next {
            Some(next) => after = next,
            None => return Ok(found),
        }
    }
}

/// Finds what breaks an invariant in these instances. `whole` is true if they are all that a store has; then what they
/// must be to each other is checked too.
pub fn of_rows(instances: &[Instance], whole: bool) -> Vec<String> {
    let mut found: Vec<String> = instances.iter().flat_map(of_row).collect();
    found.extend(of_keys(instances));
    if whole {
        found.extend(of_partitions(instances));
        found.extend(of_families(instances));
    }
    found
}

/// The whole history of an instance after `started`.
pub async fn history(store: &dyn Store, id: InstanceId) -> Result<Vec<Entry>> {
    let broken = |problem: &dyn std::fmt::Display| {
        crate::Error::Broken(format!("history of {id}: {problem}"))
    };
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map_or(0, |last| last.seq);
        let rows = store.history(id, after, 500).await?;
        if rows.is_empty() {
            return Ok(entries);
        }
        for row in rows {
            let read = row.unpack().map_err(|error| broken(&error))?;
            entries.extend(read.into_iter().filter(|entry| entry.seq > after));
        }
        if entries.last().is_none_or(|last| last.seq <= after) {
            return Err(broken(&"the page after an event begins with that event"));
        }
    }
}

/// Checks the other columns against the status.
fn of_row(instance: &Instance) -> Vec<String> {
    let Row { id, status, .. } = &instance.row;
    let ended = status.is_terminal();
    let sleeps = matches!(
        status,
        Status::Scheduled | Status::Runnable | Status::Executing
    );
    let checks = [
        (
            ended == instance.finished_at.is_some(),
            "has ended exactly if it has a finish time",
        ),
        (
            (*status == Status::Executing) == instance.worker.is_some(),
            "executes exactly if a worker holds it",
        ),
        (
            !sleeps || instance.due_at.is_some() || instance.is_blocked(),
            "has a due time",
        ),
        (
            !instance.is_blocked() || instance.last_error.is_some(),
            "says why when it is blocked",
        ),
        (
            instance.kind != Kind::Workflow || instance.history,
            "keeps its history when it is a workflow",
        ),
        (
            !ended || instance.due_at.is_none(),
            "is not due when it has ended",
        ),
        (
            *status != Status::Executing || !instance.behind,
            "does not execute behind another",
        ),
        (
            *status != Status::AwaitingSignal
                || !instance.awaited().is_empty()
                || instance.wait_kind() == Some(WaitKind::Condition),
            "waits for a signal that has a name, or for a condition",
        ),
        (
            *status != Status::AwaitingChildren
                || (1..=instance.family.pending).contains(&instance.family.needed),
            "waits for children that there are",
        ),
        (
            instance.result.is_some() <= (*status == Status::Done),
            "has a result only when it is done",
        ),
        (
            *status != Status::Failed || instance.last_error.is_some(),
            "says what it failed of",
        ),
    ];
    let broken = checks.into_iter().filter(|(holds, _)| !holds);
    broken
        .map(|(_, rule)| {
            format!("instance {id} ({status}) is one of which it is not true that it {rule}")
        })
        .collect()
}

/// Finds what breaks an invariant in the history of an instance, given all of it: each number after `started` is one
/// event's, it records each step in its turn and each child's end once, and ends as the instance did (rule 16.1).
pub fn of_history(instance: &Instance, entries: &[Entry]) -> Vec<String> {
    let Row { id, status, .. } = &instance.row;
    if !instance.history {
        let kind = entries.first().map(|entry| entry.what.kind());
        let problem =
            kind.map(|kind| format!("instance {id} keeps no history and has {kind} in it"));
        return problem.into_iter().collect();
    }
    let mut found = Vec::new();
    let mut turn = Turn::default();
    let mut ended = BTreeSet::new();
    let (mut taken, mut before) = (1, 1);
    for entry in entries {
        // One that stands for several attempts has taken a number for each. Of a workflow's steps that keep failing at the
        // same time each has one, and what comes later may have taken numbers from before it.
        taken += entry.what.numbers();
        let in_order = entry.seq > before && entry.seq >= taken;
        if !in_order || (instance.kind == Kind::Machine && entry.seq != taken) {
            found.push(format!(
                "event {} comes after {before}, when {taken} numbers are taken",
                entry.seq
            ));
        }
        before = entry.seq;
        if let HistoryEvent::ChildEnded { child, .. } = entry.what
            && !ended.insert(child)
        {
            found.push(format!("child {child} ends twice"));
        }
        if instance.kind == Kind::Machine {
            found.extend(turn.follow(&entry.what));
        }
    }
    if taken != before {
        found.push(format!(
            "it ends with {before}, and {taken} numbers are taken"
        ));
    }
    let mut kinds = entries.iter().rev().map(|entry| entry.what.kind());
    let mut last = kinds.next();
    while last == Some("continued") && *status != Status::Continued {
        // It was restarted after its end; more than once, when the run that followed was deleted before it.
        last = kinds.next();
    }
    if status.is_terminal() && last != Some(status.name()) {
        found.push(format!("it is {status}, and {last:?} is recorded last"));
    }
    let machine = instance.kind == Kind::Machine;
    if machine && !status.is_terminal() && instance.step_seq != turn.step {
        let (at, recorded) = (instance.step_seq, turn.step);
        found.push(format!(
            "it is at step {at}, and by its history at {recorded}"
        ));
    }
    let of = |problem| format!("history of {id}: {problem}");
    found.into_iter().map(of).collect()
}

/// The step that a history must record next.
struct Turn {
    /// This step.
    step: u32,
    /// At this attempt.
    attempt: u32,
    /// True while a wait is open.
    waits: bool,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            step: 1,
            attempt: 0,
            waits: false,
        }
    }
}

impl Turn {
    /// Follows an event; what is wrong with it.
    fn follow(&mut self, what: &HistoryEvent) -> Option<String> {
        match what {
            HistoryEvent::StepCompleted {
                step_sequence,
                attempt,
                outcome,
                ..
            }
            | HistoryEvent::StepFailed {
                step_sequence,
                attempt,
                outcome,
                ..
            } => self.ran((*step_sequence, *attempt), outcome),
            HistoryEvent::Retried {
                attempt,
                folded: Some(folded),
                ..
            }
            | HistoryEvent::Reclaimed {
                attempt,
                folded: Some(folded),
                ..
            } => {
                let before = std::mem::replace(&mut self.attempt, *attempt);
                let fits = folded.last == *attempt
                    && (before..=before + 1).contains(&folded.first)
                    && folded.count > folded.last - folded.first;
                (!fits).then(|| format!("{folded:?} follows attempt {before}"))
            }
            // Its updates were being handled, and the step was not begun.
            HistoryEvent::Reclaimed { attempt, .. } if *attempt == self.attempt => None,
            HistoryEvent::Retried { attempt, .. } | HistoryEvent::Reclaimed { attempt, .. } => {
                self.attempt += 1;
                let (met, next) = (*attempt, self.attempt);
                (met != next).then(|| format!("attempt {met} follows where {next} should"))
            }
            HistoryEvent::WaitOpened { .. }
            | HistoryEvent::ChildrenSpawned { .. }
            // It may wait for children that were restarted.
            | HistoryEvent::HandedAgain { children: 1.., .. } => {
                self.waits = true;
                None
            }
            HistoryEvent::TimedOut { .. } | HistoryEvent::ChildrenJoined { .. } => {
                let open = std::mem::take(&mut self.waits);
                (!open).then(|| format!("{} ends a wait that is not open", what.kind()))
            }
            _ => None,
        }
    }

    /// Follows a step that ran; one that is to run again keeps its number and its attempts.
    fn ran(&mut self, met: (u32, u32), outcome: &str) -> Option<String> {
        let next = (self.step, self.attempt);
        if outcome != "retry" {
            (self.step, self.attempt) = (met.0 + 1, 0);
        }
        (met != next)
            .then(|| format!("step and attempt {met:?} are recorded where {next:?} should be"))
    }
}

/// A key is held once among those whose scope holds their status (rule 2.2).
fn of_keys(instances: &[Instance]) -> Vec<String> {
    let mut keys: BTreeMap<&Key, InstanceId> = BTreeMap::new();
    let mut unique_keys: BTreeMap<&UniqueKey, InstanceId> = BTreeMap::new();
    let mut found = Vec::new();
    for instance in instances {
        if let Some(key) = instance
            .key
            .as_ref()
            .filter(|_| instance.scope.holds(instance.status))
            && let Some(other) = keys.insert(key, instance.id)
        {
            found.push(format!(
                "key {key} is held by {other} and by {}",
                instance.id
            ));
        }
        if let Some(key) = instance
            .unique_key
            .as_ref()
            .filter(|_| instance.unique_scope.holds(instance.status))
            && let Some(other) = unique_keys.insert(key, instance.id)
        {
            found.push(format!(
                "unique key {key:?} is held by {other} and by {}",
                instance.id
            ));
        }
    }
    found
}

/// A partition in which anything is runnable or executing has exactly one front, and none waits behind one that comes
/// later in order unless that executes (rule 6.3).
fn of_partitions(instances: &[Instance]) -> Vec<String> {
    let mut partitions: BTreeMap<&Key, Vec<&Instance>> = BTreeMap::new();
    for instance in instances
        .iter()
        .filter(|one| matches!(one.status, Status::Runnable | Status::Executing))
    {
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
                    found.push(format!(
                        "partition {key}: {} is in front of {}",
                        front.id, first.id
                    ));
                }
            }
            [_] => {}
            fronts => found.push(format!(
                "partition {key} of {} has {} fronts",
                all.len(),
                fronts.len()
            )),
        }
    }
    found
}

/// A parent counts exactly the children of its last barrier that have not ended, and a workflow all of its children
/// that have not (rules 10.1, 10.2).
fn of_families(instances: &[Instance]) -> Vec<String> {
    let mut living: BTreeMap<_, u32> = BTreeMap::new();
    for child in instances.iter().filter(|one| !one.status.is_terminal()) {
        if let Some(parent) = child.parent {
            *living.entry((parent, None)).or_default() += 1;
            let barrier = Some(child.parent_barrier);
            *living.entry((parent, barrier)).or_default() += 1;
        }
    }
    let mut found = Vec::new();
    for parent in instances.iter().filter(|one| !one.status.is_terminal()) {
        let barrier = (parent.kind == Kind::Machine).then_some(parent.family.barrier);
        let real = living.get(&(parent.id, barrier)).copied().unwrap_or(0);
        if parent.family.pending != real {
            let (id, counted) = (parent.id, parent.family.pending);
            found.push(format!(
                "instance {id} counts {counted} children, and {real} have not ended"
            ));
        }
    }
    found
}
