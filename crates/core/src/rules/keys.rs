//! Changes of status that take a key, and the handling of an instance whose key is taken (rule 2.8).

use super::commit::end;
use super::inbox::{self, Closed};
use crate::model::{
    AnyKey, Cause, CommandKind, HistoryEvent, InstanceId, Limits, Outcome, Pending, Refusal, Row,
    Scope, Scopes, Status, Then, Timestamp,
};

/// The keys that a change of status concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concerns {
    /// The key.
    pub key: bool,
    /// The unique key.
    pub unique_key: bool,
}

impl Concerns {
    /// `true` if it concerns any key.
    pub const fn any(self) -> bool {
        self.key || self.unique_key
    }

    /// `true` if it concerns that key.
    pub const fn has(self, key: &AnyKey) -> bool {
        match key {
            AnyKey::Key(_) => self.key,
            AnyKey::UniqueKey(_) => self.unique_key,
        }
    }
}

/// Returns the keys that a row holds.
pub const fn held(row: &Row) -> Concerns {
    Concerns {
        key: row.scopes.key.holds(row.status),
        unique_key: row.scopes.unique_key.holds(row.status),
    }
}

/// Returns the keys that are held for a row after its change is written. If another run follows, the first row of that
/// run, which is runnable, holds them.
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

/// Returns the keys that a row holds and did not hold before.
pub const fn taking(was: &Row, row: &Row) -> Concerns {
    let (before, after) = (held(was), held(row));
    Concerns {
        key: after.key && !before.key,
        unique_key: after.unique_key && !before.unique_key,
    }
}

/// The consequence for an instance that would take a key that another instance holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It gives the key up; nothing else changes.
    GivesUp,
    /// It ends as `failed`.
    Fails,
}

/// Decides the consequence for a row whose change would take a key that another instance holds.
///
/// A row that ends anyway ends as it would have. A row that only goes back into its queue, because its claim was
/// returned or because its next step is due, continues: it must not depend on whether the engine let it keep its claim.
pub fn fate(was: &Row, row: &Row) -> Fate {
    // rule 5.6: a row may pause on its way back to the queue.
    let queued = match was.status {
        Status::Executing => row.status == Status::Runnable || row.is_recovering(),
        _ => was.is_recovering() && row.status == Status::Runnable,
    };
    let same_step = row.step_seq == was.step_seq && row.cause != Cause::Retry;
    match row.status {
        Status::Failed | Status::Cancelled => Fate::GivesUp,
        _ if queued && (row.cause == Cause::Next || same_step) => Fate::GivesUp,
        // A build that cannot run it must not end it (rule 12.4).
        _ if was.status == Status::Executing && row.is_blocked() => Fate::GivesUp,
        _ => Fate::Fails,
    }
}

/// The consequence for an outcome that would take a key that another instance holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It is refused, and its error handler is called (rule 4.2).
    Refused,
    /// It failed, and is not retried.
    Stopped,
    /// It is committed: its [`fate`] is decided when the row is written.
    Committed,
}

/// Decides the consequence for an outcome that would take a key that another instance holds. `ahead` is the row as the
/// outcome would leave it.
pub fn judge(outcome: &Outcome, was: &Row, ahead: &Row) -> Judged {
    match outcome {
        // The step did not run: the row only returns to where it was.
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

/// `true` if a new run follows the outcome; the new run takes its keys when it starts.
pub fn continues(outcome: &Outcome) -> bool {
    match outcome.last() {
        Outcome::ContinueAsNew { .. } => true,
        Outcome::Workflow(turn) => matches!(turn.then, Then::ContinueAsNew { .. }),
        _ => false,
    }
}

/// Gives up a key that another instance holds. A row that has ended does not hold it in that status; a row that has not
/// ended does not hold it in any status before its end. The end itself is decided later.
pub fn give_up(row: &mut Row, key: AnyKey, holder: InstanceId) -> HistoryEvent {
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
    HistoryEvent::KeyGivenUp { key, holder }
}

/// Ends a row as `failed` because its change would have taken a key that another instance holds; as `cancelled` if a
/// cancellation is pending. Pending commands will not be consumed.
pub fn fail(
    row: &mut Row,
    taken: &Refusal,
    pending: &[Pending],
    limits: &Limits,
    now: Timestamp,
) -> Closed {
    let error = limits.cut_error(&taken.to_string());
    let cancels = |one: &Pending| one.kind == CommandKind::Cancel;
    let (status, history_event) = match pending.iter().any(cancels) {
        true => (
            Status::Cancelled,
            HistoryEvent::Cancelled {
                reason: error.clone(),
            },
        ),
        false => (
            Status::Failed,
            HistoryEvent::Failed {
                error: error.clone(),
            },
        ),
    };
    let mut closed = inbox::discard(row, pending, status);
    end(row, status, now);
    row.last_error = Some(error);
    closed.history_events.push(history_event);
    closed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture;

    fn row(status: Status, scope: &[Status]) -> Row {
        Row {
            scopes: Scopes {
                key: scope.iter().copied().collect(),
                unique_key: Scope::NEVER,
            },
            ..fixture::row(status)
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
