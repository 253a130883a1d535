//! Steps: the side effects of a workflow, each recorded when it has come to something.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use abide_core::model::{InstanceId, Json, Name, OperationKind, Signature};
use abide_core::rules::retry::Retry;
use abide_kernel::Clock;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::journal::{Ran, StepState, WaitsFor, Within};
use super::operation::{Came, Operation};
use super::{OperationError, Workflow};
use crate::BoxError;
use crate::machine::{Fault, FaultKind, guarded};

/// One attempt at a step, as its code sees it.
#[derive(Clone, Debug)]
pub struct Attempt {
    instance: InstanceId,
    operation: u32,
    number: u32,
}

impl Attempt {
    /// How often this step was begun before: 0 the first time.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// A token for the outside world: the same whenever this very step of this very run is run again, and never the
    /// same for another (rule 1.2). Hand it to whoever can tell a repeated request by it.
    pub fn token(&self) -> String {
        format!("abide-{}-{}", self.instance, self.operation)
    }
}

type Running<'a> = BoxFuture<'a, Result<Json, Fault>>;
type Code<'a> = Box<dyn Fn(Attempt, Option<Duration>, Arc<dyn Clock>) -> Running<'a> + Send + 'a>;

impl Workflow {
    /// Does something with a side effect, and records what it comes to: a request, a write, anything that is not the
    /// same twice. It may use whatever it likes, but no durable operation. When its worker dies before the result is
    /// committed it runs again; what it came to once it is never run for again.
    ///
    /// ```
    /// # use abide::{Retry, Workflow, BoxError, secs};
    /// # async fn charge(card: &str) -> Result<u32, BoxError> { Ok(card.len() as u32) }
    /// async fn order(wf: Workflow, card: String) -> Result<u32, BoxError> {
    ///     let receipt = wf
    ///         .step("charge", || charge(&card))
    ///         .retry(Retry::exponential(secs(1)).attempts(5))
    ///         .time_limit(secs(30))
    ///         .await?;
    ///     Ok(receipt)
    /// }
    /// ```
    pub fn step<'a, F, R, T, E>(&self, name: impl AsRef<str>, code: F) -> StepRun<'a, T>
    where
        F: Fn() -> R + Send + 'a,
        R: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned,
        E: Into<BoxError>,
    {
        self.step_with(name, move |_| code())
    }

    /// Does something with a side effect like [`step`](Self::step), and tells its code which [`Attempt`] it is, with a
    /// token that is the same for all of them.
    pub fn step_with<'a, F, R, T, E>(&self, name: impl AsRef<str>, code: F) -> StepRun<'a, T>
    where
        F: Fn(Attempt) -> R + Send + 'a,
        R: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned,
        E: Into<BoxError>,
    {
        let name = self.name(Name::new(name));
        let waits_for = WaitsFor::Step {
            state: StepState::Wanted,
            attempts: 0,
        };
        let signature = Signature::named(OperationKind::Step, name.clone());
        StepRun {
            operation: Operation::new(self.journal.clone(), signature, waits_for),
            name,
            limit: None,
            retry: Retry::never(),
            code: Box::new(move |attempt, limit, clock| {
                let code = code(attempt);
                let code = async move { code.await.map_err(Into::into) };
                Box::pin(async move { stored(&guarded(code, limit, &*clock).await?) })
            }),
            running: None,
            comes_to: PhantomData,
        }
    }
}

fn stored<T: Serialize>(value: &T) -> Result<Json, Fault> {
    Json::of(value).map_err(|error| {
        let text = format!("what it came to cannot be stored: {error}");
        Fault::new(FaultKind::Outcome, text)
    })
}

/// A step: made by [`Workflow::step`], and then awaited.
#[must_use = "a step does nothing before it is awaited"]
pub struct StepRun<'a, T> {
    operation: Operation,
    name: Name,
    limit: Option<Duration>,
    retry: Retry,
    code: Code<'a>,
    running: Option<(Instant, Running<'a>)>,
    comes_to: PhantomData<fn() -> T>,
}

impl<T> StepRun<'_, T> {
    /// When it is tried again; never unless given. A try that is to come is a row, not a process.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long one attempt may take.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Runs the step's code, when it is to run.
    fn run(&mut self, number: u32) {
        let journal = self.operation.journal.clone();
        let attempts = {
            let pages = journal.pages();
            let attempts = pages
                .open
                .get(&number)
                .and_then(|open| match open.waits_for {
                    WaitsFor::Step {
                        state: StepState::Running,
                        attempts,
                    } if open.brought.is_none() => Some(attempts),
                    _ => None,
                });
            let Some(attempts) = attempts else { return };
            attempts
        };
        let runtime = {
            let mut pages = journal.pages();
            pages.within = Some(Within::Step(self.name.clone()));
            pages.runtime.clone()
        };
        // The workflow's own code is polled where there is none.
        let entered = runtime.as_ref().map(tokio::runtime::Handle::enter);
        let (began, running) = self.running.get_or_insert_with(|| {
            let attempt = Attempt {
                instance: journal.about.id,
                operation: number,
                number: attempts.saturating_sub(1),
            };
            let clock = journal.about.clock.clone();
            (Instant::now(), call(&self.code, attempt, self.limit, clock))
        });
        // Its own waker, not that of the workflow's code: a step may wait for whatever it likes.
        let bell = Waker::from(journal.step_bell.clone());
        let polled = running.as_mut().poll(&mut Context::from_waker(&bell));
        let duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        if polled.is_ready() {
            self.running = None;
        }
        drop(entered);
        let mut pages = journal.pages();
        pages.within = None;
        let Poll::Ready(outcome) = polled else {
            return;
        };
        let outcome = outcome.and_then(|value| {
            let most = journal.about.limits.result_bytes;
            if value.size() > most {
                let size = value.size();
                let text = format!(
                    "what it came to is too large: {size} bytes, and `result_bytes` is {most}"
                );
                return Err(Fault::new(FaultKind::Outcome, text));
            }
            Ok(value)
        });
        let again = outcome.is_err().then(|| {
            let delay = self
                .retry
                .delay(attempts.saturating_sub(1), fastrand::f64());
            delay.map(|delay| journal.now() + delay)
        });
        let ran = Ran {
            outcome: outcome.map_err(|fault| journal.about.limits.cut_error(&fault.to_string())),
            duration_us,
            again: again.flatten(),
        };
        pages.ran.push_back((number, ran));
        if let Some(open) = pages.open.get_mut(&number)
            && let WaitsFor::Step { state, .. } = &mut open.waits_for
        {
            *state = StepState::Ended;
        }
    }
}

impl<T> Drop for StepRun<'_, T> {
    fn drop(&mut self) {
        // One that runs may have something to do when it is dropped, and is to do that in its own runtime.
        if let Some(running) = self.running.take() {
            let runtime = self.operation.journal.pages().runtime.clone();
            let _entered = runtime.as_ref().map(tokio::runtime::Handle::enter);
            drop(running);
        }
    }
}

/// Makes the future of an attempt; what is not an `async fn` may panic in the call itself.
fn call<'a>(
    code: &Code<'a>,
    attempt: Attempt,
    limit: Option<Duration>,
    clock: Arc<dyn Clock>,
) -> Running<'a> {
    let made =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| code(attempt, limit, clock)));
    made.unwrap_or_else(|panic| {
        let fault = Fault::panic(&*panic);
        Box::pin(std::future::ready(Err(fault)))
    })
}

impl<T: DeserializeOwned> Future for StepRun<'_, T> {
    type Output = Result<T, OperationError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = Pin::into_inner(self);
        if let Some(number) = this.operation.open() {
            this.run(number);
        }
        match std::task::ready!(this.operation.poll_brought(cx)) {
            Came::Value(value) => match value.to() {
                Ok(value) => Poll::Ready(Ok(value)),
                Err(error) => this.operation.unreadable("a step's result", &error),
            },
            Came::Error(error) => Poll::Ready(Err(OperationError::Step {
                step: this.name.to_string(),
                error,
            })),
            Came::Cancelled(reason) => Poll::Ready(Err(OperationError::Cancelled { reason })),
            Came::TimedOut => Poll::Pending,
        }
    }
}
