//! Converting a start to a row.

use super::retry;
use crate::model::{
    Awaits, BarrierNumber, Cause, Command, CommandId, CommandStatus, Contracted, Declared,
    HandedSignal, HistoryEvent, Inbox, InstanceId, Json, Key, Kind, Limits, Name, NewRow, Priority,
    Refusal, ResumeSource, Row, Run, Scope, Sequence, Start, Status, Timestamp, WaitKind,
};

/// The step that an instance begins at if neither the start nor a declaration names one.
const FIRST_STEP: &str = "start";
/// The queue of an instance if neither names one.
const QUEUE: &str = "default";

/// Converts a start to a row. Omitted fields are taken from the newest declaration of the machine that matches, or else
/// version 1, step `start`, queue `default`, history on (rule 2.6: a machine that no worker has declared may be
/// started).
pub fn row(
    start: &Start,
    declared: &[Declared],
    parent: Option<(InstanceId, BarrierNumber)>,
    limits: &Limits,
    now: Timestamp,
) -> Result<NewRow, Refusal> {
    limits.check_state(&start.state)?;
    for scope in [start.scope, start.unique_scope] {
        // Claiming moves many rows at once from runnable to executing; none of them may need a key that is taken.
        if scope.holds(Status::Executing) && !scope.holds(Status::Runnable) {
            return Err(Refusal::BadScope);
        }
    }
    let declared = newest(start, declared);
    let version = start
        .version
        .or(declared.map(|found| found.version))
        .unwrap_or(1);
    if version == 0 || i32::try_from(version).is_err() {
        return Err(Refusal::BadVersion { version });
    }
    let due_at = start.when.due(now);
    let kind = start
        .kind
        .or(declared.map(|found| found.kind))
        .unwrap_or_default();
    if let Some(policy) = &start.policy {
        retry::check_own(policy, kind)?;
    }
    Ok(NewRow {
        kind,
        machine: start.machine.clone(),
        version,
        step: given_or(
            &start.step,
            declared.map(|found| &found.first_step),
            FIRST_STEP,
        ),
        state: start.state.clone(),
        status: if due_at > now {
            Status::Scheduled
        } else {
            Status::Runnable
        },
        cause: Cause::Start,
        key: start.key.clone(),
        scope: start.scope,
        unique_key: start.unique_key.clone(),
        unique_scope: start.unique_scope,
        queue: given_or(&start.queue, declared.map(|found| &found.queue), QUEUE),
        priority: start.priority,
        due_at,
        partition_key: start.partition_key.clone(),
        // rule 6.3: it is behind until the partition is settled, in the same commit.
        behind: start.partition_key.is_some(),
        parent: parent.map(|(id, _)| id),
        parent_barrier: parent.map(|(_, barrier)| barrier).unwrap_or_default(),
        // rule 16.1: a workflow always has a history.
        history: kind == Kind::Workflow
            || start
                .history
                .or(declared.map(|found| found.history))
                .unwrap_or(true),
        contract: match &start.contract {
            Contracted::Of(contract) => Some(*contract),
            Contracted::Given(contract) => Some(contract.id()),
            Contracted::Free => None,
            Contracted::Declared => declared.and_then(|found| found.contract),
        },
        policy: start.policy.clone().filter(|policy| !policy.is_empty()),
        run: Run::default(),
        inbox: Inbox::default(),
        created_at: now,
    })
}

/// Returns the row of an instance that has a key and no run yet (rule 2.7). The values that a run needs are set when it
/// starts.
pub fn reservation(machine: &Name, key: &Key, now: Timestamp) -> NewRow {
    NewRow {
        kind: Kind::Machine,
        machine: machine.clone(),
        version: 1,
        step: Name::stored(FIRST_STEP),
        state: Json::null(),
        status: Status::Reserved,
        cause: Cause::Start,
        key: Some(key.clone()),
        scope: Scope::LIVE,
        unique_key: None,
        unique_scope: Scope::LIVE,
        queue: Name::stored(QUEUE),
        priority: Priority::default(),
        due_at: now,
        partition_key: None,
        behind: false,
        parent: None,
        parent_barrier: BarrierNumber::default(),
        history: true,
        contract: None,
        policy: None,
        run: Run::default(),
        inbox: Inbox::default(),
        created_at: now,
    }
}

/// Returns the row of the run that follows another in its chain (rules 2.4 and 11.2): the same values, but begun at
/// that step, with the pending commands of its inbox.
pub fn successor(last: &NewRow, of: &Row, step: &Name, state: Json, now: Timestamp) -> NewRow {
    NewRow {
        step: step.clone(),
        state,
        status: Status::Runnable,
        cause: Cause::Start,
        due_at: now,
        behind: last.partition_key.is_some(),
        run: Run {
            number: of.run.number.saturating_add(1),
            first: Some(of.chain()),
        },
        inbox: Inbox {
            handed: Sequence::default(),
            // rule 7.1: commands that move on get new numbers, before all that arrive later.
            commands: Sequence(i64::from(of.inbox.signals) + i64::from(of.inbox.updates)),
            ..of.inbox
        },
        created_at: now,
        ..last.clone()
    }
}

/// The signals that a restarted run is handed again.
#[derive(Debug, PartialEq, Eq)]
pub struct HandedAgain {
    /// The copied records, which belong to the new run.
    pub copies: Vec<Command>,
    /// The event to write into its history.
    pub history_event: Option<HistoryEvent>,
}

/// Hands a new run the signals that the last step of the failed one was handed, each as a new record with its own id
/// (rule 11.2). They take the next positions in the chain, so they come before all that is sent later.
pub fn hand_again(
    row: &mut Row,
    failed: &Row,
    signals: Vec<(Command, CommandId)>,
    now: Timestamp,
) -> HandedAgain {
    let mut copies = Vec::with_capacity(signals.len());
    let mut handed = Vec::with_capacity(signals.len());
    for (signal, id) in signals {
        row.inbox.sequence = Sequence(row.inbox.sequence.0.saturating_add(1));
        row.inbox.signals = row.inbox.signals.saturating_add(1);
        let bytes = signal.arguments.size() as u64;
        row.inbox.bytes = row.inbox.bytes.saturating_add(bytes);
        handed.push(HandedSignal {
            command_id: id,
            copy_of: signal.id,
            name: signal.name.clone(),
            message_sequence: row.inbox.sequence,
        });
        copies.push(Command {
            id,
            status: CommandStatus::Received,
            instance: Some(row.id),
            sequence: Some(row.inbox.sequence),
            command_sequence: Some(row.inbox.number_command()),
            // The first record has the dedup key, and counts for the whole chain.
            dedup_key: None,
            step_sequence: None,
            closed_at: None,
            ..signal
        });
    }
    row.timed_out = failed.timed_out;
    if let Some(first) = copies.first() {
        let mut names: Vec<Name> = copies.iter().map(|one| one.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let kind = match names.iter().all(|name| name.event_type().is_some()) {
            true => WaitKind::Event,
            false => WaitKind::Signal,
        };
        let source = ResumeSource::command(first.id, first.kind, &first.name);
        row.awaits = Some(Awaits {
            resumed: Some(source),
            ..Awaits::new(kind, names, now, first.wait_id.clone())
        });
        row.inbox.handed = row.inbox.sequence;
    }
    let history_event = (!handed.is_empty()).then_some(HistoryEvent::HandedAgain {
        run_id: failed.id,
        signals: handed,
        children: 0,
    });
    HandedAgain {
        copies,
        history_event,
    }
}

/// Returns the declaration that applies to a start: that of its version if it names one, otherwise the newest.
fn newest<'a>(start: &Start, declared: &'a [Declared]) -> Option<&'a Declared> {
    let of_machine = declared
        .iter()
        .filter(|found| found.machine == start.machine);
    of_machine
        .filter(|found| start.version.is_none_or(|wanted| wanted == found.version))
        .max_by_key(|found| found.version)
}

fn given_or(given: &Option<Name>, declared: Option<&Name>, plain: &'static str) -> Name {
    given
        .as_ref()
        .or(declared)
        .cloned()
        .unwrap_or_else(|| Name::stored(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::When;
    use std::time::Duration;

    fn declared(version: u32, step: &str) -> Declared {
        Declared {
            kind: Kind::Machine,
            machine: Name::stored("m"),
            version,
            first_step: Name::stored(step),
            queue: Name::stored("slow"),
            history: false,
            contract: None,
            retry: None,
            step_timeout_ms: None,
            max_deaths: None,
        }
    }

    fn resolved(start: &Start, declared: &[Declared]) -> NewRow {
        row(
            start,
            declared,
            None,
            &Limits::default(),
            Timestamp::from_micros(10),
        )
        .unwrap()
    }

    #[test]
    fn what_is_left_out_comes_from_the_newest_declaration() {
        // rule 2.6
        let start = Start::of(Name::stored("m"), Json::null());
        let row = resolved(
            &start,
            &[declared(1, "old"), declared(3, "new"), declared(2, "mid")],
        );
        assert_eq!(
            (
                row.version,
                row.step.as_str(),
                row.queue.as_str(),
                row.history
            ),
            (3, "new", "slow", false)
        );
        let pinned = Start {
            version: Some(1),
            ..start
        };
        assert_eq!(
            resolved(&pinned, &[declared(1, "old"), declared(3, "new")])
                .step
                .as_str(),
            "old"
        );
    }

    #[test]
    fn an_undeclared_machine_starts_with_the_defaults() {
        // rule 2.6
        let row = resolved(&Start::of(Name::stored("m"), Json::null()), &[]);
        assert_eq!(
            (
                row.version,
                row.step.as_str(),
                row.queue.as_str(),
                row.history
            ),
            (1, "start", "default", true)
        );
    }

    #[test]
    fn what_is_due_later_is_scheduled_and_what_was_due_before_is_not() {
        let start = |when| Start {
            when,
            ..Start::of(Name::stored("m"), Json::null())
        };
        assert_eq!(
            resolved(&start(When::After(Duration::from_secs(1))), &[]).status,
            Status::Scheduled
        );
        assert_eq!(
            resolved(&start(When::At(Timestamp::from_micros(3))), &[]).status,
            Status::Runnable
        );
        assert_eq!(
            resolved(&start(When::After(Duration::MAX)), &[]).due_at,
            Timestamp::MAX
        );
    }

    #[test]
    fn a_scope_that_a_claim_could_break_is_refused() {
        // rule 2.2
        let limits = Limits::default();
        let refused = |scope: &[Status]| {
            let scope = scope.iter().copied().collect();
            let start = Start {
                unique_scope: scope,
                ..Start::of(Name::stored("m"), Json::null())
            };
            row(&start, &[], None, &limits, Timestamp::default()).is_err()
        };
        assert!(refused(&[Status::Executing]) && refused(&[Status::Executing, Status::Done]));
        assert!(!refused(&[Status::Runnable, Status::Scheduled]) && !refused(&[]));
        assert!(!refused(&[Status::Executing, Status::Runnable]));
    }

    #[test]
    fn version_zero_is_refused() {
        let start = Start {
            version: Some(0),
            ..Start::of(Name::stored("m"), Json::null())
        };
        let refusal = row(&start, &[], None, &Limits::default(), Timestamp::default()).unwrap_err();
        assert_eq!(refusal.reason(), "bad_version");
    }
}
