//! The problems of an instance that only a repair fixes.

use super::{Around, Code, Reason, World};
use crate::model::{CommandId, Inbox, Kind, Name, Row, Status, WaitKind};
use crate::rules::contract::Terms;

/// A problem of an instance itself, which `repair` fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It has no due time.
    NeverDue,
    /// It waits for nothing.
    WaitsForNothing,
    /// It waits only for these signals, and its contract declares none of them.
    UndeclaredSignal(Vec<Name>),
    /// A signal that it waits for is pending, and did not wake it.
    MissedSignal(CommandId),
    /// Updates are pending, and did not wake it; the newest of them.
    MissedUpdate(Option<CommandId>),
    /// Its children have ended, and did not wake it.
    MissedChildren,
    /// It executes, and no worker holds it.
    NotHeld,
    /// It is behind in its partition, and no instance is at the front.
    NoFront,
    /// Its count of pending messages is wrong.
    Miscounted,
}

impl Problem {
    /// Returns its code, for programs.
    pub const fn code(&self) -> Code {
        match self {
            Self::NeverDue => Code::NeverDue,
            Self::WaitsForNothing => Code::WaitsForNothing,
            Self::UndeclaredSignal(_) => Code::UndeclaredSignal,
            Self::MissedSignal(_) => Code::MissedSignal,
            Self::MissedUpdate(_) => Code::MissedUpdate,
            Self::MissedChildren => Code::MissedChildren,
            Self::NotHeld => Code::NotHeld,
            Self::NoFront => Code::NoFront,
            Self::Miscounted => Code::Miscounted,
        }
    }

    /// Returns the signal or update that it concerns.
    pub const fn command(&self) -> Option<CommandId> {
        match self {
            Self::MissedSignal(id) => Some(*id),
            Self::MissedUpdate(id) => *id,
            _ => None,
        }
    }

    /// Returns a description, and why only a repair helps.
    pub fn text(&self) -> String {
        match self {
            Self::NeverDue => "it is scheduled, and due at no time".to_owned(),
            Self::WaitsForNothing => {
                "it waits, and neither a signal nor a deadline can wake it".to_owned()
            }
            Self::UndeclaredSignal(names) => {
                let names: Vec<String> = names
                    .iter()
                    .map(|name| format!("{:?}", name.as_str()))
                    .collect();
                format!(
                    "it waits for {} {}, which the contract of this run does not declare, so that it cannot be sent, and \
                     the wait has no deadline",
                    match names.len() {
                        1 => "the signal",
                        _ => "the signals",
                    },
                    names.join(", ")
                )
            }
            Self::MissedSignal(id) => {
                format!("signal {id}, which it waits for, is pending and did not wake it")
            }
            Self::MissedUpdate(Some(id)) => {
                format!("update {id} is pending and did not wake it")
            }
            Self::MissedUpdate(None) => "an update is pending and did not wake it".to_owned(),
            Self::MissedChildren => {
                "it waits for more children than have yet to end, so that its barrier cannot open"
                    .to_owned()
            }
            Self::NotHeld => "it executes, and no worker holds it".to_owned(),
            Self::NoFront => {
                "it stands behind in its partition, and nothing is at the front of it".to_owned()
            }
            Self::Miscounted => {
                "its count of pending messages is not what its inbox holds".to_owned()
            }
        }
    }

    /// Returns it as a reason, the form that readers see.
    pub fn reason(&self) -> Reason {
        Reason {
            code: self.code(),
            text: self.text(),
            command_id: self.command(),
        }
    }
}

/// Returns the problem of a locked row, if it has one: the part that [`health`](super::health) shows as `repair_needed`.
pub fn problem(row: &Row, world: World<'_>) -> Option<Problem> {
    // An instance that has ended, or was never started, waits for nothing and cannot be repaired.
    if row.status.is_terminal() || row.status == Status::Reserved {
        return None;
    }
    let stuck = match row.is_blocked() {
        true => None,
        false => stuck(row, world),
    };
    // Last, because every other repair also corrects the counts.
    stuck.or_else(|| is_miscounted(row.inbox, world.around?).then_some(Problem::Miscounted))
}

/// `true` if the contract is needed to decide whether an instance is healthy.
pub fn is_judged_by_contract(row: &Row) -> bool {
    waits_for_signals_alone(row)
}

/// `true` if the counts of pending messages are wrong.
pub fn is_miscounted(inbox: Inbox, around: &Around) -> bool {
    (inbox.signals, inbox.updates) != (around.signals, around.updates)
}

/// `true` if only signals can end its wait.
fn waits_for_signals_alone(row: &Row) -> bool {
    row.status == Status::AwaitingSignal
        && row.wait_kind() != Some(WaitKind::Condition)
        && row
            .waits()
            .iter()
            .all(|wait| wait.kind != WaitKind::Condition)
        && row.due_at.is_none()
        && row.family.needed == 0
        && row.awaited().iter().all(|name| name.event_type().is_none())
}

fn stuck(row: &Row, world: World<'_>) -> Option<Problem> {
    let around = world.around;
    // Updates to a row whose workers died are handled when it runs again.
    if row.status.is_parked() && !row.is_recovering() && misses_update(row, around) {
        let newest = around.and_then(|around| around.newest_update);
        return Some(Problem::MissedUpdate(newest.map(|(id, _)| id)));
    }
    match row.status {
        Status::Scheduled if row.due_at.is_none() => Some(Problem::NeverDue),
        Status::AwaitingSignal if row.awaited().is_empty() && waits_for_signals_alone(row) => {
            Some(Problem::WaitsForNothing)
        }
        Status::AwaitingSignal => {
            let waits = matches!(row.wait_kind(), Some(WaitKind::Signal | WaitKind::Event));
            let missed = around.filter(|_| waits).and_then(|one| one.missed_signal);
            missed
                .map(Problem::MissedSignal)
                .or_else(|| undeclared(row, world.terms?))
        }
        Status::AwaitingChildren => {
            let open = around.and_then(Around::children_open).unwrap_or(u32::MAX);
            (row.family.needed == 0 || open < row.family.needed).then_some(Problem::MissedChildren)
        }
        Status::Executing => {
            let held = row.worker.is_some() && around.is_none_or(|around| around.has_holder);
            (!held).then_some(Problem::NotHeld)
        }
        Status::Runnable if row.behind && around.is_some_and(|around| !around.has_front) => {
            Some(Problem::NoFront)
        }
        Status::Runnable if row.due_at.is_none() => Some(Problem::NeverDue),
        _ => None,
    }
}

/// `true` if an update is pending that should have woken a parked instance. A workflow's code may know of updates that
/// its handlers have not answered yet (rule 9.1): all that had arrived when it parked. An update that arrived later
/// should have woken it.
fn misses_update(row: &Row, around: Option<&Around>) -> bool {
    match around {
        None => row.inbox.updates > 0 && row.kind != Kind::Workflow,
        Some(around) if row.kind == Kind::Workflow => around
            .newest_update
            .is_some_and(|(_, sequence)| sequence > row.inbox.handed),
        Some(around) => around.updates > 0,
    }
}

/// Returns a problem if none of the signals that it waits for can be sent, and nothing else can end its wait
/// (rule 8.6).
fn undeclared(row: &Row, terms: &Terms) -> Option<Problem> {
    let hopeless =
        waits_for_signals_alone(row) && !row.awaited().iter().any(|name| terms.takes(name));
    hopeless.then(|| Problem::UndeclaredSignal(row.awaited().to_vec()))
}
