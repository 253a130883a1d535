//! The invariants of messages in every store, at every moment: the rows count them, the records show where they are,
//! and the histories record each once.

use std::collections::BTreeMap;

use abide_core::model::{
    Command, CommandId, CommandKind, CommandStatus, Entry, HistoryEvent, Instance, InstanceId,
    Kind, Row, Sequence, Status, WaitId, WaitKind,
};

/// Finds what breaks an invariant in these instances and these records. `whole` is true if they are all that a store
/// has; then what they must be to each other is checked too.
pub fn of_messages(instances: &[Instance], records: &[Command], whole: bool) -> Vec<String> {
    let mut found: Vec<String> = records.iter().filter_map(of_record).collect();
    found.extend(instances.iter().flat_map(of_inbox));
    if whole {
        found.extend(of_counts(instances, records));
        found.extend(of_chains(instances, records));
        found.extend(of_waits(instances, records));
        found.extend(of_runs(instances, records));
    }
    found
}

/// Checks the other columns of a record against its status (rules 7.6 and 9.2).
fn of_record(record: &Command) -> Option<String> {
    use CommandStatus::{Applied, Completed, Discarded, Expired, Failed, Held, Received, Rejected};
    let Command { id, status, .. } = record;
    let accepted = !matches!(status, Held | Expired | Rejected);
    let open = matches!(status, Held | Received | CommandStatus::Accepted);
    let of_signal = matches!(status, Held | Received | Applied | Discarded | Expired);
    let of_update = matches!(status, CommandStatus::Accepted | Completed | Failed);
    let checks = [
        (
            !accepted || record.instance.is_some() && record.chain.is_some(),
            "has a run when it was accepted",
        ),
        (
            accepted == record.sequence.is_some(),
            "has a sequence exactly if it was accepted",
        ),
        (
            open == record.closed_at.is_none(),
            "is closed at a time exactly if it is over",
        ),
        (
            (*status == Rejected) == record.rejection.is_some(),
            "says why exactly if it was refused",
        ),
        (
            !of_signal || record.kind == CommandKind::Signal,
            "is a signal by its status",
        ),
        (
            !of_update || record.kind != CommandKind::Signal,
            "is an update or a cancellation by its status",
        ),
        (
            (*status == Applied) <= (record.step_sequence.is_some() && record.wait_id.is_some()),
            "says which step and wait took it",
        ),
        (
            (*status == Failed) == record.error.is_some(),
            "says what it failed of",
        ),
        (
            (*status == Held) <= (record.hold_until.is_some() && record.key.is_some()),
            "is held for a key until some time",
        ),
    ];
    let (_, rule) = checks.into_iter().find(|(holds, _)| !holds)?;
    Some(format!(
        "record {id} ({status}) is one of which it is not true that it {rule}"
    ))
}

/// Checks the columns of an instance that describe its inbox.
fn of_inbox(instance: &Instance) -> Vec<String> {
    let Row { id, status, .. } = &instance.row;
    let inbox = instance.inbox;
    let runs = matches!(status, Status::Runnable | Status::Executing);
    let checks = [
        (
            inbox.cursor <= inbox.sequence,
            "has consumed no more than came",
        ),
        (
            inbox.handed <= inbox.sequence,
            "is handed no more than came",
        ),
        (
            instance.aside.is_none() || runs || instance.is_blocked() || instance.is_recovering(),
            "is aside only when it runs for updates, or cannot",
        ),
        (
            instance.aside.is_none() || inbox.updates > 0,
            "is aside only for updates that there are",
        ),
        (
            !is_parked(instance) || inbox.updates == 0 || instance.kind == Kind::Workflow,
            "does not sleep while an update is pending",
        ),
        (
            !status.is_terminal() || (inbox.signals, inbox.updates) == (0, 0),
            "has nothing pending when it has ended",
        ),
        (
            instance.resume_source().is_none()
                || instance.wait_kind().is_some()
                    && !matches!(status, Status::AwaitingSignal | Status::AwaitingChildren),
            "was woken from a wait only when it waits no more",
        ),
        (
            has_distinct_waits(instance),
            "has an id for each of its waits",
        ),
    ];
    let broken = checks.into_iter().filter(|(holds, _)| !holds);
    broken
        .map(|(_, rule)| {
            format!("instance {id} ({status}) is one of which it is not true that it {rule}")
        })
        .collect()
}

/// True if it sleeps, and can be woken by a message.
fn is_parked(instance: &Instance) -> bool {
    let parked = matches!(
        instance.status,
        Status::Scheduled | Status::AwaitingSignal | Status::AwaitingChildren
    );
    // rule 5.6: what comes to one whose workers died waits with it.
    parked && !instance.is_blocked() && !instance.is_recovering()
}

fn has_distinct_waits(instance: &Instance) -> bool {
    let mut ids: Vec<&WaitId> = instance.waits().iter().map(|wait| &wait.id).collect();
    ids.sort_unstable();
    ids.windows(2).all(|pair| pair[0] != pair[1])
}

/// The commands of a run have numbers of their own, up to the last that it has given out: all of them as long as it lives,
/// and none of its records are deleted (rule 7.1). What waits for a message has the id that this was received under
/// (rule 7.6).
fn of_runs(instances: &[Instance], records: &[Command]) -> Vec<String> {
    let mut found = Vec::new();
    let mut numbers: BTreeMap<InstanceId, Vec<i64>> = BTreeMap::new();
    let mut received: BTreeMap<CommandId, &Command> = BTreeMap::new();
    for record in records {
        match (record.instance, record.command_sequence) {
            (Some(run), Some(number)) => numbers.entry(run).or_default().push(number.0),
            (None, None) => {}
            _ => found.push(format!(
                "record {} has a number without a run, or none",
                record.id
            )),
        }
        if record.status == CommandStatus::Received {
            received.insert(record.id, record);
        }
    }
    for run in instances {
        let mut given = numbers.remove(&run.id).unwrap_or_default();
        given.sort_unstable();
        let last = run.inbox.commands.0;
        let doubled = given.windows(2).any(|pair| pair[0] == pair[1]);
        let gaps = !run.status.is_terminal() && given != (1..=last).collect::<Vec<_>>();
        if doubled || gaps || given.last().is_some_and(|number| *number > last) {
            let id = run.id;
            found.push(format!(
                "instance {id}: of {last} commands there are {given:?}"
            ));
        }
        for wait in run.waits() {
            let taken = wait.command_id.and_then(|id| received.get(&id));
            if taken.is_some_and(|record| record.wait_id.as_ref() != Some(&wait.id)) {
                let (id, wait) = (run.id, &wait.id);
                found.push(format!("instance {id}: {wait} takes what has another id"));
            }
        }
    }
    found
}

/// An instance counts exactly what is pending, and what is pending belongs to an instance that lives.
fn of_counts(instances: &[Instance], records: &[Command]) -> Vec<String> {
    let mut found = Vec::new();
    let mut counts: BTreeMap<InstanceId, (u32, u32)> = BTreeMap::new();
    let mut newest: BTreeMap<InstanceId, Sequence> = BTreeMap::new();
    for record in records.iter().filter(|one| one.status.is_pending()) {
        let id = record.instance.unwrap_or_default();
        let (signals, updates) = counts.entry(id).or_default();
        match record.kind {
            CommandKind::Signal => *signals += 1,
            CommandKind::Update | CommandKind::Cancel => {
                *updates += 1;
                let newest = newest.entry(id).or_default();
                *newest = (*newest).max(record.sequence.unwrap_or_default());
            }
        }
    }
    for instance in instances {
        // rule 9.1: a workflow may sleep beside updates that its code knows of: all that had come when it parked.
        let unknown = newest.get(&instance.id).copied();
        if is_parked(instance) && unknown.is_some_and(|at| at > instance.inbox.handed) {
            found.push(format!(
                "instance {} sleeps while an update is pending that its code does not know of",
                instance.id
            ));
        }
        let pending = counts.remove(&instance.id).unwrap_or_default();
        let counted = (instance.inbox.signals, instance.inbox.updates);
        if pending != counted {
            found.push(format!(
                "instance {} counts {counted:?} signals and updates, and {pending:?} are pending",
                instance.id
            ));
        }
    }
    let orphans = counts.into_keys();
    found.extend(orphans.map(|id| format!("messages are pending with {id}, which is not there")));
    found
}

/// No workflow waits for a signal that is there: its code takes what it waits for (rules 7.1 and 12.2).
fn of_waits(instances: &[Instance], records: &[Command]) -> Vec<String> {
    let waits = |one: &&Instance| {
        one.kind == Kind::Workflow
            && one.status == Status::AwaitingSignal
            && matches!(one.wait_kind(), Some(WaitKind::Signal | WaitKind::Event))
    };
    let waiting: BTreeMap<InstanceId, &Instance> = instances
        .iter()
        .filter(waits)
        .map(|one| (one.id, one))
        .collect();
    let there = |record: &&Command| record.status == CommandStatus::Received;
    let missed = records.iter().filter(there).filter_map(|record| {
        let parked = waiting.get(&record.instance?)?;
        parked.awaited().contains(&record.name).then(|| {
            let (id, name) = (parked.id, &record.name);
            format!("workflow {id} waits for {name}, and {} is there", record.id)
        })
    });
    missed.collect()
}

/// Of a chain only the newest run may live; the sequences of what it accepted are 1, 2, 3 … (rules 2.4 and 7.1).
fn of_chains(instances: &[Instance], records: &[Command]) -> Vec<String> {
    let mut found = Vec::new();
    let mut sequences: BTreeMap<InstanceId, Vec<i64>> = BTreeMap::new();
    for record in records {
        if let (Some(chain), Some(sequence)) = (record.chain, record.sequence) {
            sequences.entry(chain).or_default().push(sequence.0);
        }
    }
    for (chain, runs) in chains(instances) {
        let Some(newest) = runs.last() else { continue };
        for run in runs.iter().filter(|run| run.id != newest.id) {
            if !run.status.is_terminal() {
                found.push(format!(
                    "chain {chain}: run {} lives, and is not the newest",
                    run.id
                ));
            }
            if run.run.number >= newest.run.number {
                found.push(format!(
                    "chain {chain}: two runs are number {}",
                    run.run.number
                ));
            }
        }
        let mut accepted = sequences.remove(&chain).unwrap_or_default();
        accepted.sort_unstable();
        let doubled = accepted.windows(2).any(|pair| pair[0] == pair[1]);
        let last = newest.inbox.sequence.0;
        // What belonged to runs that were deleted is gone with them.
        let gaps = is_complete(&runs) && accepted != (1..=last).collect::<Vec<_>>();
        if doubled || gaps || accepted.last().is_some_and(|accepted| *accepted > last) {
            found.push(format!(
                "chain {chain}: of {last} messages there are {accepted:?}"
            ));
        }
    }
    found
}

/// The runs of each chain, oldest first.
fn chains(instances: &[Instance]) -> BTreeMap<InstanceId, Vec<&Instance>> {
    let mut chains: BTreeMap<InstanceId, Vec<&Instance>> = BTreeMap::new();
    for instance in instances {
        chains.entry(instance.chain()).or_default().push(instance);
    }
    for runs in chains.values_mut() {
        runs.sort_unstable_by_key(|run| run.id);
    }
    chains
}

/// True if no run of a chain was deleted. The newest may be deleted before the others when a clock has stepped back.
fn is_complete(runs: &[&Instance]) -> bool {
    runs.last()
        .is_some_and(|newest| newest.status != Status::Continued)
        && runs
            .iter()
            .map(|run| run.run.number)
            .eq(1..=runs.len() as u32)
}

/// The events of messages, counted over histories.
#[derive(Default)]
pub struct Tallies(BTreeMap<CommandId, Tally>);

/// The number of events of each kind of one message.
#[derive(Default, Debug, PartialEq, Eq)]
struct Tally {
    came: u32,
    applied: u32,
    discarded: u32,
    completed: u32,
    failed: u32,
}

impl Tallies {
    /// Takes in the history of one instance.
    pub fn note(&mut self, entries: &[Entry]) {
        for entry in entries {
            match entry.what {
                HistoryEvent::SignalReceived { command_id: id, .. }
                | HistoryEvent::EventMatched { command_id: id, .. }
                | HistoryEvent::UpdateAccepted { update_id: id, .. }
                | HistoryEvent::CancelRequested { command_id: id, .. } => self.tally(id).came += 1,
                HistoryEvent::HandedAgain { ref signals, .. } => {
                    for signal in signals {
                        self.tally(signal.command_id).came += 1;
                    }
                }
                HistoryEvent::SignalApplied { command_id, .. } => {
                    self.tally(command_id).applied += 1
                }
                HistoryEvent::SignalDiscarded { command_id, .. } => {
                    self.tally(command_id).discarded += 1;
                }
                HistoryEvent::UpdateCompleted { update_id, .. } => {
                    self.tally(update_id).completed += 1;
                }
                HistoryEvent::UpdateFailed { update_id, .. } => self.tally(update_id).failed += 1,
                _ => {}
            }
        }
    }

    fn tally(&mut self, id: CommandId) -> &mut Tally {
        self.0.entry(id).or_default()
    }

    /// Finds where the histories differ from the records, in chains of which nothing was deleted: each message that was
    /// accepted came once, and went once or is pending (rules 4.1, 9.2 and 16.1).
    pub fn unlike(&self, instances: &[Instance], records: &[Command]) -> Vec<String> {
        let chains = chains(instances);
        let has_whole_history = |record: &&Command| {
            let runs = record.chain.and_then(|chain| chains.get(&chain));
            runs.is_some_and(|runs| is_complete(runs) && runs.iter().all(|run| run.history))
        };
        let mut found = Vec::new();
        for record in records.iter().filter(has_whole_history) {
            let is = |status| u32::from(record.status == status);
            // The outcome of a cancellation is recorded by the end of its instance.
            let answered = u32::from(record.kind != CommandKind::Cancel);
            let expected = Tally {
                came: u32::from(record.sequence.is_some()),
                applied: is(CommandStatus::Applied),
                discarded: is(CommandStatus::Discarded),
                completed: answered * is(CommandStatus::Completed),
                failed: answered * is(CommandStatus::Failed),
            };
            let counted = self.0.get(&record.id);
            let is_same = match counted {
                Some(counted) => *counted == expected,
                None => expected == Tally::default(),
            };
            if !is_same {
                found.push(format!(
                    "record {} is {}, and its history has {counted:?}",
                    record.id, record.status
                ));
            }
        }
        found
    }
}
