//! Runs a machine's steps for the engine.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{self, Declared, Json, Name, Refusal};
use abide_kernel::Clock;
use futures_util::future::BoxFuture;

use super::guard::{caught, guarded};
use super::outcome::Kind;
use super::{Context, Definition, Fault, FaultKind, Machine, Move, Step};
use crate::engine::{Ran, Runner, Task};

pub(crate) struct MachineRunner<M> {
    machine: M,
    clock: Arc<dyn Clock>,
}

impl<M: Machine> MachineRunner<M> {
    pub fn new(machine: M, clock: Arc<dyn Clock>) -> Self {
        Self { machine, clock }
    }

    async fn step(&self, task: &Arc<Task>) -> Result<model::Outcome, Fault> {
        let at = M::Step::parse(task.step.as_str()).ok_or_else(|| unknown_step::<M>(task))?;
        let mut ctx = self.context(task)?;
        let limit = self.machine.time_limit(at);
        // In a block of its own: what is not an `async fn` may panic in the call itself.
        let code = async { self.machine.step(at, &mut ctx).await };
        let answer = guarded(code, limit, &*self.clock).await?;
        stored(answer, ctx.state)
    }

    /// Asks the error handler; when that fails too, both messages stop the instance (rule 5.2).
    async fn handled(&self, task: &Arc<Task>, fault: Fault) -> Ran {
        let answer = async {
            let mut ctx = self.context(task)?;
            let code = async { self.machine.on_error(&fault, &mut ctx).await };
            let answer = guarded(code, None, &*self.clock).await?;
            stored(answer, ctx.state)
        };
        let outcome = match caught(answer).await {
            Ok(outcome) => outcome,
            // The state cannot be read by this code, so no handler can be asked: that is the one message there is.
            Err(second) if second.kind() == FaultKind::Unreadable => model::Outcome::Stop {
                reason: fault.to_string(),
            },
            Err(second) => {
                let reason = format!("{fault}; and its error handler failed: {second}");
                model::Outcome::Stop { reason }
            }
        };
        Ran {
            outcome,
            error: Some(fault.to_string()),
        }
    }

    fn context(&self, task: &Arc<Task>) -> Result<Context<M>, Fault> {
        let state = task.state.to().map_err(|error| {
            let text = format!(
                "the state of {} does not fit its type: {error}",
                std::any::type_name::<M>()
            );
            Fault::new(FaultKind::Unreadable, text)
        })?;
        Ok(Context {
            task: task.clone(),
            state,
        })
    }
}

impl<M: Machine> Runner for MachineRunner<M> {
    fn declared(&self) -> Result<Declared, Refusal> {
        Definition::declared(&self.machine)
    }

    fn run(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        Box::pin(async move {
            match caught(self.step(&task)).await {
                Ok(outcome) => Ran {
                    outcome,
                    error: None,
                },
                Err(fault) => self.handled(&task, fault).await,
            }
        })
    }

    fn refused(self: Arc<Self>, task: Arc<Task>, why: String) -> BoxFuture<'static, Ran> {
        Box::pin(async move {
            self.handled(&task, Fault::new(FaultKind::Outcome, why))
                .await
        })
    }
}

/// An outcome as it is stored, with the state as the step left it.
fn stored<M: Machine>(answer: Move<M>, state: M::State) -> Result<model::Outcome, Fault> {
    let written = |error| {
        Fault::new(
            FaultKind::Outcome,
            format!("the outcome cannot be stored: {error}"),
        )
    };
    let state = || Json::of(&state).map_err(written);
    let name = |step: M::Step| {
        Name::new(step.name())
            .map_err(|refusal| Fault::new(FaultKind::Outcome, refusal.to_string()))
    };
    Ok(match answer.0 {
        Kind::Next { step, delay } => model::Outcome::Next {
            step: name(step)?,
            state: state()?,
            delay_ms: as_ms(delay),
        },
        Kind::Retry { delay } => model::Outcome::Retry {
            state: state()?,
            delay_ms: as_ms(delay),
        },
        Kind::Sleep { time, next } => model::Outcome::Wait(model::Wait {
            signals: Vec::new(),
            timeout_ms: Some(as_ms(time)),
            next: name(next)?,
            state: state()?,
        }),
        Kind::Spawn {
            children,
            join,
            timeout,
            next,
        } => model::Outcome::Spawn {
            children,
            next: name(next)?,
            state: state()?,
            join,
            timeout_ms: timeout.map(as_ms),
        },
        Kind::Done(output) => model::Outcome::Done {
            result: Json::of(&output).map_err(written)?,
        },
        Kind::Stop(reason) => model::Outcome::Stop { reason },
    })
}

/// A duration in whole milliseconds, never less than it was.
pub(super) fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn unknown_step<M: Machine>(task: &Task) -> Fault {
    let known: Vec<&str> = M::Step::ALL.iter().map(|step| step.name()).collect();
    let text = format!(
        "machine {} version {} has no step {:?}; its steps are {}",
        M::NAME,
        M::VERSION,
        task.step.as_str(),
        known.join(", ")
    );
    Fault::new(FaultKind::Unreadable, text)
}
