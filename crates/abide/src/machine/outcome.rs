//! The outcome of a step.

use std::time::Duration;

use abide_core::model::{Join, Name, Start};
use abide_kernel::OwnTransaction;

use super::Machine;
use crate::BoxError;

/// The return type of a step: what comes next, or an error, so that `?` works.
pub type Outcome<M> = Result<Move<M>, BoxError>;

/// The next move of an instance. Made by [`next`], [`done`] and similar functions, and by [`Context`](super::Context).
pub struct Move<M: Machine> {
    pub(super) kind: Kind<M>,
    /// The transaction in which it is to be committed.
    pub(super) within: Option<Box<dyn OwnTransaction>>,
}

impl<M: Machine> Move<M> {
    pub(super) fn of(kind: Kind<M>) -> Self {
        Self { kind, within: None }
    }
}

pub(super) enum Kind<M: Machine> {
    Next {
        step: M::Step,
        delay: Duration,
    },
    Retry {
        delay: Duration,
    },
    Sleep {
        time: Duration,
        next: M::Step,
    },
    Spawn {
        children: Vec<Start>,
        join: Join,
        timeout: Option<Duration>,
        next: M::Step,
    },
    Wait {
        signals: Vec<Name>,
        events: Vec<abide_core::model::EventWait>,
        timeout: Option<Duration>,
        next: M::Step,
    },
    Done(M::Output),
    Stop(String),
    Fail(String),
    Continue {
        step: M::Step,
        version: Option<u32>,
    },
}

impl<M: Machine> std::fmt::Debug for Move<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            Kind::Next { step, delay } => {
                write!(f, "next({}, after {delay:?})", super::Step::name(step))
            }
            Kind::Retry { delay } => write!(f, "retry(after {delay:?})"),
            Kind::Sleep { time, next } => {
                write!(f, "sleep({time:?}, then {})", super::Step::name(next))
            }
            Kind::Spawn { children, next, .. } => {
                write!(
                    f,
                    "spawn({} children, then {})",
                    children.len(),
                    super::Step::name(next)
                )
            }
            Kind::Wait { signals, next, .. } => {
                write!(f, "wait({signals:?}, then {})", super::Step::name(next))
            }
            Kind::Continue { step, .. } => {
                write!(f, "continue_as_new({})", super::Step::name(step))
            }
            Kind::Done(_) => f.write_str("done"),
            Kind::Stop(reason) => write!(f, "stop({reason:?})"),
            Kind::Fail(error) => write!(f, "fail({error:?})"),
        }
    }
}

/// Moves to another step at once.
pub fn next<M: Machine>(step: M::Step) -> Outcome<M> {
    next_in(Duration::ZERO, step)
}

/// Moves to another step after a delay.
pub fn next_in<M: Machine>(delay: Duration, step: M::Step) -> Outcome<M> {
    Ok(Move::of(Kind::Next { step, delay }))
}

/// Runs the same step again after a delay. This is your own decision, not an error. The engine counts the attempts
/// ([`Context::attempt`](super::Context::attempt)) and sets no limit.
pub fn retry_in<M: Machine>(delay: Duration) -> Outcome<M> {
    Ok(Move::of(Kind::Retry { delay }))
}

/// Ends the instance as `done`, with a result.
pub fn done<M: Machine>(output: M::Output) -> Outcome<M> {
    Ok(Move::of(Kind::Done(output)))
}

/// Ends the instance as `failed`, with a reason.
pub fn stop<M: Machine>(reason: impl std::fmt::Display) -> Outcome<M> {
    Ok(Move::of(Kind::Stop(reason.to_string())))
}

/// Closes this run and opens the next one of its chain at that step, with the state as the step leaves it. The key, the
/// pending commands in the inbox and the slot at a parent's barrier move to the new run; its history begins anew. The
/// new run has the contract that this version of the machine declares at that time.
pub fn continue_as_new<M: Machine>(step: M::Step) -> Outcome<M> {
    Ok(Move::of(Kind::Continue {
        step,
        version: None,
    }))
}

/// [Continues as new](continue_as_new) in another version of the machine, at its step of the same name and under its
/// contract. This is how a chain that never ends moves to new code.
pub fn continue_as_version<M: Machine>(version: u32, step: M::Step) -> Outcome<M> {
    Ok(Move::of(Kind::Continue {
        step,
        version: Some(version),
    }))
}
