//! Jobs: one async function with a retry policy.

use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{self, Contract, Declared, Json, Kind, Name, Refusal};
use abide_core::rules::deaths::MAX_DEATHS;
use abide_core::rules::retry::Retry;
use abide_kernel::{Clock, Store};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::guard::{caught, guarded};
use super::runner::fail_updates;
use super::{Definition, Fault, FaultKind, declared_deaths};
use crate::BoxError;
use crate::engine::{Ran, Runner, Settings, Task};
use crate::time::as_ms;
use crate::unfit;
use crate::workflow::RunHistory;

/// A job: a name, the type of its input and the type of its result. The code is given to the engine.
///
/// ```
/// use abide::prelude::*;
///
/// const RESIZE: Job<String, usize> = Job::new("resize").retry(Retry::exponential(secs(1)).attempts(5));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let abide = Abide::open("memory:").await?;
/// let engine = abide.engine().job(RESIZE, |path: String| async move { Ok(path.len()) }).start().await?;
/// let job = abide.start(RESIZE, "kettle.png".to_owned()).await?;
/// assert_eq!(job.result().await?, 10);
/// # engine.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct Job<A, O = ()> {
    name: Cow<'static, str>,
    queue: &'static str,
    retry: Retry,
    time_limit: Option<Duration>,
    max_deaths: u32,
    history: bool,
    types: PhantomData<fn(A) -> O>,
}

impl<A, O> Job<A, O> {
    /// Creates a job that is not retried when it fails.
    pub const fn new(name: &'static str) -> Self {
        let retry = Retry::never();
        Self {
            name: Cow::Borrowed(name),
            queue: "default",
            retry,
            time_limit: None,
            max_deaths: MAX_DEATHS,
            history: true,
            types: PhantomData,
        }
    }

    /// Creates a job whose name is known only at run time.
    pub(crate) fn named(name: String) -> Self {
        Self {
            name: Cow::Owned(name),
            ..Self::new("")
        }
    }

    /// Sets the retry policy.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the queue that the job waits in.
    #[must_use]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub const fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets the number of deaths of its worker after which the job fails; 5 by default, 0 for no limit (rule 5.7).
    #[must_use]
    pub const fn max_deaths(mut self, deaths: u32) -> Self {
        self.max_deaths = deaths;
        self
    }

    /// Keeps no history of the job.
    #[must_use]
    pub const fn without_history(mut self) -> Self {
        self.history = false;
        self
    }
}

/// The only step of a job.
const STEP: &str = "run";

impl<A: Serialize, O: DeserializeOwned + Send> Definition for Job<A, O> {
    type Input = A;
    type Output = O;

    fn declared(&self) -> Result<Declared, Refusal> {
        Ok(Declared {
            kind: Kind::Machine,
            machine: Name::new(&self.name)?,
            version: 1,
            first_step: Name::new(STEP)?,
            queue: Name::new(self.queue)?,
            history: self.history,
            contract: None,
            retry: None,
            step_timeout_ms: None,
            max_deaths: declared_deaths(self.max_deaths),
        })
    }
}

pub(crate) struct JobRunner<A, O, F> {
    job: Job<A, O>,
    code: F,
    clock: Arc<dyn Clock>,
}

impl<A, O, F, R> JobRunner<A, O, F>
where
    A: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(A) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send,
{
    pub fn new(job: Job<A, O>, code: F, store: &dyn Store) -> Self {
        let clock = store.clock();
        Self { job, code, clock }
    }

    fn arguments(&self, step: &Name, state: &Json) -> Result<A, Fault> {
        let unreadable = |text: String| Fault::new(FaultKind::Unreadable, text);
        let name = &self.job.name;
        if step.as_str() != STEP {
            let text = format!(
                "job {name} has no step {:?}; its step is {STEP}",
                step.as_str()
            );
            return Err(unreadable(text));
        }
        state.to().map_err(|error| {
            let why = unfit::fit::<A>(state.as_str()).err();
            let why = why.unwrap_or_else(|| error.to_string());
            unreadable(format!("the arguments of job {name} do not fit: {why}"))
        })
    }

    async fn call(&self, task: &Task) -> Result<Json, Fault> {
        let args = self.arguments(&task.step, &task.state)?;
        let output = guarded(
            async { (self.code)(args).await },
            task.own_time_limit().or(self.job.time_limit),
            &*self.clock,
        )
        .await?;
        Json::of(&output).map_err(|error| {
            Fault::new(
                FaultKind::Outcome,
                format!("the outcome cannot be stored: {error}"),
            )
        })
    }

    fn handled(&self, task: &Task, fault: &Fault) -> Ran {
        let outcome = match self.job.retry.delay(task.attempt, fastrand::f64()) {
            // The instance was started with its own policy, which decides.
            _ if task.has_own_retry() => model::Outcome::Fail {
                error: fault.to_string(),
            },
            Some(delay) => model::Outcome::Retry {
                state: task.state.clone(),
                delay_ms: as_ms(delay),
            },
            None => model::Outcome::Stop {
                reason: fault.to_string(),
            },
        };
        Ran {
            outcome,
            error: Some(fault.to_string()),
            within: None,
        }
    }
}

impl<A, O, F, R> Runner for JobRunner<A, O, F>
where
    A: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(A) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send,
{
    fn declared(&self) -> Result<(Declared, Option<Contract>), Refusal> {
        Ok((Definition::declared(&self.job)?, None))
    }

    fn for_engine(self: Arc<Self>, _: &Settings) -> Arc<dyn Runner> {
        self
    }

    fn answer(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        // A job declares no updates, so none is ever accepted.
        let outcome = fail_updates(&task, "a job takes no updates");
        Box::pin(std::future::ready(Ran {
            outcome,
            error: None,
            within: None,
        }))
    }

    fn run(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        Box::pin(async move {
            match caught(self.call(&task)).await {
                Ok(result) => Ran {
                    outcome: model::Outcome::Done { result },
                    error: None,
                    within: None,
                },
                Err(fault) if fault.is_unreadable() => Ran::blocked(fault.to_string()),
                Err(fault) => self.handled(&task, &fault),
            }
        })
    }

    fn fits(&self, run: &RunHistory, step: &Name) -> Result<(), String> {
        let read = || self.arguments(step, &run.input).map(drop);
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
        let read = read.unwrap_or_else(|panic| Err(Fault::panic(&*panic)));
        read.map_err(|fault| fault.to_string())
    }

    fn refused(self: Arc<Self>, task: Arc<Task>, refusal: Refusal) -> BoxFuture<'static, Ran> {
        Box::pin(async move {
            let why = refusal.to_string();
            if task.answers() {
                return self.answer(task).await;
            }
            self.handled(&task, &Fault::new(FaultKind::Outcome, why))
        })
    }
}
