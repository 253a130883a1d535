//! The checks that an outcome must pass before it is applied.

use crate::model::{CommandId, CommandKind, Limits, Name, Outcome, Pending, Refusal, Then};
use crate::rules::contract::Terms;
use crate::rules::{children, event, workflow};

/// Refuses an outcome that breaks a limit or is not consistent; nothing has been changed then (rule 4.2).
pub fn check(outcome: &Outcome, limits: &Limits) -> Result<(), Refusal> {
    if let Some(state) = outcome.state() {
        limits.check_state(state)?;
    }
    match outcome {
        Outcome::Done { result } => limits.check_result(result),
        Outcome::Wait(wait) if !wait.events.is_empty() => {
            check_signals(wait.signals.iter())?;
            limits.check_names(wait.signals.len() + wait.events.len())?;
            check_deadline(wait.timeout_ms)?;
            limits.check_conditions(wait.events.iter())?;
            event::check(&wait.events)
        }
        Outcome::Wait(wait) if wait.signals.is_empty() && wait.timeout_ms.is_none() => {
            Err(Refusal::BadOutcome {
                problem: "it waits for nothing: name a signal, or give it a timeout".into(),
            })
        }
        Outcome::Wait(wait) => {
            check_signals(wait.signals.iter())?;
            limits.check_names(wait.signals.len())
        }
        Outcome::Spawn { children, join, .. } => {
            limits.check_children(children.len())?;
            children::check_join(*join, children.len())?;
            children
                .iter()
                .try_for_each(|child| limits.check_state(&child.state))
        }
        Outcome::ContinueAsNew { state, version, .. } => {
            limits.check_state(state)?;
            match *version {
                Some(version) if version == 0 || i32::try_from(version).is_err() => {
                    Err(Refusal::BadVersion { version })
                }
                _ => Ok(()),
            }
        }
        Outcome::Answer { updates, then, .. } => {
            for answered in updates {
                limits.check_payload(&answered.result)?;
            }
            match then.as_deref() {
                Some(Outcome::Answer { .. } | Outcome::Workflow(_)) => Err(Refusal::BadOutcome {
                    problem: "an answer cannot follow an answer: put the updates in one".into(),
                }),
                Some(Outcome::Block { .. }) => Err(Refusal::BadOutcome {
                    problem: "a block cannot follow an answer: a build that cannot run the instance answers no updates"
                        .into(),
                }),
                Some(then) => check(then, limits),
                None => Ok(()),
            }
        }
        Outcome::Workflow(turn) => workflow::check(turn, limits),
        Outcome::Next { .. }
        | Outcome::Retry { .. }
        | Outcome::Stop { .. }
        | Outcome::Fail { .. }
        | Outcome::Block { .. } => Ok(()),
    }
}

/// Returns the signals that an outcome waits for, each with the operation of a workflow that waits for it.
pub fn awaited_signals(outcome: &Outcome) -> Vec<(&Name, Option<u32>)> {
    match outcome.last() {
        Outcome::Wait(wait) => wait.signals.iter().map(|name| (name, None)).collect(),
        Outcome::Workflow(turn) => match &turn.then {
            Then::Park(park) => {
                let signals = park.signals.iter();
                signals
                    .map(|wait| (&wait.name, Some(wait.operation)))
                    .collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Refuses a wait for a signal that the instance's contract does not declare: it could not be sent (rule 8.6).
pub fn check_declared(outcome: &Outcome, terms: &Terms) -> Result<(), Refusal> {
    let mut awaited = awaited_signals(outcome).into_iter();
    match awaited.find(|(name, _)| !terms.takes(name)) {
        None => Ok(()),
        Some((name, operation)) => Err(Refusal::UndeclaredSignal {
            signal: name.clone(),
            operation,
        }),
    }
}

/// Refuses an answer to anything but an update that is pending here, under the valid claim of the row. The updates that
/// came with a claim stay pending as long as the claim is held, so such an answer is meant for another instance, or was
/// given before (rule 9.2).
pub fn check_answers(outcome: &Outcome, pending: &[Pending]) -> Result<(), Refusal> {
    let Outcome::Answer { updates, .. } = outcome else {
        return Ok(());
    };
    let is_pending = |id: CommandId| {
        let mut found = pending.iter();
        found.any(|one| one.id == id && one.kind != CommandKind::Signal)
    };
    let ids = updates.iter().map(|answered| answered.update_id);
    let mut astray: Vec<String> = ids
        .filter(|id| !is_pending(*id))
        .map(|id| id.to_string())
        .collect();
    astray.dedup();
    if astray.is_empty() {
        return Ok(());
    }
    Err(Refusal::BadOutcome {
        problem: format!(
            "it answers {}, and no update of that id is pending here: answer those that the claim came with",
            astray.join(", ")
        ),
    })
}

/// Refuses a wait for a signal whose name cannot be sent.
pub(in crate::rules) fn check_signals<'n>(
    mut signals: impl Iterator<Item = &'n Name>,
) -> Result<(), Refusal> {
    match signals.find(|name| name.event_type().is_some()) {
        None => Ok(()),
        Some(name) => Err(Refusal::BadOutcome {
            problem: format!("{name} is not a signal: wait for the event"),
        }),
    }
}

/// Refuses a wait for an event without a deadline (rule 14.5).
fn check_deadline(timeout_ms: Option<u64>) -> Result<(), Refusal> {
    match timeout_ms {
        Some(1..) => Ok(()),
        _ => Err(Refusal::BadOutcome {
            problem: "a wait for an event needs a timeout, of a millisecond at least".into(),
        }),
    }
}
