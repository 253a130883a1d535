//! Runs a machine's steps for the engine.

use std::sync::Arc;

use abide_core::model::{self, Contract, Declared, Json, Name, Refusal};
use abide_kernel::{Clock, OwnTransaction, Store};
use futures_util::future::BoxFuture;

use super::guard::{caught, guarded};
use super::outcome::Kind;
use super::{Call, Context, Definition, Fault, FaultKind, Machine, Move, Reply, Step};
use crate::engine::{Ran, Runner, Settings, Task};
use crate::time::as_ms;
use crate::unfit;
use crate::workflow::RunHistory;

/// The transaction in which an outcome is to be committed, if it requests one.
type Within = Option<Box<dyn OwnTransaction>>;

pub(crate) struct MachineRunner<M> {
    machine: M,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl<M: Machine> MachineRunner<M> {
    pub fn new(machine: M, store: Arc<dyn Store>) -> Self {
        Self {
            machine,
            clock: store.clock(),
            store,
        }
    }

    async fn step(&self, task: &Arc<Task>) -> Result<(model::Outcome, Within), Fault> {
        let at = M::Step::parse(task.step.as_str()).ok_or_else(|| unknown_step::<M>(&task.step))?;
        let mut ctx = self.context(task)?;
        let own = task.own_time_limit();
        // Parsed once more, because a step need not be `Copy`.
        let again = || M::Step::parse(task.step.as_str());
        let limit = own.or_else(|| self.machine.time_limit(again()?));
        ctx.limit = limit;
        // In an `async` block: a `step` that is not an `async fn` may panic in the call itself.
        let code = async { self.machine.step(at, &mut ctx).await };
        let answer = guarded(code, limit, &*self.clock).await?;
        stored(answer, ctx.state)
    }

    /// Answers updates one after the other, each on the state that the previous one left. An update that fails leaves
    /// the state unchanged. The first update whose reply also moves the instance is the last one to be answered.
    async fn updates(&self, task: &Arc<Task>) -> Ran {
        let mut answered = Vec::with_capacity(task.updates.len());
        let mut state: Option<Json> = None;
        for update in &task.updates {
            let handled = caught(self.update(task, state.as_ref(), update)).await;
            let (result, error, then) = match handled {
                // Only the stored state can be unreadable, and then no update can be answered.
                Err(fault) if fault.kind() == FaultKind::Unreadable && state.is_none() => {
                    return Ran::blocked(fault.to_string());
                }
                Ok((result, left, then)) => {
                    state = Some(left);
                    (result, None, then)
                }
                Err(fault) => (Json::null(), Some(fault.to_string()), None),
            };
            answered.push(model::Answered {
                update_id: update.id,
                result,
                error,
            });
            if then.is_some() {
                return answer(answered, state, then);
            }
        }
        answer(answered, state, None)
    }

    /// Answers one update. Returns the answer, the state that it leaves, and the next move of the instance.
    async fn update(
        &self,
        task: &Arc<Task>,
        state: Option<&Json>,
        update: &model::Command,
    ) -> Result<(Json, Json, Option<model::Outcome>), Fault> {
        let mut ctx = self.context(task)?;
        if let Some(state) = state {
            ctx.state = self.read_state(state)?;
        }
        let code = async { self.machine.on_update(&Call(update), &mut ctx).await };
        let Reply { result, then } = guarded(code, None, &*self.clock).await?;
        let left = Json::of(&ctx.state).map_err(|error| {
            Fault::new(
                FaultKind::Outcome,
                format!("the state cannot be stored: {error}"),
            )
        })?;
        let then = match then.map(|then| stored(then, ctx.state)).transpose()? {
            Some((_, Some(_))) => {
                let text = "an update is not committed in a transaction of the step's".to_owned();
                return Err(Fault::new(FaultKind::Outcome, text));
            }
            Some((then, None)) => Some(then),
            None => None,
        };
        Ok((result, left, then))
    }

    /// Calls the error handler. If that fails too, the instance is stopped with both messages (rule 5.2).
    async fn handled(&self, task: &Arc<Task>, fault: Fault) -> Ran {
        let answer = async {
            let mut ctx = self.context(task)?;
            let code = async { self.machine.on_error(&fault, &mut ctx).await };
            let answer = guarded(code, None, &*self.clock).await?;
            stored(answer, ctx.state)
        };
        let (outcome, within) = match caught(answer).await {
            Ok(answered) => answered,
            // This build cannot read the state, so its handler cannot be called.
            Err(second) if second.is_unreadable() => return Ran::blocked(second.to_string()),
            Err(second) => {
                let reason = format!("{fault}; and its error handler failed: {second}");
                (model::Outcome::Stop { reason }, None)
            }
        };
        Ran {
            outcome,
            error: Some(fault.to_string()),
            within,
        }
    }

    fn read_state(&self, state: &Json) -> Result<M::State, Fault> {
        state.to().map_err(|error| {
            let why = unfit::fit::<M::State>(state.as_str()).err();
            let why = why.unwrap_or_else(|| error.to_string());
            let (name, version) = (M::NAME, M::VERSION);
            let text =
                format!("the state of {name} version {version} does not match its type: {why}");
            Fault::new(FaultKind::Unreadable, text)
        })
    }

    fn context(&self, task: &Arc<Task>) -> Result<Context<M>, Fault> {
        Ok(Context {
            task: task.clone(),
            state: self.read_state(&task.state)?,
            store: self.store.clone(),
            limit: None,
        })
    }
}

impl<M: Machine> Runner for MachineRunner<M> {
    fn declared(&self) -> Result<(Declared, Option<Contract>), Refusal> {
        let declared = Definition::declared(&self.machine)?;
        let agreement = self.machine.agreement()?;
        Ok((
            declared,
            agreement.map(|agreement| agreement.contract.clone()),
        ))
    }

    fn for_engine(self: Arc<Self>, _: &Settings) -> Arc<dyn Runner> {
        self
    }

    fn answer(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        Box::pin(async move { self.updates(&task).await })
    }

    fn run(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        Box::pin(async move {
            match caught(self.step(&task)).await {
                Ok((outcome, within)) => Ran {
                    outcome,
                    error: None,
                    within,
                },
                Err(fault) if fault.is_unreadable() => Ran::blocked(fault.to_string()),
                Err(fault) => self.handled(&task, fault).await,
            }
        })
    }

    fn fits(&self, run: &RunHistory, step: &Name) -> Result<(), String> {
        let read = || {
            M::Step::parse(step.as_str()).ok_or_else(|| unknown_step::<M>(step))?;
            self.read_state(&run.input).map(drop)
        };
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
        let read = read.unwrap_or_else(|panic| Err(Fault::panic(&*panic)));
        read.map_err(|fault| fault.to_string())
    }

    fn refused(self: Arc<Self>, task: Arc<Task>, refusal: Refusal) -> BoxFuture<'static, Ran> {
        Box::pin(async move {
            let why = refusal.to_string();
            if task.answers() {
                return Ran {
                    outcome: fail_updates(&task, &why),
                    error: None,
                    within: None,
                };
            }
            self.handled(&task, Fault::new(FaultKind::Outcome, why))
                .await
        })
    }
}

/// Converts an outcome to its stored form, with the state as the step left it.
fn stored<M: Machine>(answer: Move<M>, state: M::State) -> Result<(model::Outcome, Within), Fault> {
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
    let outcome = match answer.kind {
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
            events: Vec::new(),
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
        Kind::Wait {
            signals,
            events,
            timeout,
            next,
        } => model::Outcome::Wait(model::Wait {
            signals,
            events,
            timeout_ms: timeout.map(as_ms),
            next: name(next)?,
            state: state()?,
        }),
        Kind::Continue { step, version } => model::Outcome::ContinueAsNew {
            step: name(step)?,
            state: state()?,
            version,
        },
        Kind::Done(output) => model::Outcome::Done {
            result: Json::of(&output).map_err(written)?,
        },
        Kind::Stop(reason) => model::Outcome::Stop { reason },
        Kind::Fail(error) => model::Outcome::Fail { error },
    };
    Ok((outcome, answer.within))
}

/// Builds the outcome of answered updates, with the next move of the instance.
fn answer(updates: Vec<model::Answered>, state: Option<Json>, then: Option<model::Outcome>) -> Ran {
    Ran {
        outcome: model::Outcome::Answer {
            updates,
            state,
            then: then.map(Box::new),
        },
        error: None,
        within: None,
    }
}

/// Answers all updates of a task with the same error.
pub(super) fn fail_updates(task: &Task, why: &str) -> model::Outcome {
    let failed = task.updates.iter().map(|update| model::Answered {
        update_id: update.id,
        result: Json::null(),
        error: Some(why.to_owned()),
    });
    model::Outcome::Answer {
        updates: failed.collect(),
        state: None,
        then: None,
    }
}

fn unknown_step<M: Machine>(step: &Name) -> Fault {
    let known: Vec<&str> = M::Step::ALL.iter().map(|step| step.name()).collect();
    let text = format!(
        "machine {} version {} has no step {:?}; its steps are {}",
        M::NAME,
        M::VERSION,
        step.as_str(),
        known.join(", ")
    );
    Fault::new(FaultKind::Unreadable, text)
}
