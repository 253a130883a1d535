//! What row a start becomes.

use crate::model::{
    BarrierNumber, Cause, Contracted, Declared, Inbox, InstanceId, Json, Key, Kind, Limits, Name,
    NewRow, Priority, Refusal, Row, Run, Scope, Sequence, Start, Status, Timestamp,
};

/// The step an instance begins at when neither the start nor a declaration says.
const FIRST_STEP: &str = "start";
/// The queue it waits in then.
const QUEUE: &str = "default";

/// The row that a start becomes. What it leaves out is taken from the newest declaration of the machine that fits, else
/// version 1, step `start`, queue `default`, history on (rule 2.6: a machine that nobody has declared may be started).
pub fn row(
    start: &Start,
    declared: &[Declared],
    parent: Option<(InstanceId, BarrierNumber)>,
    limits: &Limits,
    now: Timestamp,
) -> Result<NewRow, Refusal> {
    limits.check_state(&start.state)?;
    for scope in [start.scope, start.unique_scope] {
        // Claiming moves many rows at once from runnable to executing; none of them may meet a key that is taken.
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
        // rule 6.3: it stands behind until the partition is settled, in the same commit.
        behind: start.partition_key.is_some(),
        parent: parent.map(|(id, _)| id),
        parent_barrier: parent.map(|(_, barrier)| barrier).unwrap_or_default(),
        // rule 16.1: a workflow is its history.
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
        run: Run::default(),
        inbox: Inbox::default(),
        created_at: now,
    })
}

/// The row of an instance that has a key and no run yet (rule 2.7). What a run needs is told when it starts.
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
        run: Run::default(),
        inbox: Inbox::default(),
        created_at: now,
    }
}

/// The row of the run that follows another in its chain (rules 2.4 and 11.2): what it was, begun anew at that step with
/// what is pending in its inbox.
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
            ..of.inbox
        },
        created_at: now,
        ..last.clone()
    }
}

/// The declaration that speaks for a start: of its version when it names one, else the newest.
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
    fn what_nobody_declared_starts_all_the_same() {
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
