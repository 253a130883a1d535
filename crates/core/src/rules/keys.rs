//! Which changes of status take a key, and what becomes of an instance that finds it taken (rule 2.8).

use super::commit::end;
use super::inbox::{self, Closed};
use crate::model::{
    AnyKey, Cause, CommandKind, Happening, InstanceId, Limits, Outcome, Pending, Refusal, Row,
    Scope, Scopes, Status, Then, Timestamp,
};

/// Which keys a change of status is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concerns {
    /// The key.
    pub key: bool,
    /// The unique key.
    pub unique_key: bool,
}

impl Concerns {
    /// Whether it is about any.
    pub const fn any(self) -> bool {
        self.key || self.unique_key
    }

    /// Whether it is about that one.
    pub const fn has(self, key: &AnyKey) -> bool {
        match key {
            AnyKey::Key(_) => self.key,
            AnyKey::UniqueKey(_) => self.unique_key,
        }
    }
}

/// The keys that a row holds.
pub const fn held(row: &Row) -> Concerns {
    Concerns {
        key: row.scopes.key.holds(row.status),
        unique_key: row.scopes.unique_key.holds(row.status),
    }
}

/// The keys that are held on behalf of a row once its change is written: of a run that another follows, by the first row of
/// that one, which is runnable.
pub const fn held_on(row: &Row) -> Concerns {
    let status = match row.status {
        Status::Continued => Status::Runnable,
        status => status,
    };
    Concerns {
        key: row.scopes.key.holds(status),
        unique_key: row.scopes.unique_key.holds(status),
    }
}

/// The keys that a row holds and did not hold before.
pub const fn taking(was: &Row, row: &Row) -> Concerns {
    let (before, after) = (held(was), held(row));
    Concerns {
        key: after.key && !before.key,
        unique_key: after.unique_key && !before.unique_key,
    }
}

/// What becomes of an instance that would take a key which another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It gives the key up, and all else is as it would have been.
    GivesUp,
    /// It ends as failed.
    Fails,
}

/// What becomes of a row whose change would take a key that another holds.
///
/// What ends anyway ends as it would have. What only goes back into its queue, because its claim was returned or because
/// its next step is due, goes on: whether the engine let it keep its claim must not decide whether it fails.
pub fn fate(was: &Row, row: &Row) -> Fate {
    let queued = was.status == Status::Executing && row.status == Status::Runnable;
    let same_step = row.step_seq == was.step_seq && row.cause != Cause::Retry;
    match row.status {
        Status::Failed | Status::Cancelled => Fate::GivesUp,
        _ if queued && (row.cause == Cause::Next || same_step) => Fate::GivesUp,
        _ => Fate::Fails,
    }
}

/// What becomes of an outcome that would take a key which another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It is refused, and its error handler is asked for another (rule 4.2).
    Refused,
    /// It failed, and is not tried again.
    Stopped,
    /// It is committed: what its [`fate`] is, is seen when the row is written.
    Committed,
}

/// What becomes of an outcome that would take a key which another holds, and leave its row so.
pub fn judge(outcome: &Outcome, was: &Row, ahead: &Row) -> Judged {
    match outcome {
        // The step did not run: it only goes back to where it stood.
        Outcome::Answer { then: None, .. } => return Judged::Committed,
        Outcome::Fail { .. } if was.aside.is_some() => return Judged::Committed,
        _ => {}
    }
    match (fate(was, ahead), outcome.last()) {
        (Fate::GivesUp, _) if !continues(outcome) => Judged::Committed,
        (_, Outcome::Fail { .. }) => Judged::Stopped,
        _ => Judged::Refused,
    }
}

/// Whether an outcome is followed by a new run, which takes its keys as it starts.
pub fn continues(outcome: &Outcome) -> bool {
    match outcome.last() {
        Outcome::ContinueAsNew { .. } => true,
        Outcome::Workflow(turn) => matches!(turn.then, Then::ContinueAsNew { .. }),
        _ => false,
    }
}

/// Gives up a key that another holds. One that has ended does not hold it in that status, and one that has not does not
/// in any before its end: how it ends is another matter, and looked at then.
pub fn give_up(row: &mut Row, key: AnyKey, holder: InstanceId) -> Happening {
    let given_up = match row.status.is_terminal() {
        true => Scope::NEVER.and(row.status),
        false => Scope::LIVE,
    };
    row.scopes = row.scopes.without(match key {
        AnyKey::Key(_) => Scopes {
            key: given_up,
            ..Scopes::NONE
        },
        AnyKey::UniqueKey(_) => Scopes {
            unique_key: given_up,
            ..Scopes::NONE
        },
    });
    Happening::KeyGivenUp { key, holder }
}

/// Ends a row as failed whose change would have taken a key that another holds; as cancelled, if its code was to be told
/// of that. Nobody will take what is pending.
pub fn fail(
    row: &mut Row,
    taken: &Refusal,
    pending: &[Pending],
    limits: &Limits,
    now: Timestamp,
) -> Closed {
    let error = limits.cut_error(&taken.to_string());
    let cancels = |one: &Pending| one.kind == CommandKind::Cancel;
    let (status, told) = match pending.iter().any(cancels) {
        true => (
            Status::Cancelled,
            Happening::Cancelled {
                reason: error.clone(),
            },
        ),
        false => (
            Status::Failed,
            Happening::Failed {
                error: error.clone(),
            },
        ),
    };
    let mut closed = inbox::discard(row, pending, status);
    end(row, status, now);
    row.last_error = Some(error);
    closed.told.push(told);
    closed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BarrierNumber, Epoch, Family, Inbox, Kind, Name, Priority, Run};

    fn row(status: Status, scope: &[Status]) -> Row {
        Row {
            id: InstanceId(1),
            kind: Kind::Machine,
            status,
            scopes: Scopes {
                key: scope.iter().copied().collect(),
                unique_key: Scope::NEVER,
            },
            step: Name::stored("start"),
            step_seq: 1,
            attempt: 0,
            queue: Name::stored("default"),
            priority: Priority::default(),
            due_at: None,
            partition_key: None,
            behind: false,
            worker: None,
            lease: None,
            epoch: Epoch(1),
            settled: Epoch(0),
            cause: Cause::Start,
            timed_out: false,
            awaits: None,
            attended: Vec::new(),
            aside: None,
            inbox: Inbox::default(),
            contract: None,
            run: Run::default(),
            parent: None,
            parent_barrier: BarrierNumber::default(),
            family: Family::default(),
            history: true,
            history_seq: 1,
            last_error: None,
            finished_at: None,
        }
    }

    #[test]
    fn a_key_is_taken_where_a_scope_is_entered_and_nowhere_else() {
        // rule 2.8
        let scopes: [&[Status]; 3] = [&[], &[Status::Done], &[Status::Scheduled, Status::Runnable]];
        for scope in scopes {
            for (was, is) in Status::ALL
                .iter()
                .flat_map(|was| Status::ALL.map(|is| (*was, is)))
            {
                let taken = taking(&row(was, scope), &row(is, scope));
                let expected = !scope.contains(&was) && scope.contains(&is);
                assert_eq!((taken.key, taken.unique_key), (expected, false));
            }
        }
        // Of the default scope, none that an instance can come to after its start.
        for is in Status::ALL {
            let live = |status| Row {
                scopes: Scopes {
                    key: Scope::LIVE,
                    unique_key: Scope::ALWAYS,
                },
                ..row(status, &[])
            };
            assert!(!taking(&live(Status::Executing), &live(is)).any());
        }
    }

    #[test]
    fn what_goes_back_to_its_queue_gives_its_key_up_and_what_is_woken_fails() {
        // rule 2.8
        let executing = row(Status::Executing, &[]);
        let queued = |cause, step_seq| Row {
            cause,
            step_seq,
            ..row(Status::Runnable, &[])
        };
        for (is, expected) in [
            (queued(Cause::Reclaim, 1), Fate::GivesUp),
            (queued(Cause::Signal, 1), Fate::GivesUp),
            (queued(Cause::Next, 2), Fate::GivesUp),
            (queued(Cause::Retry, 1), Fate::Fails),
            (queued(Cause::Signal, 2), Fate::Fails),
            (queued(Cause::Children, 2), Fate::Fails),
            (row(Status::Done, &[]), Fate::Fails),
            (row(Status::AwaitingSignal, &[]), Fate::Fails),
            (row(Status::Failed, &[]), Fate::GivesUp),
            (row(Status::Cancelled, &[]), Fate::GivesUp),
        ] {
            assert_eq!(fate(&executing, &is), expected, "{is:?}");
        }
        let waiting = row(Status::AwaitingSignal, &[]);
        assert_eq!(fate(&waiting, &queued(Cause::Signal, 1)), Fate::Fails);
    }

    #[test]
    fn a_key_that_is_given_up_is_held_again_only_at_another_end() {
        // rule 2.8
        let key = || AnyKey::Key(crate::model::Key::stored("k"));
        let mut lives = row(
            Status::Runnable,
            &[Status::Runnable, Status::Executing, Status::Done],
        );
        give_up(&mut lives, key(), InstanceId(2));
        assert_eq!(lives.scopes.key, Scope::NEVER.and(Status::Done));
        let mut ended = row(Status::Failed, &[Status::Failed, Status::Done]);
        give_up(&mut ended, key(), InstanceId(2));
        assert_eq!(ended.scopes.key, Scope::NEVER.and(Status::Done));
    }
}
